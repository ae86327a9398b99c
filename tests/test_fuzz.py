"""Some hundred damaged payloads down each path in every run; `make fuzz` sends 100,000 (MAL-1, SIGN-2)."""

import logging
from collections.abc import Iterator, Sequence
from random import SystemRandom

import pytest
from fuzz.paths import PATHS, Road
from fuzz.shapes import Plain
from msgspec.structs import replace

from aqueue.contract.signing import Keyring
from aqueue.jobs import JobType
from aqueue.port import Answer, Failing

pytestmark = [pytest.mark.rule("MAL-1"), pytest.mark.rule("SIGN-2"), pytest.mark.rule("ARG-4")]

CASES = 450


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each of these jobs would be worth a log line, and none of these lines is read."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def run(road: Road, cases: int) -> None:
    async with road.queue:
        for number in range(cases):
            await road.run(road.case(number))


@pytest.mark.parametrize("name", PATHS)
async def test_whatever_the_bytes_are_nothing_is_lost_and_nothing_unproved_runs(name: str) -> None:
    seed = SystemRandom().randrange(2**32)
    road = Road(PATHS[name], seed)
    number = 0

    async with road.queue:
        try:
            for number in range(CASES):
                await road.run(road.case(number))
        except Exception as error:
            again = f"make fuzz ARGS='--path {name} --seed {seed} --case {number}'"
            raise AssertionError(f"{type(error).__name__}: {error}; to see it again: {again}") from error

    assert road.ends.total() == CASES
    assert road.ends["ran"] > 0, "not one was left whole, so nothing was proved"


def test_a_case_can_be_tried_again() -> None:
    first, again = Road(PATHS["encrypted"], 7).case(123), Road(PATHS["encrypted"], 7).case(123)

    assert first == again
    assert first.payload != Road(PATHS["encrypted"], 8).case(123).payload


async def test_a_queue_that_believes_every_seal_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyring, "open", lambda self, payload, **_: payload[payload.find(b"{") :])

    with pytest.raises(AssertionError, match="unproved"):
        await run(Road(PATHS["sealed"], 1), 500)


async def test_a_store_that_keeps_other_bytes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(PATHS["sealed"], 1)
    keep = road._backend.fail

    async def tidied(batch: Sequence[Failing]) -> Sequence[Answer]:
        return await keep([Failing(item.reserved, replace(item.record, payload=b"{}")) for item in batch])

    monkeypatch.setattr(road._backend, "fail", tidied)

    with pytest.raises(AssertionError, match="other bytes"):
        await run(road, 100)


async def test_a_job_that_runs_as_another_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobType, "restore", lambda self, raw: Plain("another", 1, True))

    with pytest.raises(AssertionError):
        await run(Road(PATHS["unsealed"], 1), 500)
