"""Which handler answers which job, and how it is called (TOPIC-2, ARG-5, WORK-11)."""

import abc
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

import anyio.to_thread
import msgspec
import pytest

from aqueue.contract.envelope import Envelope
from aqueue.delivery import Delivery
from aqueue.dependencies import Depends
from aqueue.errors import (
    InvalidJob,
    InvalidQueueArgument,
    JobReconstructionError,
    UnhandledJob,
    UnresolvableParameter,
)
from aqueue.handlers import Handlers
from aqueue.jobs import job
from aqueue.port import Reserved
from aqueue.routes import Router
from aqueue.scope import AppScope, Builtins

log: list[object] = []


@pytest.fixture(autouse=True)
def _empty_log() -> Iterator[None]:
    log.clear()
    yield
    log.clear()


class Mailer:
    """A service found by its type."""


MAILER = Mailer()
APP = AppScope({Mailer: MAILER})


def get_prefix() -> str:
    return "from Depends"


@job(name="greet", aliases=["salute"])
class Greet:
    who: str

    async def handle(self, mailer: Mailer) -> str:
        log.append((self.who, mailer))
        return "greeted"


@job(name="resize")
async def resize(image_id: int, width: int = 640, *, prefix: str = Depends(get_prefix)) -> None:
    log.append((image_id, width, prefix))


@job(name="plain")
async def plain(n: int, *, flag: bool = True) -> None:
    log.append((n, flag))


class Event:
    """A base class of events."""


class Billed(abc.ABC):
    """Implemented by registration, not by inheritance."""

    @abc.abstractmethod
    def bill(self) -> None: ...


class HasOrder(Protocol):
    order_id: int


@job(name="placed")
class OrderPlaced(Event):
    order_id: int


@job(name="shipped")
class OrderShipped(OrderPlaced):
    carrier: str = "post"


@job(name="paid")
class InvoicePaid:
    invoice: int


Billed.register(InvoicePaid)


def a_router(
    handlers: Handlers | list[object], app: AppScope = APP, builtins: Builtins | None = None
) -> Router:
    return Router(Handlers.of(handlers), app, builtins or {})


async def deliver(router: Router, name: str, args: bytes = b"{}", queue: str = "default") -> object:
    """Run one delivery as a runner does, without settling anything."""
    envelope = Envelope(1, "0" * 32, name, 0.0, msgspec.Raw(args))
    delivery = Delivery(Reserved(envelope.id, queue, b"", receipt=None, attempt=1), envelope)
    scope = APP.begin(delivery, {Delivery: lambda given: given})
    route = router.resolve(name, queue)
    answer = await route.call(route.restore(args), scope, anyio.to_thread.run_sync)
    await scope.close_function_scope(None)
    await scope.close(None)
    return answer


# The kinds of handlers


@pytest.mark.rule("SCOPE-1")
async def test_a_job_handles_itself_with_parameters_from_the_scope() -> None:
    assert await deliver(a_router([Greet]), "greet", b'{"who": "Ann"}') == "greeted"
    assert log == [("Ann", MAILER)]


async def test_an_older_name_reaches_the_same_handler() -> None:
    router = a_router([Greet])

    await deliver(router, "salute", b'{"who": "Bob"}')

    assert log == [("Bob", MAILER)]


async def test_a_function_job_gets_its_payload_and_what_is_injected() -> None:
    router = a_router([resize, plain])

    await deliver(router, "resize", b'{"image_id": 1, "width": 5}')
    await deliver(router, "resize", b'{"image_id": 2}')
    await deliver(router, "plain", b'{"n": 3, "flag": false}')

    assert log == [(1, 5, "from Depends"), (2, 640, "from Depends"), (3, False)]


async def test_a_function_handles_a_class_of_jobs() -> None:
    handlers = Handlers()

    @handlers.on(InvoicePaid)
    async def record(paid: InvoicePaid, mailer: Mailer) -> None:
        log.append((paid, mailer))

    await deliver(a_router(handlers), "paid", b'{"invoice": 7}')

    assert log == [(InvoicePaid(7), MAILER)]
    assert record.__name__ == "record"


async def test_a_handler_class_is_built_for_each_delivery_from_the_scope() -> None:
    class Record:
        def __init__(self, mailer: Mailer, prefix: str = Depends(get_prefix)) -> None:
            self.given = (mailer, prefix)

        async def handle(self, paid: InvoicePaid, delivery: Delivery) -> object:
            return self, self.given, paid, delivery.name

    handlers = Handlers()
    assert handlers.on(InvoicePaid, Record) is Record
    router = a_router(handlers, builtins={Delivery: lambda given: given})
    first: Any = await deliver(router, "paid", b'{"invoice": 1}')
    second: Any = await deliver(router, "paid", b'{"invoice": 1}')

    assert first[1:] == ((MAILER, "from Depends"), InvoicePaid(1), "paid")
    assert first[0] is not second[0]


