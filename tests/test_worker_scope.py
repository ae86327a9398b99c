"""A delivery's scope: what it gives, when it closes, and that failing to close decides nothing (WORK-9)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from opentelemetry.trace import Span
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, logged, running
from telemetry_sdk import Seen

import aqueue.runner
from aqueue import (
    AppScope,
    Delivery,
    Depends,
    Handlers,
    JobEvent,
    JobSucceeded,
    Outcome,
    OutcomeUnknown,
    Queue,
    RequestScope,
    Worker,
    job,
)
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place


@job(name="scope.note")
class Note:
    text: str = ""


class Mailer: ...


class Tenant:
    """Something each delivery has one of."""

    def __init__(self, name: str) -> None:
        self.name = name


class Transaction:
    """A dependency that commits, or rolls back, and writes down which; it may fail to close."""

    def __init__(self, log: list[str], name: str, fails: bool = False) -> None:
        self.log, self.name, self.fails = log, name, fails

    async def __call__(self) -> AsyncIterator[str]:
        try:
            yield self.name
        except BaseException as error:
            self.log.append(f"{self.name} rolled back: {type(error).__name__}")
            raise
        self.log.append(f"{self.name} committed")
        if self.fails:
            raise LookupError(f"{self.name} failed to close")


@pytest.mark.rule("SCOPE-1")
async def test_handlers_get_values_by_type_and_what_initializers_add_for_their_delivery(place: Place) -> None:
    seen, mailer = Seen(), Mailer()
    given: list[object] = []
    queue = await place.queue(tracer_provider=seen.tracer_provider, meter_provider=seen.meter_provider)
    handlers = Handlers()

    async def add_tenant(scope: RequestScope) -> None:
        scope.add(Tenant, Tenant(scope.delivery.args["text"]))

    def count(_: RequestScope) -> None:
        given.append("initialized")

    @handlers.on(Note)
    async def handle(
        note: Note, mailer: Mailer, tenant: Tenant, delivery: Delivery, queue: Queue, span: Span
    ) -> None:
        assert delivery.job(Note) == note
        assert span.get_span_context().is_valid
        given.append((mailer, tenant.name, queue))

    await queue.push_many([Note("a"), Note("b")])
    scope = AppScope({Mailer: mailer}, [add_tenant, count])
    assert await Worker(queue, handlers, scope=scope, concurrency=1).run_all() == 2
    assert given == ["initialized", (mailer, "a", queue), "initialized", (mailer, "b", queue)]


@pytest.mark.rule("SCOPE-1")
async def test_a_class_handler_is_built_for_each_delivery_and_fed_from_the_scope(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()
    built: list[tuple[Any, ...]] = []

    class Sends:
        def __init__(self, mailer: Mailer, tenant: Annotated[str, Depends(lambda: "acme")]) -> None:
            built.append((self, mailer, tenant))

        async def handle(self, note: Note) -> None:
            built.append((self, note.text))

    Sends.__init__.__annotations__.update(mailer=Mailer)
    handlers.on(Note, Sends)
    await queue.push_many([Note("a"), Note("b")])

    mailer = Mailer()
    assert await Worker(queue, handlers, scope=AppScope({Mailer: mailer}), concurrency=1).run_all() == 2
    assert [entry[1:] for entry in built] == [(mailer, "acme"), ("a",), (mailer, "acme"), ("b",)]
    assert built[0][0] is built[1][0] is not built[2][0]


@pytest.mark.rule("SCOPE-1")
async def test_dependencies_can_be_replaced_in_a_test_while_the_worker_lives(memory: Place) -> None:
    queue, handlers, seen = await memory.queue(), Handlers(), []

    def real() -> str:
        return "real"

    @handlers.on(Note)
    async def handle(_: Note, found: str = Depends(real)) -> None:
        seen.append(found)

    scope = AppScope()
    worker = Worker(queue, handlers, scope=scope)
    for _ in range(3):
        await queue.push(Note())
    await worker.run_one()
    with scope.override(real, lambda: "fake"):
        await worker.run_one()
    await worker.run_one()
    assert seen == ["real", "fake", "real"]


@pytest.mark.rule("WORK-9", "SCOPE-1")
async def test_commit_on_exit_commits_before_the_ack_and_the_request_closes_after_the_report(
    any_place: Place,
) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    log: list[str] = []
    function, request = Transaction(log, "function"), Transaction(log, "request")

    async def where_it_is() -> str:
        return "leased" if (await counts(queue))[2] else "gone"

    async def watches() -> AsyncIterator[None]:
        yield
        log.append(f"function exit: {await where_it_is()}")

    @handlers.on(Note)
    async def handle(
        _: Note,
        __: str = Depends(request),
        ___: str = Depends(function, scope="function"),
        ____: None = Depends(watches, scope="function"),
    ) -> None:
        log.append("handle")

    async def report(_: JobSucceeded) -> None:
        log.append(f"report: {await where_it_is()}")

    worker = Worker(queue, handlers)
    worker.listen(JobSucceeded, report)
    await queue.push(Note())
    await worker.run_one()
    assert log == [
        "handle",
        "function exit: leased",
        "function committed",
        "report: gone",
        "request committed",
    ]


@pytest.mark.rule("WORK-9")
async def test_a_function_scoped_dependency_that_fails_to_close_fails_the_attempt(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()
    log: list[str] = []
    failing, request = Transaction(log, "function", fails=True), Transaction(log, "request")

    @handlers.on(Note)
    async def handle(
        _: Note, __: str = Depends(request), ___: str = Depends(failing, scope="function")
    ) -> None: ...

    await queue.push(Note())
    assert await Worker(queue, handlers, max_attempts=2).run_all() == 2
    (failed,) = await queue.failed.list()
    assert (failed.error_type, failed.error, failed.attempts) == (
        "LookupError",
        "function failed to close",
        2,
    )
    assert log == ["function committed", "request rolled back: LookupError"] * 2


@pytest.mark.rule("WORK-9")
@pytest.mark.parametrize("ending", ["raises", "times out", "is cancelled", "is lost"])
async def test_a_scope_learns_how_its_handler_ended_and_rolls_back_once(
    any_place: Place, ending: str
) -> None:
    """Case O-30, part b."""
    queue, handlers = await any_place.queue(), Handlers()
    log: list[str] = []
    function, request = Transaction(log, "function"), Transaction(log, "request")
    started = asyncio.Event()

    @handlers.on(Note)
    async def handle(
        _: Note,
        delivery: Delivery,
        queue: Queue,
        __: str = Depends(request),
        ___: str = Depends(function, scope="function"),
    ) -> None:
        started.set()
        if ending == "raises":
            raise ValueError
        if ending == "is lost":
            await queue.ack(delivery)
            return
        await asyncio.sleep(60)

    await queue.push(Note())
    worker = Worker(queue, handlers, timeout=0.1 if ending == "times out" else None, grace=0)
    async with running(worker):
        await started.wait()
        if ending == "is cancelled":
            worker.stop()
        await eventually(lambda: len(log) == 2)
    expected = {
        "raises": ["function rolled back: ValueError", "request rolled back: ValueError"],
        "times out": ["function rolled back: TimeoutError", "request rolled back: TimeoutError"],
        "is cancelled": ["function rolled back: CancelledError", "request rolled back: CancelledError"],
        "is lost": ["function committed", "request rolled back: StaleDelivery"],
    }
    assert log == expected[ending]


@pytest.mark.rule("WORK-9")
@pytest.mark.parametrize("raises", [False, True], ids=["after success", "after failure"])
@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError, SystemExit])
async def test_a_request_scope_that_fails_to_close_is_logged_and_changes_nothing(
    any_place: Place, raises: bool, error: type[BaseException]
) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    told: list[JobEvent] = []

    async def fails() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise error("closing failed")

    @handlers.on(Note)
    async def handle(_: Note, __: None = Depends(fails)) -> None:
        if raises:
            raise ValueError("the handler's own")

    worker = Worker(queue, handlers, concurrency=1)
    worker.listen(JobEvent, told.append)
    ids = await queue.push_many([Note(), Note()])
    with logged() as log:
        async with running(worker) as task:
            await eventually(lambda: closings(log.messages(level=logging.ERROR)) == 2)
            await all_settled(queue)
            assert not task.done()
            assert worker.health().ok
    assert all(any(job_id in text for text in log.messages() if "closing" in text) for job_id in ids)
    assert all("scope.note" in text and "'default'" in text for text in log.messages() if "closing" in text)
    assert [failed.error for failed in await queue.failed.list()] == ["the handler's own"] * (2 * raises)
    assert len(told) == 2


@pytest.mark.rule("WORK-9")
@pytest.mark.parametrize("scope", ["function", "request"])
async def test_a_scope_that_never_closes_is_given_up_after_its_deadline(
    memory: Place, scope: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aqueue.handling, "LONGEST_CLOSING", 0.2)
    queue, handlers = await memory.queue(), Handlers()

    async def hangs() -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    @handlers.on(Note)
    async def handle(_: Note, __: None = Depends(hangs, scope=scope)) -> None: ...

    await queue.push_many([Note(), Note()])
    with logged() as log:
        assert await Worker(queue, handlers, concurrency=1).run_all() == 2
    kinds = [failed.error_type for failed in await queue.failed.list()]
    assert kinds == (["TimeoutError"] * 2 if scope == "function" else [])
    assert closings(log.messages(level=logging.ERROR)) == (2 if scope == "request" else 0)


@pytest.mark.rule("WORK-9", "WORK-8")
@pytest.mark.parametrize("fails", [False, True], ids=["closes", "fails to close"])
async def test_a_scope_closes_while_a_settlement_error_propagates_and_never_replaces_it(
    memory: Place, fails: bool
) -> None:
    queue, store = await memory.broken()
    log: list[str] = []
    handlers, request = Handlers(), Transaction(log, "request")

    async def closes_badly() -> AsyncIterator[None]:
        try:
            yield
        finally:
            if fails:
                raise LookupError("closing failed")

    @handlers.on(Note)
    async def handle(_: Note, __: str = Depends(request), ___: None = Depends(closes_badly)) -> None: ...

    await queue.push(Note())
    store.lose_reply("ack", times=1)
    with logged() as messages, pytest.raises(OutcomeUnknown):
        await Worker(queue, handlers).run_one()
    assert log in (["request rolled back: OutcomeUnknown"], ["request rolled back: LookupError"])
    assert closings(messages.messages(level=logging.ERROR)) == fails


@pytest.mark.rule("WORK-9", "STOP-2")
async def test_a_scope_closes_although_the_whole_task_is_cancelled(any_place: Place) -> None:
    queue, handlers, log, started = await any_place.queue(), Handlers(), [], asyncio.Event()

    async def slow_to_close() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0.05)
            log.append("closed")

    @handlers.on(Note)
    async def handle(_: Note, __: None = Depends(slow_to_close)) -> None:
        started.set()
        await asyncio.sleep(60)

    await queue.push(Note())
    task = asyncio.create_task(Worker(queue, handlers).run_one())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["closed"]
    assert await counts(queue) == (1, 0, 0, 0)


@pytest.mark.rule("WORK-9", "SCOPE-1")
async def test_a_scope_whose_initializer_fails_still_closes_what_it_opened(place: Place) -> None:
    queue, handlers, log = await place.queue(), Handlers(), []

    def opens(scope: RequestScope) -> None:
        scope.callback(lambda: log.append("closed"))

    def fails(_: RequestScope) -> None:
        raise LookupError("no database")

    @handlers.on(Note)
    async def handle(_: Note) -> None: ...

    await queue.push(Note())
    assert (
        await Worker(queue, handlers, scope=AppScope(initializers=[opens, fails])).run_one() is Outcome.FAILED
    )
    assert log == ["closed"]


@pytest.mark.rule("SCOPE-1")
async def test_plain_generators_are_finalised_too_and_shared_within_one_delivery(place: Place) -> None:
    queue, handlers, log = await place.queue(), Handlers(), []

    def session() -> Iterator[list[str]]:
        log.append("opened")
        yield log
        log.append("closed")

    def repository(session: list[str] = Depends(session)) -> list[str]:
        return session

    @handlers.on(Note)
    async def handle(
        note: Note, first: list[str] = Depends(session), second: list[str] = Depends(repository)
    ) -> None:
        assert first is second
        first.append(note.text)

    await queue.push_many([Note("a"), Note("b")])
    await Worker(queue, handlers, concurrency=1).run_all()
    assert log == ["opened", "a", "closed", "opened", "b", "closed"]


def closings(messages: list[str]) -> int:
    """Count the messages about a scope that didn't close well."""
    return sum("closing the scope" in message for message in messages)
