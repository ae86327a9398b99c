"""What a type checker says about the public surface. Each `type: ignore` proves an error; never imported.

Checked wherever mypy runs over `tests`. `jobs.py` beside it has what `@job` itself accepts and refuses.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Protocol, assert_type

from aqueue import (
    AppScope,
    Backoff,
    CallNext,
    Delivery,
    Depends,
    FailedJob,
    FailedJobs,
    Finding,
    Handlers,
    Health,
    JobEvent,
    JobFailed,
    JobSettlementLost,
    JobSucceeded,
    Keyring,
    KeyUse,
    Outcome,
    Queue,
    QueueStats,
    RequestScope,
    Retry,
    Settlement,
    StaleDelivery,
    Why,
    Worker,
    connect,
    connect_from_env,
    job,
)


class Mailer:
    pass


class HasOrder(Protocol):
    order: int


def get_mailer() -> Mailer:
    return Mailer()


@job
class Ship:
    order: int

    async def handle(self, mailer: Mailer) -> None:
        assert_type(self.order, int)


@job(max_attempts=3, backoff=Backoff.exponential(1, cap=60))
async def resize(image: int, width: int = 640, *, mailer: Mailer = Depends(get_mailer)) -> None: ...


# Connecting.
assert_type(connect("memory://"), Queue)
assert_type(connect("sqlite:///jobs.db", lease=30, keep_failed=timedelta(days=1), failed="memory://f"), Queue)
assert_type(connect("memory://", keyring=Keyring(active="a", keys={"a": b"0" * 32, "b": "1" * 32})), Queue)
assert_type(connect("memory://", accept_unsigned=datetime(2030, 1, 1, tzinfo=UTC)), Queue)
assert_type(Keyring.parse("a=…", encrypt=True), Keyring)
assert_type(connect_from_env("orders"), Queue)
connect()  # type: ignore[call-arg]  # the URL is missing
connect("memory://", lease="60")  # type: ignore[arg-type]  # seconds
connect("memory://", leese=60)  # type: ignore[call-arg]  # no such option
Backoff.exponential(1)  # type: ignore[call-arg]  # the cap is not optional


async def pushing(queue: Queue) -> None:
    async with queue as opened:
        assert_type(opened, Queue)
    assert_type(await queue.push(Ship(1), delay=timedelta(seconds=3)), str)
    assert_type(await queue.push(resize.job(1, width=2), at=datetime.now(UTC), queue="images"), str)
    assert_type(await queue.push_many([Ship(1), resize.job(2)], max_attempts=3), list[str])
    await queue.push(Ship(1), delay="3")  # type: ignore[arg-type]  # a number or a timedelta
    await queue.push(Ship(1), at="tomorrow")  # type: ignore[arg-type]  # a datetime
    await queue.push_many(Ship(1))  # type: ignore[arg-type]  # many jobs


async def counting_keys(queue: Queue) -> None:
    assert_type(await queue.keys.inventory(["high"]), dict[str | None, KeyUse])
    assert_type(await queue.doctor.examine(["high"]), list[Finding])
    assert_type(await queue.why("0" * 32, queues=["high"]), Why)
    await queue.keys.retire("2026-05")
    await queue.keys.retire(5)  # type: ignore[arg-type]  # a key's id, or None


async def popping(queue: Queue) -> None:
    delivery = await queue.pop(timeout=5, queues=["high", "default"])
    assert_type(delivery, Delivery | None)
    await queue.ack(delivery)  # type: ignore[arg-type]  # there may be none
    assert delivery is not None
    assert_type(await queue.pop_many(50), list[Delivery])

    assert_type(delivery.job(Ship), Ship)
    assert_type(delivery.job(Ship).order, int)
    assert_type(delivery.args, dict[str, Any])
    assert_type(delivery.attempt, int)
    assert_type(delivery.max_attempts, int | None)
    assert_type(delivery.pushed_at, datetime)
    delivery.attempt = 2  # type: ignore[misc]  # a record of the past

    await queue.release(delivery, delay=timedelta(minutes=1), counted=False)
    await queue.fail(delivery, reason="no such user")
    await queue.extend(delivery)
    assert_type(await queue.size("emails"), int)
    assert_type(await queue.stats(), QueueStats)
    assert_type((await queue.stats()).oldest_age, float | None)
    assert_type(await queue.clear("emails"), int)


async def failed(queue: Queue) -> None:
    assert_type(queue.failed, FailedJobs)
    assert_type(await queue.failed.list(queue="emails", limit=10), list[FailedJob])
    assert_type(await queue.failed.get("id"), FailedJob | None)
    assert_type(await queue.failed.retry("id"), bool)
    assert_type(await queue.failed.retry_all(job="ship"), int)
    assert_type(await queue.failed.purge(older_than=timedelta(days=30)), int)


# Handlers keep their own types.
handlers = Handlers()
handlers.add(Ship, resize)


@handlers.on(Ship)
async def ship(order: Ship, mailer: Annotated[Mailer, Depends(get_mailer)]) -> int:
    return order.order


@handlers.on(HasOrder, queue="ledger")
class Record:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, order: HasOrder) -> None: ...


assert_type(Record(Mailer()).mailer, Mailer)
assert_type(handlers.on(Ship, Record, queue="other"), type[Record])
handlers.on(Ship, "not callable")  # type: ignore[call-overload]  # a function or a class


async def shipped(order: Ship) -> int:
    return await ship(order, Mailer())


# Middleware.
async def timed(delivery: Delivery, call_next: CallNext) -> object:
    return await call_next(delivery)


async def not_middleware(delivery: Delivery) -> object:
    return delivery


def not_a_backoff(attempt: str) -> float:
    return 0.0


async def prepare(scope: RequestScope) -> None:
    scope.add(Mailer, Mailer())
    assert_type(await scope.get(Mailer), Mailer)


async def working(queue: Queue) -> None:
    worker = Worker(
        queue,
        handlers,
        queues=["high", "default"],
        concurrency=100,
        backoff=lambda attempt: attempt * 2.0,
        timeout=timedelta(seconds=3),
        scope=AppScope(values={Mailer: Mailer()}, initializers=[prepare]),
        middleware=[timed],
        trace="parent",
    )
    Worker(queue, [Ship, resize])
    Worker(queue, handlers, on_outage="panic")  # type: ignore[arg-type]  # resume or stop
    Worker(queue, handlers, middleware=[not_middleware])  # type: ignore[list-item]  # it calls on to nothing
    Worker(queue, handlers, backoff=not_a_backoff)  # type: ignore[arg-type]  # of the attempt's number
    Worker(queue, handlers, retries=3)  # type: ignore[call-arg]  # no such option

    await worker.run()
    assert_type(await worker.run_one(), Outcome | None)
    assert_type(await worker.run_all(), int)
    assert_type(worker.health(), Health)
    assert_type(worker.health().last_claim, datetime | None)
    worker.stop()


# A listener is given the event it asked for.
def on_success(event: JobSucceeded) -> None: ...


async def on_failure(event: JobFailed) -> None:
    assert_type(event.reason, str)


def on_any(event: JobEvent) -> None: ...


def on_lost(event: JobSettlementLost) -> None:
    assert_type(event.operation, Settlement)
    assert_type(event.stale, StaleDelivery)


def listening(worker: Worker) -> None:
    worker.listen(JobSucceeded, on_success)
    worker.listen(JobFailed, on_failure)
    worker.listen(JobEvent, on_any)
    worker.listen(JobFailed, on_any)
    worker.listen(JobSettlementLost, on_lost)
    worker.listen(JobFailed, on_success)  # type: ignore[arg-type]  # another event
    worker.listen(JobFailed, lambda event: event.reason)
    worker.listen(int, print)  # type: ignore[type-var]  # no event


def signals() -> None:
    assert_type(Retry(after=3).after, float | None)
    Retry("soon")  # type: ignore[arg-type]  # seconds