class Counter:
    async def __call__(self, paid: InvoicePaid, mailer: Mailer) -> str:
        return f"object {paid.invoice}"


async def _partial(prefix: str, paid: InvoicePaid, suffix: str, *, mailer: Mailer) -> str:
    return f"{prefix} {paid.invoice}{suffix}"


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (Counter(), "object 1"),
        (functools.partial(_partial, "partial", suffix="!"), "partial 1!"),
    ],
)
async def test_callable_objects_and_partials_are_handlers(
    handler: Callable[..., object], answer: str
) -> None:
    handlers = Handlers()
    handlers.on(InvoicePaid, handler)

    assert await deliver(a_router(handlers), "paid", b'{"invoice": 1}') == answer


# Plain functions


def _thread_of(paid: InvoicePaid) -> int:
    return threading.get_ident()


class ThreadOf:
    def __init__(self, mailer: Mailer) -> None:
        self.built_in = threading.get_ident()

    def handle(self, paid: InvoicePaid) -> int:
        assert self.built_in != threading.get_ident()
        return threading.get_ident()


@pytest.mark.rule("WORK-11")
@pytest.mark.parametrize("handler", [_thread_of, ThreadOf, functools.partial(_thread_of)])
async def test_a_plain_function_is_run_where_the_runner_says(handler: Callable[..., object]) -> None:
    handlers = Handlers()
    handlers.on(InvoicePaid, handler)
    router = a_router(handlers)

    assert router.resolve("paid", "default").is_sync
    assert await deliver(router, "paid", b'{"invoice": 1}') != threading.get_ident()


@pytest.mark.rule("WORK-11")
async def test_the_parameters_of_a_plain_function_are_resolved_on_the_event_loop() -> None:
    async def where() -> int:
        return threading.get_ident()

    def handle(paid: InvoicePaid, resolved_in: int = Depends(where)) -> bool:
        return resolved_in != threading.get_ident()

    handlers = Handlers()
    handlers.on(InvoicePaid, handle)

    assert await deliver(a_router(handlers), "paid", b'{"invoice": 1}')


async def test_a_coroutine_handed_back_by_a_plain_function_is_awaited() -> None:
    async def inner(paid: InvoicePaid) -> int:
        return paid.invoice

    handlers = Handlers()

    def outer(paid: InvoicePaid) -> object:
        return inner(paid)

    handlers.on(InvoicePaid, outer)

    assert await deliver(a_router(handlers), "paid", b'{"invoice": 9}') == 9


# Who answers


async def _named(handlers: Handlers, *entries: tuple[type, str | None, str]) -> None:
    for target, queue, name in entries:

        async def handle(event: object, name: str = name) -> str:
            return name

        handlers.on(target, handle, queue=queue)


@pytest.mark.rule("TOPIC-2")
@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            [(HasOrder, "protocol"), (Event, "base"), (OrderPlaced, "parent"), (OrderShipped, "exact")],
            "exact",
        ),
        ([(HasOrder, "protocol"), (Event, "base"), (OrderPlaced, "parent")], "parent"),
        ([(HasOrder, "protocol"), (Event, "base")], "base"),
        ([(HasOrder, "protocol"), (Billed, "unrelated")], "protocol"),
    ],
)
async def test_the_nearest_handler_answers(entries: list[tuple[type, str]], expected: str) -> None:
    handlers = Handlers()
    await _named(handlers, *((target, None, name) for target, name in entries))

    args = b'{"order_id": 1, "carrier": "ship"}'
    assert await deliver(a_router(handlers), "shipped", args) == expected


@pytest.mark.rule("TOPIC-2")
async def test_a_class_registered_with_an_abc_is_answered_by_its_handler() -> None:
    handlers = Handlers()
    await _named(handlers, (Billed, None, "abc"))

    assert await deliver(a_router(handlers), "paid", b'{"invoice": 1}') == "abc"


@pytest.mark.rule("TOPIC-2")
async def test_a_handler_for_a_queue_wins_there_and_only_there() -> None:
    handlers = Handlers()
    await _named(
        handlers, (OrderPlaced, None, "general"), (Event, "email", "email"), (HasOrder, "audit", "audit")
    )
    router = a_router(handlers)

    args = b'{"order_id": 1}'
    assert await deliver(router, "placed", args) == "general"
    assert await deliver(router, "placed", args, queue="email") == "email"
    assert await deliver(router, "placed", args, queue="audit") == "audit"


