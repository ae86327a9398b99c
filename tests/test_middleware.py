"""Functions around the handler (MID-1)."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from aqueue.contract.envelope import Envelope
from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument
from aqueue.handlers import Handlers
from aqueue.jobs import job
from aqueue.middleware import CallNext, Middleware, chain
from aqueue.port import Reserved
from aqueue.routes import Router
from aqueue.scope import AppScope

pytestmark = pytest.mark.rule("MID-1")


def a_delivery(attempt: int = 1) -> Delivery:
    envelope = Envelope(1, "0" * 32, "job", 0.0, msgspec.Raw(b"{}"))
    return Delivery(Reserved(envelope.id, "default", b"", receipt=None, attempt=attempt), envelope)


def logs(log: list[str], name: str) -> Middleware:
    async def middleware(delivery: Delivery, call_next: CallNext) -> object:
        log.append(f"before {name}")
        answer = await call_next(delivery)
        log.append(f"after {name}")
        return answer

    return middleware


def handler(log: list[str]) -> CallNext:
    async def handle(delivery: Delivery) -> str:
        log.append("handle")
        return "answer"

    return handle


async def through(middlewares: list[Middleware], handle: CallNext) -> object:
    around = chain(middlewares)
    assert around is not None
    return await around(a_delivery(), handle)


async def test_the_first_middleware_is_outermost_and_the_answer_passes_through_all() -> None:
    log: list[str] = []

    answer = await through([logs(log, "a"), logs(log, "b"), logs(log, "c")], handler(log))

    assert answer == "answer"
    assert log == ["before a", "before b", "before c", "handle", "after c", "after b", "after a"]


def test_no_middleware_is_no_chain() -> None:
    assert chain([]) is None


async def test_a_middleware_that_does_not_call_on_keeps_the_handler_from_running() -> None:
    log: list[str] = []

    async def stop(delivery: Delivery, call_next: CallNext) -> None:
        log.append("stopped")

    await through([logs(log, "a"), stop], handler(log))

    assert log == ["before a", "stopped", "after a"]


async def test_an_error_passes_through_and_may_be_caught_outside() -> None:
    log: list[str] = []

    async def catch(delivery: Delivery, call_next: CallNext) -> None:
        try:
            await call_next(delivery)
        except LookupError:
            log.append("caught")

    async def fail(delivery: Delivery, call_next: CallNext) -> None:
        raise LookupError

    await through([catch, logs(log, "b"), fail], handler(log))

    assert log == ["before b", "caught"]


async def test_a_middleware_may_call_on_twice_and_hand_on_another_delivery() -> None:
    attempts: list[int] = []

    async def twice(delivery: Delivery, call_next: CallNext) -> None:
        await call_next(delivery)
        await call_next(a_delivery(attempt=2))

    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)

    log: list[str] = []
    await through([twice, logs(log, "b")], handle)

    assert attempts == [1, 2]
    assert log == ["before b", "after b"] * 2


async def test_one_chain_serves_many_deliveries_at_once() -> None:
    around = chain([logs([], "a"), logs([], "b")])
    assert around is not None

    def answering(value: int) -> Callable[[Delivery], Awaitable[int]]:
        async def handle(delivery: Delivery) -> int:
            return value

        return handle

    runs = [around(a_delivery(), answering(n)) for n in range(5)]

    assert [await run for run in reversed(runs)] == [4, 3, 2, 1, 0]


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidQueueArgument, match="middleware"):
        chain(["audit"])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(InvalidQueueArgument, match="middleware"):
        Router(Handlers(), AppScope(), {}, [None])  # type: ignore[list-item]  # likewise


async def test_a_workers_middleware_is_around_the_jobs_own() -> None:
    log: list[str] = []

    @job(name="audited", middleware=[logs(log, "job a"), logs(log, "job b")])
    class Audited:
        async def handle(self) -> None: ...

    @job(name="plain")
    class Plain:
        async def handle(self) -> None: ...

    handlers = Handlers.of([Audited, Plain])
    bare = Router(handlers, AppScope(), {})
    worker = Router(handlers, AppScope(), {}, [logs(log, "worker")])

    around = worker.resolve("audited", "default").around
    assert around is not None
    await around(a_delivery(), handler(log))

    assert log[:4] == ["before worker", "before job a", "before job b", "handle"]
    assert worker.resolve("plain", "default").around is not None
    assert bare.resolve("plain", "default").around is None
