"""Edited by hand: changed arguments are checked like a push, and go back in the same step."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aqueue.contract.signing import Keyring
from aqueue.errors import InvalidQueueArgument, JobReconstructionError, MalformedJobSettled
from aqueue.jobs import Sensitive, job
from aqueue.queue import Queue
from aqueue.testing.contract.failing import fail_jobs
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id, store_raw

_SECRET = b"a secret of thirty-two bytes or so.."
_OLD = Keyring(active="old", keys={"old": _SECRET})
_NEW = Keyring(active="new", keys={"old": _SECRET, "new": _SECRET[::-1]})


@dataclass(frozen=True)
class _Address:
    street: str
    number: int


@job(name="contract.letter", max_attempts=3)
class Letter:
    """A job with fields of many types, one of which must never be seen."""

    to: _Address
    at: datetime
    ratio: float = 1.0
    password: Sensitive[str] = "hunter2"  # noqa: S105 - a value that must never be seen

    def __post_init__(self) -> None:
        if self.ratio < 0:
            raise ValueError(f"{self.ratio} is no ratio")


_LETTER = Letter(_Address("Elm", 7), datetime(2026, 5, 1, tzinfo=UTC))


async def _failed(harness: Harness, queue: Queue, job: object) -> str:
    id = await queue.push(job, max_attempts=5)
    await queue.fail(await harness.take(queue))
    return id


@rule("FAIL-5")
async def an_edited_job_goes_back_with_its_changes(harness: Harness) -> None:
    """New values are plain JSON or the field's own; all else of the job is as it was, its counters fresh."""
    queue = await harness.queue()
    changes: tuple[tuple[Mapping[str, object], Letter], ...] = (
        ({"ratio": 2.5}, Letter(_LETTER.to, _LETTER.at, 2.5)),
        ({"to": {"street": "Oak", "number": 8}}, Letter(_Address("Oak", 8), _LETTER.at)),
        (
            {"to": _Address("Ash", 9), "at": datetime(2027, 1, 1, tzinfo=UTC), "password": "swordfish"},
            Letter(_Address("Ash", 9), datetime(2027, 1, 1, tzinfo=UTC), password="swordfish"),  # noqa: S106
        ),
    )
    for change, expected in changes:
        id = await _failed(harness, queue, _LETTER)
        before = await queue.failed.get(id)
        assert before is not None

        assert await queue.failed.retry(id, changes=change)

        delivery = await harness.take(queue)
        assert (delivery.id, delivery.job(Letter)) == (id, expected)
        assert (delivery.attempt, delivery.lost, delivery.max_attempts) == (1, 0, 5)
        assert delivery.pushed_at == before.pushed_at
        assert delivery.metadata == before.metadata
        await queue.ack(delivery)
    assert await queue.failed.count() == 0


@rule("FAIL-5")
async def a_change_that_does_not_fit_leaves_the_job(harness: Harness) -> None:
    """The error names the field and never a value; the record is what it was, and nothing is pushed."""
    queue = await harness.queue()
    id = await _failed(harness, queue, _LETTER)
    before = await queue.failed.get(id)
    bad: tuple[Any, ...] = (
        {"ratio": "much"}, {"ratio": 1}, {"ratio": float("nan")}, {"ratio": -1.0}, {"to": {"street": "Oak"}},
        {"to": 5}, {"at": "soon"}, {"at": datetime(2026, 1, 1)}, {"unheard-of": 1}, {"password": 12345},  # noqa: DTZ001
        {"password": ["s3cret"]}, {"password": "\ud800"}, {"ratio": object()}, {}, {1: 2}, ["ratio"], "ratio",
    )  # fmt: skip

    for changes in bad:
        with raises(InvalidQueueArgument, f"retry(changes={changes!r})") as caught:
            await queue.failed.retry(id, changes=changes)
        assert "s3cret" not in str(caught.error)
        assert "12345" not in str(caught.error)
    with raises(InvalidQueueArgument, "changing a job by another class"):
        await queue.failed.retry(id, changes={"ratio": 1.5}, job=Note)
    with raises(InvalidQueueArgument, "changing a job by what is no job"):
        await queue.failed.retry(id, changes={"ratio": 1.5}, job=_Address)

    assert await queue.failed.get(id) == before
    await harness.expect_counts(queue)
    assert await queue.failed.retry(job_id(9), changes={"ratio": 1.5}) is False


@rule("FAIL-5", "ARG-1")
async def a_job_that_nobody_declares_here_is_changed_as_json(harness: Harness) -> None:
    """Only arguments that it has, and only to what JSON can hold."""
    queue, backend = await harness.queue(), await harness.backend()
    args = b'{"size":7,"deep":{"list":[1,null]}}'
    [id] = await store_raw(backend, envelope(job_id(1), name="somebody.elses", args=args))
    await queue.fail(await harness.take(queue))

    nan = float("nan")
    for changes in ({"width": 8}, {"size": {1, 2}}, {"size": nan}, {"size": 2**63}, {"deep": {1: 2}}):
        with raises(InvalidQueueArgument, f"retry(changes={changes!r})"):
            await queue.failed.retry(id, changes=changes)
    assert await queue.failed.retry(id, changes={"size": ["any", {"thing": 1.5}]})

    assert (await harness.take(queue)).args == {"size": ["any", {"thing": 1.5}], "deep": {"list": [1, None]}}


@rule("FAIL-5", "SIGN-2")
async def an_edited_job_is_sealed_anew(harness: Harness) -> None:
    """Its old seal is checked first, the new one is the active key's; a forged job can't be edited."""
    before, after = await harness.queue(keyring=_OLD), await harness.queue(keyring=_NEW)
    [id] = await fail_jobs(harness, before, 1)
    [forged] = await store_raw(await harness.backend(), envelope(job_id(5)))
    with raises(MalformedJobSettled, "popping an unsealed job"):
        await after.pop(timeout=harness.patience)

    with raises(JobReconstructionError, "editing a job that nobody sealed"):
        await after.failed.retry(forged, changes={"text": "mine"})
    assert await after.failed.retry(id, changes={"text": "edited"})

    delivery = await harness.take(after)
    assert delivery.reserved.payload.startswith(b"aq1.new.")
    assert (delivery.id, delivery.args) == (id, {"text": "edited"})
    assert [job.id for job in await after.failed.list()] == [forged]


@rule("FAIL-5", "FAIL-2")
async def two_edits_at_once_have_one_winner(harness: Harness) -> None:
    """One of them puts the job back, whole and with its own changes."""
    queue, other = await harness.queue(), await harness.queue()
    [id] = await fail_jobs(harness, queue, 1)

    answers = await asyncio.gather(
        *(one.failed.retry(id, changes={"text": f"edit {n}"}) for n, one in enumerate([queue, other] * 10))
    )

    assert answers.count(True) == 1
    assert (await harness.take(queue)).args == {"text": f"edit {answers.index(True)}"}
    await harness.expect_nothing(queue)
    assert await queue.failed.count() == 0