@pytest.mark.rule("TOPIC-2", "ARG-5")
async def test_a_job_handled_on_one_queue_alone_is_unhandled_elsewhere() -> None:
    handlers = Handlers()
    await _named(handlers, (OrderPlaced, "email", "email"))
    router = a_router(handlers)

    with pytest.raises(UnhandledJob, match="'placed' on queue 'default'"):
        router.resolve("placed", "default")


@pytest.mark.rule("TOPIC-2")
async def test_a_job_that_handles_itself_also_handles_its_subclasses() -> None:
    @job(name="parent")
    class Parent:
        async def handle(self) -> str:
            return "parent"

    @job(name="heir")
    class Heir(Parent):
        pass

    @job(name="own-way")
    class OwnWay(Parent):
        async def handle(self) -> str:
            return "own way"

    router = a_router([Parent])

    assert await deliver(router, "heir") == "parent"
    assert await deliver(router, "own-way") == "own way"


@pytest.mark.rule("TOPIC-2")
async def test_a_class_declared_after_the_worker_was_built_is_found_at_first_sight() -> None:
    class Late(Protocol):
        late_field: int

    handlers = Handlers()
    await _named(handlers, (Late, None, "late"))
    router = a_router(handlers)
    with pytest.raises(UnhandledJob):
        router.resolve("late", "default")

    @job(name="late")
    class Latecomer:
        late_field: int

    assert Latecomer(1).late_field == 1
    assert await deliver(router, "late", b'{"late_field": 1}') == "late"


@pytest.mark.rule("TOPIC-2")
async def test_a_handler_is_registered_for_a_protocol_or_an_abc_without_ado() -> None:
    handlers = Handlers()

    @handlers.on(HasOrder)
    async def audit(order: HasOrder) -> int:
        return order.order_id

    @handlers.on(Billed)
    async def bill(billed: Billed) -> None: ...

    assert await deliver(a_router(handlers), "placed", b'{"order_id": 3}') == 3


async def test_a_handler_registered_after_the_worker_was_built_is_found() -> None:
    handlers = Handlers()
    await _named(handlers, (Event, None, "base"))
    router = a_router(handlers)
    assert await deliver(router, "placed", b'{"order_id": 1}') == "base"

    await _named(handlers, (OrderPlaced, None, "exact"))

    assert await deliver(router, "placed", b'{"order_id": 1}') == "exact"


async def test_a_class_declared_again_stands_for_its_older_self() -> None:
    class Reloaded(Protocol):
        reloaded_field: int

    def declare() -> type:
        @job(name="reloaded")
        class Again:
            reloaded_field: int

        return Again

    older, newer = declare(), declare()
    handlers = Handlers()
    await _named(handlers, (Reloaded, None, "reloaded"))

    assert older is not newer
    assert a_router(handlers).resolve("reloaded", "default").job_type.payload is newer


async def test_two_classes_with_one_name_under_one_handler_are_not_guessed_between() -> None:
    class Ambiguous(Protocol):
        ambiguous_field: int

    @job(name="twin")
    class One:
        ambiguous_field: int

    @job(name="twin")
    class Two:
        ambiguous_field: int

    handlers = Handlers()
    await _named(handlers, (Ambiguous, None, "twin"))

    assert One is not Two  # type: ignore[comparison-overlap]  # both must be alive here
    with pytest.raises(InvalidJob, match=r"One.*Two"):
        a_router(handlers).resolve("twin", "default")


@pytest.mark.rule("ARG-5")
def test_a_name_nobody_handles_is_refused() -> None:
    with pytest.raises(UnhandledJob, match="'unknown' on queue 'default'"):
        a_router([Greet]).resolve("unknown", "default")


def test_a_route_is_found_once_and_kept() -> None:
    router = a_router([Greet])

    assert router.resolve("greet", "default") is router.resolve("greet", "default")
    assert router.resolve("greet", "default") is router.resolve("salute", "other")


@pytest.mark.rule("ARG-5")
def test_a_route_restores_its_job_and_refuses_arguments_that_do_not_fit() -> None:
    route = a_router([Greet]).resolve("greet", "default")

    assert route.restore(b'{"who": "Ann"}') == Greet("Ann")
    with pytest.raises(JobReconstructionError):
        route.restore(b'{"who": 5}')


# Registering


def test_adding_two_jobs_that_declare_one_name_is_refused() -> None:
    @job(name="same")
    class First:
        async def handle(self) -> None: ...

    @job(name="other", aliases=["same"])
    class Second:
        async def handle(self) -> None: ...

    with pytest.raises(InvalidJob, match=r"'same'.*First.*Second"):
        Handlers.of([First, Second])


