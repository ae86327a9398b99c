"""`inline://`: the same checks, wire and scope as everywhere, and no store (SYNC-1)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aqueue import (
    AppScope,
    Backoff,
    Delivery,
    Depends,
    Handlers,
    InvalidQueueArgument,
    Keyring,
    PushManyError,
    Queue,
    Sensitive,
    UnhandledJob,
    UnresolvableParameter,
    UnserializableJob,
    Unsupported,
    connect,
    job,
)

done: list[object] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    done.clear()


@job(name="inline.note", max_attempts=3, backoff=Backoff.fixed(60))
class Note:
    text: str
    token: Sensitive[str] = ""

    async def handle(self, delivery: Delivery, queue: Queue) -> None:
        done.append((self.text, delivery.attempt, delivery.queue, len(delivery.id), type(queue)))
        if self.text == "raises":
            raise LookupError("no such user")


@job(name="inline.blocking")
def blocking(number: int) -> None:
    done.append(number)


@job(name="inline.slow", timeout=0.05)
async def slow() -> None:
    await asyncio.sleep(60)


@pytest.mark.rule("SYNC-1")
async def test_a_push_returns_once_the_job_has_run() -> None:
    async with connect("inline://", handlers=[Note, blocking]) as queue:
        job_id = await queue.push(Note("a"), queue="mail", delay=30)
        await queue.push(blocking.job(7))

        assert done == [("a", 1, "mail", 32, Queue), 7]
        assert len(job_id) == 32


@pytest.mark.rule("SYNC-1")
async def test_nothing_waits_is_leased_or_failed() -> None:
    async with connect("inline://", handlers=[Note]) as queue:
        with pytest.raises(LookupError):
            await queue.push(Note("raises"))

        assert await queue.size() == 0
        assert await queue.pop() is None
        assert await queue.pop_many(5, timeout=30) == []
        assert await queue.clear("default") == 0
        assert await queue.failed.count() == 0
        assert await queue.failed.list() == []


@pytest.mark.rule("SYNC-1")
async def test_the_handlers_error_reaches_the_pusher_unchanged_and_is_not_retried() -> None:
    async with connect("inline://", handlers=[Note]) as queue:
        with pytest.raises(LookupError, match="no such user"):
            await queue.push(Note("raises"))

        assert len(done) == 1


@pytest.mark.rule("SYNC-1", "PUSH-7")
async def test_one_failing_job_of_many_stops_no_other() -> None:
    async with connect("inline://", handlers=[Note]) as queue:
        with pytest.raises(PushManyError) as caught:
            await queue.push_many([Note("a"), Note("raises"), Note("b")])

        first, second, third = caught.value.outcomes
        assert isinstance(first, str)
        assert isinstance(second, LookupError)
        assert isinstance(third, str)
        assert len(done) == 3


@pytest.mark.rule("SYNC-1", "PUSH-1")
@pytest.mark.parametrize("options", [{"delay": -1}, {"queue": "no spaces"}, {"max_attempts": -1}])
async def test_arguments_are_checked_as_everywhere(options: dict[str, Any]) -> None:
    async with connect("inline://", handlers=[Note]) as queue:
        with pytest.raises(InvalidQueueArgument):
            await queue.push(Note("a"), **options)

        assert done == []


@pytest.mark.rule("SYNC-1", "ARG-3")
async def test_a_job_takes_the_way_over_the_wire() -> None:
    async with connect("inline://", handlers=[Note]) as queue:
        with pytest.raises(UnserializableJob):
            await queue.push(Note("\ud800"))

        assert done == []


@pytest.mark.rule("SYNC-1", "SIGN-1")
async def test_a_keyring_seals_and_opens_what_runs_inline() -> None:
    keyring = Keyring(active="now", keys={"now": "s" * 32})
    async with connect("inline://", handlers=[Note], keyring=keyring) as queue:
        await queue.push(Note("sealed"))

    assert len(done) == 1


@pytest.mark.rule("SYNC-1", "PUSH-10", "PUSH-8")
async def test_what_needs_a_store_is_refused() -> None:
    async with connect("inline://", handlers=[Note]) as queue:
        with pytest.raises(Unsupported):
            await queue.push(Note("a"), id="0" * 32)
        with pytest.raises(Unsupported):
            await queue.push(Note("a"), connection=object())


@pytest.mark.rule("SYNC-1", "ARG-5")
async def test_a_job_without_a_handler_is_its_pushers_error() -> None:
    async with connect("inline://", handlers=[blocking]) as queue:
        with pytest.raises(UnhandledJob):
            await queue.push(Note("a"))


@pytest.mark.rule("SYNC-1", "WORK-10")
async def test_a_job_that_outlasts_its_timeout_is_cancelled() -> None:
    async with connect("inline://", handlers=[slow]) as queue:
        with pytest.raises(TimeoutError):
            await queue.push(slow.job())


@pytest.mark.rule("SYNC-1", "PUSH-11")
async def test_cancelling_the_pusher_cancels_the_handler() -> None:
    handlers, started = Handlers(), asyncio.Event()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            done.append("cleaned up")

    async with connect("inline://", handlers=handlers) as queue:
        pushing = asyncio.create_task(queue.push(Note("a")))
        await started.wait()
        pushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pushing

    assert done == ["cleaned up"]


class Session:
    def __init__(self) -> None:
        self.ending: str | None = None


@pytest.mark.rule("SYNC-1", "SCOPE-1", "MID-1")
async def test_scope_and_middleware_are_those_of_a_worker() -> None:
    async def noted(delivery: Delivery, call_next: Any) -> None:
        done.append("before")
        await call_next(delivery)
        done.append("after")

    async def get_session() -> AsyncIterator[Session]:
        session = Session()
        try:
            yield session
        except LookupError:
            session.ending = "rolled back"
            raise
        else:
            session.ending = "committed"
        finally:
            done.append(session.ending)

    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note, count: int = 3, session: Session = Depends(get_session)) -> None:
        assert count == 3
        if note.text == "raises":
            raise LookupError(note.text)

    scope = AppScope(values={Session: Session()})
    async with connect("inline://", handlers=handlers, scope=scope, middleware=[noted]) as queue:
        await queue.push(Note("a"))
        with pytest.raises(LookupError):
            await queue.push(Note("raises"))

    assert done == ["before", "after", "committed", "before", "rolled back"]


def closes_badly() -> Any:
    yield object()
    raise RuntimeError("closing failed")


@pytest.mark.rule("SYNC-1", "WORK-9")
async def test_only_a_closing_that_fails_alone_reaches_the_pusher(caplog: pytest.LogCaptureFixture) -> None:
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note, _: object = Depends(closes_badly)) -> None:
        if note.text == "raises":
            raise LookupError("the handler's own")

    async with connect("inline://", handlers=handlers) as queue:
        with pytest.raises(RuntimeError, match="closing failed"):
            await queue.push(Note("a"))
        with caplog.at_level(logging.ERROR), pytest.raises(LookupError, match="the handler's own"):
            await queue.push(Note("raises"))


@pytest.mark.rule("SYNC-1", "FACE-1")
def test_handlers_belong_to_inline_and_inline_needs_them() -> None:
    with pytest.raises(InvalidQueueArgument, match="handlers="):
        connect("inline://")
    with pytest.raises(InvalidQueueArgument, match="inline://"):
        connect("memory://", handlers=[Note])
    with pytest.raises(InvalidQueueArgument, match="unknown option"):
        connect("inline://?fast=true", handlers=[Note])


@pytest.mark.rule("SYNC-1", "ARG-5")
def test_a_handler_that_could_never_run_is_refused_at_once() -> None:
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note, session: Session) -> None: ...

    with pytest.raises(UnresolvableParameter, match="session"):
        connect("inline://", handlers=handlers)
