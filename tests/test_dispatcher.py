"""Events: who hears of them, in which order, what an error or a stop changes, and what is left to a queue."""

import asyncio
import functools
import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from support import fixtures
from support.fixtures import Place

from aqueue import (
    JSON,
    AppScope,
    Delivery,
    Depends,
    Dispatcher,
    Handlers,
    InvalidJob,
    InvalidQueueArgument,
    InvokeListener,
    JobFailed,
    JobReleased,
    PushManyError,
    Queue,
    RequestScope,
    Sensitive,
    StopPropagation,
    UnresolvableParameter,
    UnserializableJob,
    Unsupported,
    Worker,
    connect,
    job,
)

pytestmark = pytest.mark.rule("EVENT-1")

memory, place = fixtures.memory, fixtures.place

heard: list[object] = []


@pytest.fixture(autouse=True)
def nothing_heard() -> None:
    heard.clear()


class ShopEvent:
    """What all events of the shop extend; it carries nothing itself."""


@dataclass(frozen=True)
class OrderPlaced(ShopEvent):
    order: int
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class RushOrderPlaced(OrderPlaced):
    until: datetime = datetime(2030, 1, 1, tzinfo=UTC)


class Paid(msgspec.Struct, frozen=True):
    order: int
    cents: int = 0


@job(name="events.shipped", aliases=["events.sent"])
class Shipped:
    order: int


class HasOrder(Protocol):
    order: int


class Auditable(ABC):
    @abstractmethod
    def line(self) -> str: ...


@dataclass(frozen=True)
class Refunded(Auditable):
    order: int
    reason: str = ""

    def line(self) -> str:
        return f"refunded {self.order}"


@dataclass(frozen=True)
class SecretShared:
    token: Sensitive[str]
    with_whom: str = ""


class Ledger:
    def __init__(self) -> None:
        self.lines: list[str] = []


async def handle_all(queue: Queue, dispatcher: Dispatcher, **options: Any) -> int:
    """Run every queued listener that is due."""
    handlers = Handlers()
    handlers.add(*dispatcher.jobs)
    queues = options.pop("queues", ["default", "mails"])
    return await Worker(queue, handlers, queues=queues, **options).run_all()


# -- inline listeners ------------------------------------------------------------------------------------


async def test_inline_listeners_run_now_in_order_of_registration_sync_or_async() -> None:
    dispatcher = Dispatcher()

    @dispatcher.listen(OrderPlaced)
    async def first(event: OrderPlaced) -> None:
        await asyncio.sleep(0)
        heard.append(("first", event.order))

    @dispatcher.listen(OrderPlaced)
    def second(event: OrderPlaced) -> None:
        heard.append(("second", event.order, threading.current_thread() is threading.main_thread()))

    dispatcher.listen(OrderPlaced, lambda event: heard.append(("third", event.order)))

    await dispatcher.dispatch(OrderPlaced(7))

    assert heard == [("first", 7), ("second", 7, True), ("third", 7)]


async def test_an_event_that_nobody_hears_of_is_fine() -> None:
    await Dispatcher().dispatch(OrderPlaced(7))


async def test_a_decorated_listener_stays_what_it_was() -> None:
    dispatcher = Dispatcher()

    @dispatcher.listen(OrderPlaced, queued=True)
    @dispatcher.listen(OrderPlaced)
    async def note(event: OrderPlaced) -> int:
        return event.order

    assert await note(OrderPlaced(7)) == 7


async def test_listeners_of_a_base_an_abc_and_a_protocol_hear_of_what_is_under_them() -> None:
    dispatcher = Dispatcher()
    for kind in (object, ShopEvent, OrderPlaced, RushOrderPlaced, HasOrder, Auditable):
        dispatcher.listen(kind, lambda event, kind=kind: heard.append(kind.__name__))

    await dispatcher.dispatch(RushOrderPlaced(1))
    await dispatcher.dispatch(Paid(2))
    await dispatcher.dispatch(Refunded(3))
    await dispatcher.dispatch(SecretShared("x"))

    assert heard == [
        *("object", "ShopEvent", "OrderPlaced", "RushOrderPlaced", "HasOrder"),
        *("object", "HasOrder"),
        *("object", "HasOrder", "Auditable"),
        "object",
    ]


