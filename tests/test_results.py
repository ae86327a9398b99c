"""Results and progress as a process keeps them: what is asked of the store, and what the options mean."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import pytest
from support.stores import Unreachable, WholeBackend, Wrapper

from aqueue import (
    ConnectionFailed,
    Delivery,
    InvalidQueueArgument,
    Keyring,
    NotesMissing,
    Queue,
    ResultMissing,
    ResultTimeout,
    Worker,
    connect,
    job,
)
from aqueue.connection import open_backend
from aqueue.contract.results import RESULTS_KEY, ending_with
from aqueue.port import StoreOptions

pytestmark = pytest.mark.rule("RESULT-1")


@job(name="results.kept", results=60)
async def kept(value: int) -> int:
    return value


@job(name="results.never", results=False)
async def never(value: int) -> int:
    return value


@job(name="results.plain")
async def plain(value: int) -> int:
    return value


@pytest.fixture
def store() -> Wrapper:
    """Memory that suspends, counts and fails on command."""
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    return Wrapper(cast("WholeBackend", backend))


@pytest.fixture
async def queue(store: Wrapper) -> AsyncIterator[Queue]:
    async with Queue(store) as queue:
        yield queue


async def seconds_of(queue: Queue) -> str | None:
    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    await queue.ack(delivery)
    return delivery.metadata.get(RESULTS_KEY)


async def test_the_push_decides_then_the_job_then_the_connection() -> None:
    async with connect("memory://", results=timedelta(minutes=10)) as queue:
        for pushed, options, expected in (
            (plain, {}, "600.0"),
            (kept, {}, "60.0"),
            (never, {}, None),
            (kept, {"results": False}, None),
            (never, {"results": 5}, "5.0"),
        ):
            await queue.push(pushed.job(1), **options)
            assert await seconds_of(queue) == expected


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "60", 1e12])
def test_other_times_are_refused_where_they_are_given(seconds: object) -> None:
    with pytest.raises(InvalidQueueArgument):
        job(results=seconds)  # type: ignore[call-overload]  # a checker refuses most of them too


async def test_a_connection_that_can_not_keep_results_is_refused_before_it_is_opened() -> None:
    with pytest.raises(NotesMissing, match="sqs"):
        connect("sqs://eu-west-1", results=60)


async def test_inline_runs_the_job_and_keeps_nothing() -> None:
    async with connect("inline://", handlers=[kept], results=60) as queue:
        id = await queue.push(kept.job(1))
        with pytest.raises(NotesMissing, match="inline"):
            await queue.result(id)


async def test_a_job_without_a_result_writes_no_note(queue: Queue, store: Wrapper) -> None:
    await queue.push(plain.job(1))

    await Worker(queue, [plain]).run_all()

    assert store.calls["read_notes"] == store.calls["write_notes"] == 0


async def test_who_waits_on_the_same_queue_is_woken_and_does_not_poll(queue: Queue, store: Wrapper) -> None:
    id = await queue.push(kept.job(7))
    waiting = [asyncio.create_task(queue.result(id, timeout=30)) for _ in range(3)]
    await asyncio.sleep(0.3)
    looks = store.calls["read_notes"]

    await Worker(queue, [kept]).run_all()

    assert await asyncio.gather(*waiting) == [7, 7, 7]
    assert looks < 3 * 8
    assert not queue.endings.results._listening


async def test_waiting_ends_in_time_and_can_be_cancelled(queue: Queue) -> None:
    id = await queue.push(kept.job(7))
    with pytest.raises(ResultTimeout) as caught:
        await queue.result(id, timeout=0.05)
    assert isinstance(caught.value, TimeoutError | ResultMissing)

    waiting = asyncio.create_task(queue.result(id, timeout=30))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not queue.endings.results._listening


async def test_a_result_that_can_not_be_written_leaves_the_job_leased(queue: Queue, store: Wrapper) -> None:
    await queue.push(kept.job(7))
    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    store.break_down("write_notes", error=Unreachable)

    with pytest.raises(ConnectionFailed):
        await queue.ack(delivery, result=7)

    assert (await queue.stats()).leased == 1
    store.recover()
    await queue.ack(delivery, result=7)
    assert await queue.result(delivery.id) == 7


async def test_a_worker_outlasts_a_short_outage_of_notes(queue: Queue, store: Wrapper) -> None:
    id = await queue.push(kept.job(7))
    store.break_down("write_notes", error=Unreachable, times=1)
    worker = Worker(queue, [kept], poll_timeout=0.05)
    running = asyncio.create_task(worker.run())

    assert await queue.result(id, timeout=30) == 7

    worker.stop()
    await running


@pytest.mark.rule("SIGN-4")
async def test_with_an_encrypting_keyring_the_store_sees_no_result() -> None:
    pytest.importorskip("cryptography")
    keys = Keyring(active="k", keys={"k": b"k" * 32}, encrypt=True)
    async with connect("memory://results-encrypted", keyring=keys) as queue:
        id = await queue.push(kept.job(1))
        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        await queue.ack(delivery, result="plainly visible")
        backend = cast("WholeBackend", queue._store.backend)
        from aqueue.port import NoteKey
        from aqueue.results import _place

        (note,) = await backend.read_notes([NoteKey(*_place("result", id))])

        assert not isinstance(note, Exception)
        assert note.value is not None
        assert b"visible" not in note.value
        assert await queue.result(id) == "plainly visible"


@pytest.mark.parametrize("value", [{1}, float("nan"), {1: 2}, "\ud800", 2**70, b"x", "x" * 600_000])
def test_what_has_no_wire_form_is_unfit(value: object) -> None:
    assert ending_with(value).state == "unfit"


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "é", [], {"a": [1, {"b": None}]}])
def test_json_is_fit(value: object) -> None:
    assert ending_with(value).state == "done"


async def test_an_unfit_result_is_a_warning(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    id = await queue.push(kept.job(1))
    delivery = await queue.pop(timeout=5)
    assert delivery is not None

    with caplog.at_level(logging.WARNING, logger="aqueue"):
        await queue.ack(delivery, result={"secret"})

    assert id in caplog.text
    assert "secret" not in caplog.text


# -- progress -------------------------------------------------------------------------------------------


@job(name="results.busy", results=60)
class Busy:
    words: int

    async def handle(self, delivery: Delivery) -> None:
        for number in range(self.words):
            await delivery.progress(number / self.words)


@pytest.mark.rule("RESULT-2")
async def test_a_thousand_words_are_a_few_writes_and_the_last_is_among_them(
    queue: Queue, store: Wrapper
) -> None:
    id = await queue.push(Busy(1000))

    await Worker(queue, [Busy]).run_all()

    progress = await queue.progress(id)
    assert progress is not None
    assert progress.fraction == 0.999
    assert store.calls["write_notes"] < 50


@pytest.mark.rule("RESULT-2")
async def test_progress_that_can_not_be_written_costs_a_warning(
    queue: Queue, store: Wrapper, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.push(Busy(2))
    store.break_down("write_notes", error=Unreachable, times=2)

    with caplog.at_level(logging.WARNING, logger="aqueue"):
        await Worker(queue, [Busy]).run_all()

    assert "progress was not written" in caplog.text
    assert await queue.size() == 0


@pytest.mark.rule("RESULT-2")
@pytest.mark.parametrize(
    ("fraction", "text"), [(1.5, ""), (-0.1, ""), (float("nan"), ""), (True, ""), (0.5, 5)]
)
async def test_progress_is_from_0_to_1_with_a_text(queue: Queue, fraction: float, text: str) -> None:
    await queue.push(plain.job(1))
    delivery = await queue.pop(timeout=5)
    assert delivery is not None

    with pytest.raises(InvalidQueueArgument, match="progress"):
        await delivery.progress(fraction, text)
    await delivery.progress(0.5, "for nobody")
    assert await queue.progress(delivery.id) is None