def test_a_second_handler_for_the_same_class_and_queue_is_refused() -> None:
    handlers = Handlers.of([Greet])

    with pytest.raises(InvalidJob, match="two handlers for Greet: keep one"):
        handlers.add(Greet)
    handlers.on(Greet, queue="email")(_thread_of)
    with pytest.raises(InvalidJob, match="two handlers for Greet on queue 'email'"):
        handlers.on(Greet, queue="email")(_thread_of)


def test_including_takes_over_everything_and_may_be_repeated() -> None:
    source, target = Handlers.of([Greet]), Handlers.of([resize])
    source.on(InvoicePaid, _thread_of, queue="bills")

    target.include(source)
    target.include(source)
    router = a_router(target)

    assert router.resolve("greet", "default").job_type.payload is Greet
    assert not router.resolve("resize", "default").is_sync
    assert router.resolve("paid", "bills").is_sync


def test_including_a_second_handler_is_refused() -> None:
    target = Handlers.of([Greet])

    with pytest.raises(InvalidJob, match="two handlers for Greet"):
        target.include(Handlers.of([Greet]))


def test_handlers_stay_themselves_where_a_list_would_do() -> None:
    handlers = Handlers.of([Greet])

    assert Handlers.of(handlers) is handlers


def test_what_cannot_handle_itself_is_not_added() -> None:
    class NotAJob: ...

    @job
    class Static:
        @staticmethod
        async def handle() -> None: ...

    for unfit in (OrderPlaced, Static, NotAJob, 5):
        with pytest.raises(InvalidJob):
            Handlers().add(unfit)


async def _yields(paid: InvoicePaid) -> AsyncIterator[int]:
    yield 1


def _yields_plainly(paid: InvoicePaid) -> Iterator[int]:
    yield 1


class Yields:
    async def handle(self, paid: InvoicePaid) -> AsyncIterator[int]:
        yield 1


class NoHandle:
    """Looks like a handler class, but has nothing to call."""


@pytest.mark.parametrize("unfit", [_yields, _yields_plainly, Yields, NoHandle, Yields(), "text"])
def test_a_handler_that_yields_or_cannot_be_called_is_refused_when_registered(unfit: Any) -> None:
    with pytest.raises(InvalidJob, match=r"generator|not a handler"):
        Handlers().on(InvoicePaid, unfit)


def test_a_job_whose_handle_yields_is_refused_when_added() -> None:
    @job
    class Streaming:
        async def handle(self) -> AsyncIterator[int]:
            yield 1

    with pytest.raises(InvalidJob, match=r"handle\(\) is a generator"):
        Handlers().add(Streaming)


def test_a_handler_is_for_a_class_and_a_valid_queue_name() -> None:
    with pytest.raises(InvalidJob, match="takes a class"):
        Handlers().on(Greet("x"), _thread_of)  # type: ignore[call-overload]  # the point of the test
    with pytest.raises(InvalidQueueArgument):
        Handlers().on(Greet, _thread_of, queue="no spaces")


# What is checked when a worker is built


def _wants_port(paid: InvoicePaid, port: int) -> None: ...


def _wants_untyped(paid, thing):  # type: ignore[no-untyped-def]  # the point of the test
    ...


class WantsPort:
    def __init__(self, port: int) -> None: ...

    def handle(self, paid: InvoicePaid) -> None: ...


@pytest.mark.rule("ARG-5")
@pytest.mark.parametrize(
    ("handler", "parameter"), [(_wants_port, "port"), (_wants_untyped, "thing"), (WantsPort, "port")]
)
def test_an_unresolvable_parameter_is_refused_naming_job_and_parameter(handler: Any, parameter: str) -> None:
    handlers = Handlers()
    handlers.on(InvoicePaid, handler)

    with pytest.raises(UnresolvableParameter, match=rf"job 'paid'.*'{parameter}'"):
        a_router(handlers)


@pytest.mark.rule("ARG-5")
def test_the_check_reaches_handlers_of_base_classes_and_single_queues() -> None:
    handlers = Handlers()
    handlers.on(Event, _wants_port, queue="email")

    with pytest.raises(UnresolvableParameter, match="'port'"):
        a_router(handlers)


@pytest.mark.rule("ARG-5")
def test_a_service_the_scope_lacks_is_refused_and_one_it_has_is_not() -> None:
    with pytest.raises(
        UnresolvableParameter, match=r"job 'greet': Greet.handle\(\) parameter 'mailer'.*Mailer"
    ):
        a_router([Greet], AppScope())

    a_router([Greet], AppScope(initializers=[lambda scope: scope.add(Mailer, MAILER)]))
    a_router([Greet], AppScope(), {Mailer: lambda _: MAILER})


def test_a_handler_that_takes_no_job_is_refused() -> None:
    handlers = Handlers()
    handlers.on(InvoicePaid, lambda: None)

    with pytest.raises(InvalidJob, match="positional"):
        a_router(handlers)
