"""What a worker tells about its jobs, and that nobody who listens can harm them (WORK-4 to WORK-6)."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import STOPPED_WITHIN, all_settled, counts, ended, logged, running

import aqueue.events
from aqueue import (
    Delivery,
    Handlers,
    InvalidQueueArgument,
    JobEvent,
    JobFailed,
    JobReleased,
    JobSettlementLost,
    JobSucceeded,
    Outcome,
    Queue,
    Sensitive,
    Worker,
    job,
)
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place


@job(name="events.note")
class Note:
    text: str = ""


@job(name="events.login")
class Login:
    user: str
    password: Sensitive[str]


calls: list[tuple[str, object]] = []
"""What the jobs below were told; each test that looks clears it first."""


@job(name="events.tells")
class Tells:
    text: str = ""

    async def handle(self) -> None:
        raise LookupError(self.text)

    async def failed(self, error: BaseException | None) -> None:
        await asyncio.sleep(0)
        calls.append((self.text, error))
        if self.text == "and raises":
            raise ValueError("failed() failed")


@job(name="events.tells-plainly")
class TellsPlainly:
    def handle(self) -> None:
        raise LookupError("plainly")

    def failed(self, error: BaseException) -> None:
        calls.append(("plainly", error))


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    calls.clear()
    yield
    calls.clear()


def ending(*, max_attempts: int = 0) -> dict[str, Any]:
    """Handle a Note as its text says."""
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note, delivery: Delivery, queue: Queue) -> None:
        if note.text == "raises":
            raise LookupError("as told")
        if note.text == "lost":
            await queue.ack(delivery)

    return {"handlers": handlers, "max_attempts": max_attempts}


@pytest.mark.rule("WORK-5")
@pytest.mark.parametrize(
    ("text", "attempts", "expected"),
    [
        ("returns", 0, JobSucceeded),
        ("raises", 0, JobFailed),
        ("raises", 2, JobReleased),
        ("lost", 0, JobSettlementLost),
    ],
)
async def test_each_delivery_is_told_of_once_after_its_transition(
    any_place: Place, text: str, attempts: int, expected: type[JobEvent]
) -> None:
    queue, leased = await any_place.queue(), []
    told: list[JobEvent] = []
    worker = Worker(queue, **ending(max_attempts=attempts))

    async def listen(event: JobEvent) -> None:
        told.append(event)
        leased.append((await counts(queue))[2])

    worker.listen(JobEvent, listen)
    job_id = await queue.push(Note(text))
    await worker.run_one()

    (event,) = told
    assert type(event) is expected
    assert (event.id, event.name, event.queue, event.attempt) == (job_id, "events.note", "default", 1)
    assert event.args == {"text": text}
    assert 0 < event.duration < 60
    assert leased == [0]


@pytest.mark.rule("WORK-5")
async def test_a_listener_hears_only_what_it_asked_for(place: Place) -> None:
    queue = await place.queue()
    told: list[JobEvent] = []
    worker = Worker(queue, **ending())
    worker.listen(JobFailed, told.append)
    await queue.push_many([Note("returns"), Note("raises")])

    await worker.run_all()
    assert [type(event) for event in told] == [JobFailed]
    with pytest.raises(InvalidQueueArgument):
        worker.listen(Note, print)  # type: ignore[type-var]  # refused at run time too
    with pytest.raises(InvalidQueueArgument):
        worker.listen(JobFailed, "nobody")  # type: ignore[arg-type]  # refused at run time too


class Impossible(BaseException):
    """What no listener should raise."""


@pytest.mark.rule("WORK-4")
@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError, Impossible])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("text", ["returns", "raises", "lost"])
async def test_a_throwing_listener_is_logged_and_changes_nothing(
    memory: Place, kind: str, error: type[BaseException], text: str
) -> None:
    queue = await memory.queue()
    after: list[JobEvent] = []
    worker = Worker(queue, **ending(), concurrency=1)

    def throws(_: JobEvent) -> None:
        raise error("a listener's own trouble")

    async def throws_later(_: JobEvent) -> None:
        await asyncio.sleep(0)
        raise error("a listener's own trouble")

    worker.listen(JobEvent, throws if kind == "sync" else throws_later)
    worker.listen(JobEvent, after.append)
    await queue.push_many([Note(text), Note(text)])

    with logged() as log:
        async with running(worker) as task:
            await eventually(lambda: len(after) == 2)
            await all_settled(queue)
            assert not task.done()
            assert worker.health().ok
    assert len([text for text in log.messages(level=logging.ERROR) if "listener" in text]) == 2
    assert await queue.failed.count() == (2 if text == "raises" else 0)


@pytest.mark.rule("WORK-4")
async def test_a_hanging_listener_is_left_behind_and_delays_its_job_alone(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aqueue.events, "_LONGEST_LISTENER", 0.2)
    queue = await memory.queue()
    after: list[JobEvent] = []
    worker = Worker(queue, **ending(), concurrency=2)

    async def hangs(event: JobEvent) -> None:
        if event.args["text"] == "hangs":
            await asyncio.Event().wait()

    worker.listen(JobSucceeded, hangs)
    worker.listen(JobSucceeded, after.append)
    await queue.push_many([Note("hangs"), *[Note("returns")] * 20])

    with logged() as log:
        async with running(worker):
            await eventually(lambda: len(after) == 21)
    assert any("left behind" in message for message in log.messages(level=logging.WARNING))
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("WORK-4", "STOP-1")
async def test_a_hanging_listener_does_not_keep_a_worker_from_stopping(any_place: Place) -> None:
    queue, started = await any_place.queue(), asyncio.Event()
    worker = Worker(queue, **ending(), grace=0.1)

    async def hangs(_: JobEvent) -> None:
        started.set()
        await asyncio.Event().wait()

    worker.listen(JobSucceeded, hangs)
    await queue.push(Note("returns"))
    async with running(worker) as task:
        await started.wait()
        worker.stop()
        await ended(task, within=0.1 + STOPPED_WITHIN)
    assert await counts(queue) == (0, 0, 0, 0)


class Throwing(logging.Handler):
    """A logging handler that throws at whoever logs."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("this logger is broken")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