async def test_a_listener_registered_later_hears_of_later_events() -> None:
    dispatcher = Dispatcher()
    await dispatcher.dispatch(OrderPlaced(1))
    dispatcher.listen(ShopEvent, heard.append)

    await dispatcher.dispatch(OrderPlaced(2))

    assert heard == [OrderPlaced(2)]


async def test_an_error_reaches_whoever_dispatched_and_later_listeners_hear_nothing(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    error = ValueError("sold out")

    @dispatcher.listen(OrderPlaced, queued=True)
    async def queued_before(event: OrderPlaced) -> None: ...

    @dispatcher.listen(OrderPlaced)
    async def refuse(event: OrderPlaced) -> None:
        raise error

    dispatcher.listen(OrderPlaced, heard.append)

    with pytest.raises(ValueError, match="sold out") as raised:
        await dispatcher.dispatch(OrderPlaced(7))

    assert raised.value is error
    assert heard == []
    assert await queue.size() == 0


async def test_an_inline_listener_can_stop_the_event_for_those_after_it(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)

    @dispatcher.listen(OrderPlaced, queued=True, name="before")
    async def before(event: OrderPlaced) -> None:
        heard.append("queued before")

    @dispatcher.listen(OrderPlaced)
    async def stop(event: OrderPlaced) -> None:
        heard.append("stopping")
        raise StopPropagation

    dispatcher.listen(OrderPlaced, lambda event: heard.append("inline after"))

    @dispatcher.listen(OrderPlaced, queued=True, name="after")
    async def after(event: OrderPlaced) -> None:
        heard.append("queued after")

    await dispatcher.dispatch(OrderPlaced(7))
    await handle_all(queue, dispatcher)

    assert heard == ["stopping", "queued before"]


async def test_cancelling_a_dispatch_cancels_the_listener_that_runs() -> None:
    dispatcher = Dispatcher()
    running = asyncio.Event()

    @dispatcher.listen(OrderPlaced)
    async def wait(event: OrderPlaced) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("ended")

    dispatcher.listen(OrderPlaced, heard.append)
    dispatching = asyncio.create_task(dispatcher.dispatch(OrderPlaced(7)))
    await running.wait()

    dispatching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dispatching

    assert heard == ["ended"]


# -- what inline listeners are given ---------------------------------------------------------------------


async def test_inline_listeners_are_given_what_the_dispatchers_scope_has(memory: Place) -> None:
    queue, ledger = await memory.queue(), Ledger()
    dispatcher = Dispatcher(queue, scope=AppScope(values={Ledger: ledger}))

    @dispatcher.listen(OrderPlaced)
    async def note(event: OrderPlaced, ledger: Ledger, queue: Queue, scope: RequestScope) -> None:
        ledger.lines.append(f"{event.order} {scope.delivery.name} {queue.capabilities.system}")

    @dispatcher.listen(OrderPlaced)
    class Note:
        def __init__(self, ledger: Ledger) -> None:
            self.ledger = ledger

        def handle(self, event: OrderPlaced, *, again: Ledger) -> None:
            self.ledger.lines.append(f"class {event.order} {again is self.ledger}")

    await dispatcher.dispatch(OrderPlaced(7))

    assert ledger.lines == [f"7 {__name__}.OrderPlaced memory", "class 7 True"]


async def test_dependencies_of_one_dispatch_are_shared_and_closed_by_their_lifetimes(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)

    async def session() -> AsyncIterator[int]:
        heard.append("session opened")
        yield 5
        heard.append(f"session closed with {await queue.size()} jobs")

    async def transaction() -> AsyncIterator[int]:
        yield 6
        heard.append("committed")

    @dispatcher.listen(OrderPlaced)
    async def one(
        event: OrderPlaced, s: int = Depends(session), t: int = Depends(transaction, scope="function")
    ) -> None:
        heard.append(("one", s, t))

    @dispatcher.listen(OrderPlaced)
    async def two(event: OrderPlaced, s: int = Depends(session)) -> None:
        heard.append(("two", s))

    dispatcher.listen(OrderPlaced, one, queued=True)

    await dispatcher.dispatch(OrderPlaced(7))

    assert heard == ["session opened", ("one", 5, 6), "committed", ("two", 5), "session closed with 1 jobs"]


@pytest.mark.parametrize("lifetime", ["function", "request"])
async def test_an_error_reaches_the_dependencies_too(lifetime: Any) -> None:
    dispatcher = Dispatcher()

    async def session() -> AsyncIterator[int]:
        try:
            yield 5
        except ValueError:
            heard.append("rolled back")
            raise RuntimeError("and closing failed as well") from None

    @dispatcher.listen(OrderPlaced)
    async def refuse(event: OrderPlaced, s: int = Depends(session, scope=lifetime)) -> None:
        raise ValueError("sold out")

    with pytest.raises(ValueError, match="sold out"):
        await dispatcher.dispatch(OrderPlaced(7))

    assert heard == ["rolled back"]


@pytest.mark.parametrize("lifetime", ["function", "request"])
async def test_a_dependency_that_fails_to_close_is_an_error_of_the_dispatch(lifetime: Any) -> None:
    dispatcher = Dispatcher()

    async def session() -> AsyncIterator[int]:
        yield 5
        raise RuntimeError("not committed")

    @dispatcher.listen(OrderPlaced)
    async def note(event: OrderPlaced, s: int = Depends(session, scope=lifetime)) -> None: ...

    with pytest.raises(RuntimeError, match="not committed"):
        await dispatcher.dispatch(OrderPlaced(7))


async def test_stopping_is_no_error_to_dependencies() -> None:
    dispatcher = Dispatcher()

    async def transaction() -> AsyncIterator[int]:
        yield 5
        heard.append("committed")

    @dispatcher.listen(OrderPlaced)
    async def stop(event: OrderPlaced, t: int = Depends(transaction, scope="function")) -> None:
        raise StopPropagation

    await dispatcher.dispatch(OrderPlaced(7))

    assert heard == ["committed"]


async def test_initializers_prepare_the_scope_of_each_dispatch() -> None:
    def prepare(scope: RequestScope) -> None:
        ledger = Ledger()
        scope.add(Ledger, ledger)
        scope.callback(lambda: heard.append(ledger.lines))

    dispatcher = Dispatcher(scope=AppScope(initializers=[prepare]))

    @dispatcher.listen(OrderPlaced)
    async def note(event: OrderPlaced, ledger: Ledger) -> None:
        ledger.lines.append(str(event.order))

    await dispatcher.dispatch(OrderPlaced(1))
    await dispatcher.dispatch(OrderPlaced(2))

    assert heard == [["1"], ["2"]]


async def test_what_nothing_provides_is_found_out_before_anybody_is_told() -> None:
    dispatcher = Dispatcher()
    dispatcher.listen(OrderPlaced, heard.append)

    @dispatcher.listen(OrderPlaced)
    async def note(event: OrderPlaced, ledger: Ledger) -> None: ...

    @dispatcher.listen(Paid)
    async def delivered(event: Paid, delivery: Delivery) -> None: ...

    with pytest.raises(UnresolvableParameter, match=r"OrderPlaced.*note.*'ledger'.*Ledger"):
        await dispatcher.dispatch(OrderPlaced(7))
    with pytest.raises(UnresolvableParameter, match="Delivery"):
        await dispatcher.dispatch(Paid(7))

    assert heard == []


# -- queued listeners ------------------------------------------------------------------------------------


@pytest.mark.rule("EVENT-1", "ARG-1")
async def test_each_queued_listener_gets_a_job_of_its_own_under_its_name(place: Place) -> None:
    queue = await place.queue()
    dispatcher = Dispatcher(queue)

    @dispatcher.listen(OrderPlaced, queued=True, queue="mails", name="mails.receipt", max_attempts=4)
    async def receipt(event: OrderPlaced) -> None: ...

    @dispatcher.listen(OrderPlaced, queued=True)
    async def audit(event: OrderPlaced) -> None: ...

    await dispatcher.dispatch(OrderPlaced(7, ("tea",)))

    mail = await queue.pop(timeout=5, queues=["mails"])
    other = await queue.pop(timeout=5)
    assert mail is not None
    assert other is not None
    assert (mail.name, mail.max_attempts) == ("mails.receipt", 4)
    assert other.name == (
        f"{__name__}.test_each_queued_listener_gets_a_job_of_its_own_under_its_name.<locals>.audit"
    )
    assert mail.args == {"event": {"type": f"{__name__}.OrderPlaced", "args": {"order": 7, "items": ["tea"]}}}
    invoke = mail.job(dispatcher.jobs[0])
    assert isinstance(invoke, InvokeListener)
    assert (invoke.listener, invoke.event) == ("mails.receipt", OrderPlaced(7, ("tea",)))
    assert repr(invoke) == "<InvokeListener mails.receipt of OrderPlaced>"
    assert await queue.size() == await queue.size("mails") == 0


async def test_the_event_comes_back_as_it_was_whatever_its_class(place: Place) -> None:
    queue = await place.queue()
    dispatcher = Dispatcher(queue)
    for kind in (OrderPlaced, Paid, Shipped):
        dispatcher.listen(kind, heard.append, queued=True, name=f"hear {kind.__name__}")
    events = [
        OrderPlaced(1, ("a", "b")),
        RushOrderPlaced(2, until=datetime(2031, 5, 5, tzinfo=UTC)),
        Paid(3, 250),
        Shipped(4),
    ]

    for event in events:
        await dispatcher.dispatch(event)
    await handle_all(queue, dispatcher, concurrency=1)

    assert heard == events
    assert [type(event) for event in heard] == [type(event) for event in events]


async def test_queued_listeners_of_a_base_an_abc_and_a_protocol_get_the_event_itself(place: Place) -> None:
    queue = await place.queue()
    dispatcher = Dispatcher(queue)
    for kind in (ShopEvent, HasOrder, Auditable):
        dispatcher.listen(kind, functools.partial(_hear, kind), queued=True, name=kind.__name__)
    dispatcher.listen(Paid, lambda _: None)  # by which a Protocol's listener learns of it

    for event in (RushOrderPlaced(1), Paid(2), Refunded(3), Shipped(4)):
        await dispatcher.dispatch(event)
    await handle_all(queue, dispatcher, concurrency=1)

    assert heard == [
        *((ShopEvent, RushOrderPlaced(1)), (HasOrder, RushOrderPlaced(1))),
        *((HasOrder, Paid(2)), (HasOrder, Refunded(3)), (Auditable, Refunded(3))),
        (HasOrder, Shipped(4)),
    ]


def _hear(kind: type, event: object) -> None:
    heard.append((kind, event))


async def test_another_process_restores_subclasses_that_it_never_dispatched(memory: Place) -> None:
    queue = await memory.queue()
    web, worker = Dispatcher(queue), Dispatcher()
    for dispatcher in (web, worker):
        dispatcher.listen(ShopEvent, heard.append, queued=True, name="audit")

    await web.dispatch(RushOrderPlaced(1))
    await handle_all(queue, worker)

    assert heard == [RushOrderPlaced(1)]


async def test_events_declared_after_the_listener_travel_too(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    dispatcher.listen(ShopEvent, heard.append, queued=True, name="audit")

    @dataclass(frozen=True)
    class Restocked(ShopEvent):
        items: list[str] = field(default_factory=list)

    await dispatcher.dispatch(Restocked(["tea"]))
    await handle_all(queue, dispatcher)

    assert heard == [Restocked(["tea"])]


async def test_an_event_that_is_a_job_travels_under_its_name_and_its_older_ones(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    dispatcher.listen(Shipped, heard.append, queued=True, name="audit")
    await dispatcher.dispatch(Shipped(1))
    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    assert delivery.args["event"]["type"] == "events.shipped"

    older = json.dumps({"event": {"type": "events.sent", "args": {"order": 2}}}).encode()

    assert dispatcher.jobs[0].__aqueue_job__.restore(older).event == Shipped(2)  # type: ignore[attr-defined]  # a job has it


async def test_the_listener_is_built_and_injected_on_the_worker_once_an_attempt(place: Place) -> None:
    queue, ledger = await place.queue(), Ledger()
    dispatcher = Dispatcher(queue)
    built: list[int] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        yield "a session"

    async def session() -> AsyncIterator[str]:
        async with opened() as session:
            yield session

    @dispatcher.listen(OrderPlaced, queued=True, name="receipt", max_attempts=3)
    class SendReceipt:
        def __init__(self, ledger: Ledger, session: str = Depends(session)) -> None:
            built.append(id(self))
            self.ledger, self.session = ledger, session

        async def handle(self, event: OrderPlaced, delivery: Delivery) -> None:
            self.ledger.lines.append(f"{event.order} {self.session} {delivery.name} {delivery.attempt}")
            if delivery.attempt == 1:
                raise ConnectionError("the mail server is away")

    await dispatcher.dispatch(OrderPlaced(7))
    assert built == []
    handled = await handle_all(queue, dispatcher, scope=AppScope(values={Ledger: ledger}))

    assert handled == 2
    assert ledger.lines == ["7 a session receipt 1", "7 a session receipt 2"]
    assert len(built) == 2


async def test_a_sync_queued_listener_runs_on_a_thread(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)

    @dispatcher.listen(OrderPlaced, queued=True)
    def block(event: OrderPlaced, queue: Queue) -> None:
        heard.append((event.order, threading.current_thread() is threading.main_thread()))

    @dispatcher.listen(OrderPlaced, queued=True)
    class Block:
        def handle(self, event: OrderPlaced) -> None:
            heard.append((event.order, threading.current_thread() is threading.main_thread()))

    await dispatcher.dispatch(OrderPlaced(7))
    await handle_all(queue, dispatcher)

    assert heard == [(7, False), (7, False)]


@pytest.mark.rule("EVENT-1", "ARG-5")
async def test_a_queued_listeners_parameters_are_checked_when_the_worker_is_built(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)

    @dispatcher.listen(OrderPlaced, queued=True, name="receipt")
    async def receipt(event: OrderPlaced, ledger: Ledger) -> None: ...

    with pytest.raises(UnresolvableParameter, match=r"'receipt'.*receipt\(\).*'ledger'.*Ledger"):
        Worker(queue, dispatcher.jobs)


async def test_a_queued_listener_cannot_stop_propagation(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)

    @dispatcher.listen(OrderPlaced, queued=True, name="stop")
    async def stop(event: OrderPlaced) -> None:
        raise StopPropagation

    dispatcher.listen(OrderPlaced, heard.append, queued=True, name="after")

    await dispatcher.dispatch(OrderPlaced(7))
    await handle_all(queue, dispatcher)

    assert heard == [OrderPlaced(7)]
    assert [each.name for each in await queue.failed.list()] == ["stop"]


@pytest.mark.rule("EVENT-1", "ARG-5")
async def test_a_worker_that_lacks_the_listener_treats_it_as_an_unhandled_job(memory: Place) -> None:
    queue = await memory.queue()
    web, older = Dispatcher(queue), Dispatcher(queue)
    web.listen(OrderPlaced, heard.append, queued=True, name="new", max_attempts=2)
    older.listen(OrderPlaced, heard.append, queued=True, name="old")
    released: list[JobReleased] = []

    await web.dispatch(OrderPlaced(7))
    worker = Worker(queue, older.jobs)
    worker.listen(JobReleased, released.append)
    await worker.run_all()

    assert [each.name for each in released] == ["new"]
    (failed,) = await queue.failed.list()
    assert (failed.name, failed.error_type, failed.attempts) == ("new", "aqueue.errors.UnhandledJob", 2)
    assert failed.args is not None
    assert failed.args["event"]["args"]["order"] == 7
    assert await queue.failed.retry(failed.id)
    await handle_all(queue, web)
    assert heard == [OrderPlaced(7)]


@pytest.mark.rule("EVENT-1", "ARG-5")
@pytest.mark.parametrize(
    "event",
    [
        {"type": "no.such.event", "args": {"order": 7}},
        {"type": f"{__name__}.Paid", "args": {"order": 7}},
        {"type": f"{__name__}.OrderPlaced", "args": {"order": "7"}},
        {"type": f"{__name__}.OrderPlaced", "args": {"order": 7, "colour": "red"}},
        {"type": f"{__name__}.OrderPlaced", "args": {"order": 7}, "more": 1},
        {"type": 7, "args": {}},
        [],
    ],
    ids=["unknown", "of another class", "wrong type", "extra", "more beside it", "no name", "no object"],
)
async def test_an_event_that_the_worker_cannot_restore_fails_as_a_job_would(
    memory: Place, event: Any
) -> None:
    @job(name="restored")
    class FromElsewhere:
        event: JSON

    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    dispatcher.listen(OrderPlaced, heard.append, queued=True, name="restored")
    dispatcher.listen(Paid, heard.append)

    await queue.push(FromElsewhere(event))
    await handle_all(queue, dispatcher)

    (failed,) = await queue.failed.list()
    assert failed.error_type == "aqueue.errors.JobReconstructionError"
    assert "'restored' can't be restored: argument event" in failed.error
    assert heard == []


async def test_sensitive_fields_stay_hidden_on_every_way(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    failures: list[JobFailed] = []

    @dispatcher.listen(object, queued=True, name="audit")
    async def audit(event: object) -> None:
        raise ValueError("no")

    await dispatcher.dispatch(SecretShared("s3cret", "bob"))
    worker = Worker(queue, dispatcher.jobs)
    worker.listen(JobFailed, failures.append)
    await worker.run_all()

    assert failures[0].args == {
        "event": {
            "type": f"{__name__}.SecretShared",
            "args": {"token": "[redacted]", "with_whom": "bob"},
        }
    }
    delivery = await _pushed_again(queue)
    assert "event" in delivery.metadata["aqueue.sensitive"]


async def _pushed_again(queue: Queue) -> Delivery:
    (failed,) = await queue.failed.list()
    await queue.failed.retry(failed.id)
    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    return delivery


# -- what is refused -------------------------------------------------------------------------------------


class HasTags:
    @dataclass(frozen=True)
    class Tagged:
        tags: set[str]


@dataclass
class Changing:
    order: int


@dataclass(frozen=True)
class Computed:
    order: int
    twice: int = field(init=False, default=0)


class Plain:
    def __init__(self, order: int) -> None:
        self.order = order


class Loose(msgspec.Struct):
    place: Path


class Colour(str):
    pass


@pytest.mark.rule("EVENT-1", "ARG-2")
@pytest.mark.parametrize(
    ("event", "says"),
    [
        (HasTags.Tagged, r"Tagged\.tags: set\[str\] can't be restored"),
        (Loose, r"Loose\.place: Path can't be restored"),
        (Changing, "Changing is a dataclass that isn't frozen"),
        (Computed, "field 'twice' of Computed has init=False"),
        (Plain, "Plain declares no fields: make it a frozen dataclass"),
        (Colour, "Colour declares no fields"),
        (dict, "dict declares no fields"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_event_that_can_not_travel_is_refused_at_registration(event: type, says: str) -> None:
    with pytest.raises(InvalidJob, match=rf"listener 'audit' can't be queued: {says}"):
        Dispatcher().listen(event, heard.append, queued=True, name="audit")


@pytest.mark.rule("EVENT-1", "ARG-2")
async def test_an_event_under_a_base_that_can_not_travel_is_refused_before_anybody_is_told(
    memory: Place,
) -> None:
    dispatcher = Dispatcher(await memory.queue())
    dispatcher.listen(object, heard.append)
    dispatcher.listen(object, heard.append, queued=True, name="audit")

    for unfit in (HasTags.Tagged({"a"}), Plain(7), "a str", ShopEvent()):
        with pytest.raises(InvalidJob, match=f"listener 'audit' can't be queued: {type(unfit).__name__}"):
            await dispatcher.dispatch(unfit)

    assert heard == []


@pytest.mark.rule("EVENT-1", "ARG-3")
async def test_an_unfit_value_is_refused_before_anybody_is_told(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    dispatcher.listen(Paid, heard.append)
    dispatcher.listen(Paid, heard.append, queued=True, name="audit")

    with pytest.raises(UnserializableJob, match=r"'audit'.*event\.cents: is outside"):
        await dispatcher.dispatch(Paid(1, 2**70))

    assert heard == []
    assert await queue.size() == 0


@pytest.mark.rule("EVENT-1", "ARG-1")
async def test_an_event_that_its_constructor_would_change_is_refused(memory: Place) -> None:
    @dataclass(frozen=True)
    class Growing:
        size: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.size + 1)

    dispatcher = Dispatcher(await memory.queue())
    dispatcher.listen(Growing, heard.append, queued=True, name="audit")

    with pytest.raises(UnserializableJob, match=r"Growing changes each time it is built"):
        await dispatcher.dispatch(Growing(1))


async def test_a_queued_listener_needs_a_queue_and_nobody_is_told_without() -> None:
    dispatcher = Dispatcher()
    dispatcher.listen(OrderPlaced, heard.append)
    dispatcher.listen(OrderPlaced, heard.append, queued=True, name="audit")

    with pytest.raises(InvalidQueueArgument, match=r"'audit'.*need a queue.*Dispatcher\(queue\)"):
        await dispatcher.dispatch(OrderPlaced(7))

    assert heard == []


def test_what_is_no_listener_is_refused() -> None:
    dispatcher = Dispatcher()

    class WithoutHandle: ...

    class HandlesNothing:
        def handle(self) -> None: ...

    async def streams(event: object) -> AsyncIterator[int]:
        yield 1

    def takes_nothing() -> None: ...

    def by_name_only(*, event: object) -> None: ...

    unfit: tuple[Any, ...] = (WithoutHandle, HandlesNothing, streams, takes_nothing, by_name_only, 7)
    for each in unfit:
        with pytest.raises(InvalidJob, match=r"is not a (listener|handler)|is a generator"):
            dispatcher.listen(OrderPlaced, each)
    for no_class in (OrderPlaced(1), "OrderPlaced", None):
        with pytest.raises(InvalidJob, match="takes a class of event"):
            dispatcher.listen(no_class, heard.append)  # type: ignore[call-overload]  # that is the test


async def test_a_class_is_no_event() -> None:
    with pytest.raises(InvalidJob, match="not the class OrderPlaced itself"):
        await Dispatcher().dispatch(OrderPlaced)


def test_two_queued_listeners_need_two_names() -> None:
    dispatcher = Dispatcher()
    dispatcher.listen(OrderPlaced, heard.append, queued=True, name="audit")

    with pytest.raises(InvalidJob, match="two queued listeners are called 'audit'"):
        dispatcher.listen(Paid, heard.append, queued=True, name="audit")
    with pytest.raises(InvalidJob, match="no name of its own"):
        dispatcher.listen(Paid, lambda _: None, queued=True)
    with pytest.raises(InvalidJob, match="no name of its own"):
        dispatcher.listen(Paid, functools.partial(_hear, Paid), queued=True)

    assert [each.listener for each in dispatcher.jobs] == ["audit"]


@pytest.mark.parametrize("option", [{"queue": "mails"}, {"name": "x"}, {"max_attempts": 3}, {"timeout": 5}])
def test_only_queued_listeners_have_options(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueueArgument, match="queued=True"):
        Dispatcher().listen(OrderPlaced, heard.append, **option)


@pytest.mark.parametrize(
    "option", [{"queue": "no spaces"}, {"max_attempts": -1}, {"timeout": 0}, {"middleware": [7]}]
)
def test_a_queued_listeners_options_are_checked(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueueArgument):
        Dispatcher().listen(OrderPlaced, heard.append, queued=True, name="audit", **option)


# -- inside a transaction, and where pushes fail ---------------------------------------------------------


@pytest.mark.rule("EVENT-1", "PUSH-8")
async def test_queued_listeners_are_told_with_the_callers_commit_or_not_at_all(tmp_path: Path) -> None:
    async with connect(f"sqlite:///{tmp_path}/shop.db") as queue:
        dispatcher = Dispatcher(queue)
        for name in ("mail", "audit"):
            dispatcher.listen(OrderPlaced, heard.append, queued=True, name=name)
        database = sqlite3.connect(tmp_path / "shop.db")

        database.execute("BEGIN")
        await dispatcher.dispatch(OrderPlaced(1), connection=database)
        database.rollback()
        rolled_back = await queue.size()
        database.execute("BEGIN")
        await dispatcher.dispatch(OrderPlaced(2), connection=database)
        uncommitted = await queue.size()
        database.commit()
        database.close()

        assert (rolled_back, uncommitted) == (0, 0)
        await handle_all(queue, dispatcher)
        assert heard == [OrderPlaced(2)] * 2


@pytest.mark.rule("EVENT-1", "PUSH-8")
async def test_a_transaction_is_refused_where_the_store_knows_none(memory: Place) -> None:
    queue = await memory.queue()
    dispatcher = Dispatcher(queue)
    dispatcher.listen(OrderPlaced, heard.append, queued=True, name="audit")

    with pytest.raises(Unsupported, match="connection="):
        await dispatcher.dispatch(OrderPlaced(7), connection=object())


async def test_queued_listeners_run_inside_dispatch_on_inline() -> None:
    dispatcher_of_worker = Dispatcher()
    dispatcher_of_worker.listen(OrderPlaced, heard.append, queued=True, name="audit")

    @dispatcher_of_worker.listen(OrderPlaced, queued=True, name="fail")
    async def fail(event: OrderPlaced) -> None:
        raise ValueError("no")

    async with connect("inline://", handlers=dispatcher_of_worker.jobs) as queue:
        dispatcher = Dispatcher(queue)
        for name in ("audit", "fail"):
            dispatcher.listen(OrderPlaced, heard.append, queued=True, name=name)

        with pytest.raises(PushManyError) as raised:
            await dispatcher.dispatch(OrderPlaced(7))

    assert heard == [OrderPlaced(7)]
    assert [type(outcome) for outcome in raised.value.outcomes] == [str, ValueError]