@pytest.mark.rule("WORK-4")
@pytest.mark.parametrize("broken", ["handler throws", "formatting throws"])
async def test_a_throwing_logger_is_ignored(
    any_place: Place, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, throwing = logging.getLogger("aqueue"), Throwing()
    handler = throwing if broken == "handler throws" else logging.StreamHandler()
    monkeypatch.setattr(logging, "raiseExceptions", True)
    queue, handlers = await any_place.queue(), Handlers()

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        if note.text != "good":
            raise Unprintable

    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        await queue.push_many([Note("bad"), Note("good"), Note("bad")])
        async with running(Worker(queue, handlers, max_attempts=2)) as task:
            await all_settled(queue)
            assert not task.done()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert [failed.attempts for failed in await queue.failed.list()] == [2, 2]


@pytest.mark.rule("WORK-6")
async def test_a_final_failure_is_logged_as_an_error_before_it_happens_and_one_with_attempts_left_is_not(
    memory: Place,
) -> None:
    queue, store = await memory.broken()
    worker = Worker(queue, **ending(max_attempts=2), concurrency=1)
    job_id = await queue.push(Note("raises"))

    with logged() as log:
        assert await worker.run_one() is Outcome.RELEASED
        assert not log.messages(level=logging.ERROR)
        assert not any("raises" in message for message in log.messages())

        store.hang("fail")
        failing = asyncio.create_task(worker.run_one())
        await eventually(lambda: store.calls["fail"] == 1)
        (error,) = log.messages(level=logging.ERROR)
        store.recover()
        assert await failing is Outcome.FAILED
    assert all(each in error for each in (job_id, "events.note", "default", "as told", "raises"))
    assert all(record.name.startswith("aqueue.") for record in log.records)


@pytest.mark.rule("WORK-5", "WORK-6")
async def test_sensitive_arguments_are_redacted_in_events_and_logs_and_kept_in_the_failed_store(
    place: Place,
) -> None:
    queue, handlers = await place.queue(), Handlers()
    told: list[JobEvent] = []

    @handlers.on(Login)
    async def handle(_: Login) -> None:
        raise LookupError

    worker = Worker(queue, handlers)
    worker.listen(JobFailed, told.append)
    await queue.push(Login("ann", "hunter2"))
    with logged() as log:
        await worker.run_one()

    (event,) = told
    assert event.args == {"user": "ann", "password": "[redacted]"}
    assert "hunter2" not in repr(event)
    text = "\n".join(log.messages())
    assert "hunter2" not in text
    assert "ann" in text
    (failed,) = await queue.failed.list()
    assert failed.args == {"user": "ann", "password": "hunter2"}
    assert failed.redacted_args == {"user": "ann", "password": "[redacted]"}
    assert "hunter2" not in repr(failed)


class Cursed(dict[str, object]):
    """Arguments that can't even be looked at."""

    def items(self) -> Any:
        raise RuntimeError("cursed")

    def __iter__(self) -> Any:
        raise RuntimeError("cursed")

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("cursed")


@pytest.mark.rule("WORK-5")
async def test_if_redaction_itself_fails_nothing_is_shown(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await memory.queue()
    told: list[JobEvent] = []
    worker = Worker(queue, **ending())
    worker.listen(JobFailed, told.append)
    await queue.push(Note("raises"))
    monkeypatch.setattr(Delivery, "args", property(lambda _: Cursed(text="raises")))

    with logged() as log:
        assert await worker.run_one() is Outcome.FAILED
    (event,) = told
    assert set(event.args.values()) <= {"[redacted]"}
    (error,) = log.messages(level=logging.ERROR)
    assert "[redacted]" in error
    assert "raises" not in error


@pytest.mark.rule("WORK-5")
async def test_a_job_is_told_once_that_it_failed_after_it_was_set_aside(place: Place) -> None:
    queue = await place.queue()
    await queue.push(Tells("async"), max_attempts=3)
    await queue.push(TellsPlainly())

    async with running(Worker(queue, [Tells, TellsPlainly])):
        await all_settled(queue)
        await eventually(lambda: len(calls) == 2)
    assert sorted((text, type(error)) for text, error in calls) == [
        ("async", LookupError),
        ("plainly", LookupError),
    ]
    assert await queue.failed.count() == 2


@pytest.mark.rule("WORK-5")
async def test_what_failed_raises_is_logged_and_changes_nothing(place: Place) -> None:
    queue = await place.queue()
    await queue.push_many([Tells("and raises"), Tells("and raises")])

    with logged() as log:
        async with running(Worker(queue, [Tells], concurrency=1)) as task:
            await eventually(lambda: len(calls) == 2)
            await all_settled(queue)
            assert not task.done()
    assert sum("failed()" in message for message in log.messages(level=logging.ERROR)) == 2
    assert [failed.error for failed in await queue.failed.list()] == ["and raises"] * 2


@pytest.mark.rule("WORK-5", "ATT-3")
async def test_a_job_that_is_set_aside_as_lost_is_told_so_too(place: Place) -> None:
    queue = await place.queue(lease=0.1)
    await queue.push(Tells("lost"))
    assert await queue.pop_now(1)
    worker = Worker(queue, [Tells], max_lost=1)

    async def handled() -> bool:
        return await worker.run_one() is Outcome.FAILED

    await eventually(handled)
    assert [(text, type(error).__name__) for text, error in calls] == [("lost", "JobLost")]


@pytest.mark.rule("WORK-4")
async def test_a_listener_may_push_pop_and_settle_other_jobs(place: Place) -> None:
    queue = await place.queue()
    worker = Worker(queue, **ending(), concurrency=1)

    async def follow_up(event: JobSucceeded) -> None:
        if event.args["text"] == "first":
            await queue.push(Note("second"))

    worker.listen(JobSucceeded, follow_up)
    await queue.push(Note("first"))
    assert await worker.run_all() == 2
