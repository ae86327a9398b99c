"""What a handler's parameters come from, and how it is closed (SCOPE-1, WORK-9, ARG-5)."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import anyio
import anyio.lowlevel
import msgspec
import pytest

from aqueue.contract.envelope import Envelope
from aqueue.delivery import Delivery
from aqueue.dependencies import Depends, compile_plan
from aqueue.errors import InvalidJob, UnresolvableParameter
from aqueue.port import Reserved
from aqueue.scope import AppScope, Builtins, RequestScope, Sources

pytestmark = pytest.mark.rule("SCOPE-1")


class Mailer:
    """A service found by its type."""


class LoudMailer(Mailer):
    """A subclass, which must not be taken for it."""


class Greets(Protocol):
    def greet(self) -> str: ...


class Store:
    def __init__(self) -> None:
        self.log: list[str] = []


@dataclass(frozen=True)
class LookAlike:
    """FastAPI's `Depends`, as it is shaped; the real one is never imported by aqueue."""

    dependency: Callable[..., object] | None = None
    use_cache: bool = True
    scope: str | None = None


def a_delivery() -> Delivery:
    envelope = Envelope(1, "0" * 32, "job", 0.0, msgspec.Raw(b"{}"))
    return Delivery(Reserved(envelope.id, "default", b"", receipt=None, attempt=1), envelope)


def begin(app: AppScope | None = None, builtins: Builtins | None = None) -> RequestScope:
    return (app or AppScope()).begin(a_delivery(), builtins or {})


async def inject(
    fn: Callable[..., object], app: AppScope, scope: RequestScope, builtins: Builtins | None = None
) -> Any:
    """Resolve all parameters of `fn` in the scope and call it."""

    def can_provide(wanted: type) -> bool:
        return wanted in (builtins or {}) or wanted is RequestScope or app.can_provide(wanted)

    positional, named = await compile_plan(fn, owner=fn.__name__, can_provide=can_provide).arguments(scope)
    return fn(*positional, **named)


async def injected(
    fn: Callable[..., object], app: AppScope | None = None, error: Exception | None = None
) -> Any:
    """Live one delivery through: resolve and call `fn`, then close both scopes with `error`."""
    app = app or AppScope()
    scope = begin(app)
    await scope.initialize()
    answer = await inject(fn, app, scope)
    await scope.close_function_scope(error)
    await scope.close(error)
    return answer


# Values by type


async def test_a_value_is_found_by_its_exact_type() -> None:
    mailer = Mailer()

    scope = begin(AppScope({Mailer: mailer}))

    assert await scope.get(Mailer) is mailer
    with pytest.raises(UnresolvableParameter, match="LoudMailer"):
        await scope.get(LoudMailer)


async def test_a_subclass_is_not_taken_for_the_type_asked() -> None:
    scope = begin(AppScope({LoudMailer: LoudMailer()}))

    with pytest.raises(UnresolvableParameter, match="nothing provides Mailer"):
        await scope.get(Mailer)


async def test_a_protocol_is_a_key_like_any_other() -> None:
    class Friend:
        def greet(self) -> str:
            return "hello"

    def handle(friend: Greets) -> str:
        return friend.greet()

    assert await injected(handle, AppScope({Greets: Friend()})) == "hello"


async def test_what_is_added_to_one_scope_wins_and_stays_in_it() -> None:
    shared, own = Mailer(), Mailer()
    app = AppScope({Mailer: shared})
    first, second = begin(app), begin(app)

    first.add(Mailer, own)

    assert await first.get(Mailer) is own
    assert await second.get(Mailer) is shared


async def test_the_delivery_and_the_workers_own_values_are_given_by_type() -> None:
    app = AppScope()
    builtins: Builtins = {Delivery: lambda delivery: delivery, Store: lambda _: Store()}
    scope = begin(app, builtins)

    def handle(delivery: Delivery, store: Store, scope: RequestScope) -> tuple[object, ...]:
        return delivery, store, scope

    delivery, store, given = await inject(handle, app, scope, builtins)

    assert delivery is scope.delivery
    assert isinstance(store, Store)
    assert given is scope


async def test_a_workers_own_value_is_asked_for_only_when_wanted() -> None:
    def never(_: Delivery) -> object:
        raise AssertionError

    scope = begin(AppScope({Mailer: Mailer()}), {Store: never})

    await scope.get(Mailer)


async def test_the_values_given_to_an_app_scope_are_copied() -> None:
    values: dict[type, object] = {Mailer: Mailer()}
    app = AppScope(values)

    values.clear()

    assert isinstance(await begin(app).get(Mailer), Mailer)


# Initializers


async def test_every_initializer_runs_on_each_new_scope_in_order() -> None:
    seen: list[tuple[str, RequestScope]] = []

    async def first(scope: RequestScope) -> None:
        await asyncio.sleep(0)
        seen.append(("first", scope))

    def second(scope: RequestScope) -> None:
        seen.append(("second", scope))

    scope = begin(AppScope(initializers=[first, second]))
    assert scope.initializers
    await scope.initialize()

    assert seen == [("first", scope), ("second", scope)]
    assert not scope.initializers


async def test_an_initializer_may_add_values_and_enter_context_managers() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def connection() -> AsyncIterator[Store]:
        store = Store()
        try:
            yield store
        finally:
            log.append("closed")

    async def initialize(scope: RequestScope) -> None:
        scope.add(Store, await scope.enter(connection()))

    def handle(store: Store) -> None:
        store.log.append("handled")
        log.append("handled")

    await injected(handle, AppScope(initializers=[initialize]))

    assert log == ["handled", "closed"]


async def test_a_scope_whose_initializer_failed_still_closes_what_was_entered() -> None:
    log: list[str] = []

    async def half(scope: RequestScope) -> None:
        scope.callback(lambda: log.append("closed"))
        raise LookupError

    scope = begin(AppScope(initializers=[half]))
    with pytest.raises(LookupError) as failed:
        await scope.initialize()
    await scope.close(failed.value)

    assert log == ["closed"]


# Depends, ours and look-alikes


def get_store() -> Store:
    return Store()


async def test_a_dependency_is_recognised_as_a_default_and_in_annotated() -> None:
    def handle(
        a: Store = Depends(get_store),
        b: Annotated[Store, Depends(get_store)] = None,  # type: ignore[assignment]  # a default beside the marker
    ) -> bool:
        return a is b

    assert await injected(handle)


async def test_fastapis_marker_is_recognised_by_its_shape_alone() -> None:
    def handle(a: Annotated[Store, LookAlike(get_store)], b: Store = LookAlike(get_store)) -> bool:  # type: ignore[assignment]  # what FastAPI's Any-typed function returns
        return a is b

    assert await injected(handle)


async def test_depends_without_a_callable_calls_the_annotation() -> None:
    def handle(store: Annotated[Store, Depends()], other: Store = LookAlike()) -> bool:  # type: ignore[assignment]  # likewise
        return other is store

    assert await injected(handle)


async def test_one_value_serves_the_whole_delivery_unless_the_cache_is_refused() -> None:
    def nested(store: Store = Depends(get_store)) -> Store:
        return store

    def handle(
        a: Store = Depends(get_store),
        b: Store = Depends(nested),
        c: Store = Depends(get_store, use_cache=False),
    ) -> tuple[Store, Store, Store]:
        return a, b, c

    a, b, c = await injected(handle)

    assert a is b
    assert c is not a


async def test_two_deliveries_share_no_dependency() -> None:
    def handle(store: Store = Depends(get_store)) -> Store:
        return store

    assert await injected(handle) is not await injected(handle)


class CallableDependency:
    async def __call__(self) -> str:
        return "object"


async def _coroutine(prefix: str) -> str:
    return prefix + "tine"


async def test_functions_classes_partials_and_callable_objects_are_dependencies() -> None:
    def wrapped() -> Any:
        return _coroutine("corou")

    def handle(
        by_class: Store = Depends(Store),
        by_object: str = Depends(CallableDependency()),
        by_partial: str = Depends(functools.partial(_coroutine, "corou")),
        by_keyword: str = Depends(functools.partial(_coroutine, prefix="corou")),
        by_wrapper: str = Depends(wrapped),
    ) -> tuple[object, ...]:
        return isinstance(by_class, Store), by_object, by_partial, by_keyword, by_wrapper

    assert await injected(handle) == (True, "object", "coroutine", "coroutine", "coroutine")


async def test_a_dependency_has_its_own_parameters_resolved() -> None:
    def by_type(mailer: Mailer) -> Mailer:
        return mailer

    def handle(mailer: Mailer = Depends(by_type)) -> Mailer:
        return mailer

    mailer = Mailer()
    assert await injected(handle, AppScope({Mailer: mailer})) is mailer


async def test_a_positional_only_parameter_is_injected_too() -> None:
    def handle(mailer: Mailer, store: Store = Depends(get_store), /, *, again: Mailer) -> bool:
        return mailer is again and isinstance(store, Store)

    assert await injected(handle, AppScope({Mailer: Mailer()}))


# Parameters nothing provides


@pytest.mark.rule("ARG-5")
@pytest.mark.parametrize(
    ("annotation", "shown"),
    [(str, "str"), (int, "int"), (Any, "Any"), (list, "list"), (None, "None"), (Mailer, "Mailer")],
)
def test_a_parameter_nothing_provides_is_refused_when_the_plan_is_made(
    annotation: object, shown: str
) -> None:
    def handle(wanted: object) -> None: ...

    handle.__annotations__["wanted"] = annotation
    with pytest.raises(UnresolvableParameter, match=rf"job 'x': handle\(\) parameter 'wanted'.*{shown}"):
        compile_plan(handle, owner="job 'x': handle()", can_provide=AppScope().can_provide)


@pytest.mark.rule("ARG-5")
def test_an_untyped_parameter_is_refused_but_not_one_with_a_default_or_variadic_ones() -> None:
    def untyped(thing): ...  # type: ignore[no-untyped-def]  # the point of the test

    def fine(*args: str, flag: bool = True, name: str = "x", **options: int) -> None: ...

    assert compile_plan(fine, owner="fine", can_provide=lambda _: False).is_trivial
    with pytest.raises(UnresolvableParameter, match="'thing' \\(no annotation\\)"):
        compile_plan(untyped, owner="untyped", can_provide=lambda _: True)


@pytest.mark.rule("ARG-5")
def test_a_scalar_is_never_found_by_its_type() -> None:
    def handle(port: int) -> None: ...

    with pytest.raises(UnresolvableParameter, match="port"):
        compile_plan(handle, owner="handle", can_provide=AppScope({int: 8000}).can_provide)


@pytest.mark.rule("ARG-5")
def test_an_unresolvable_parameter_of_a_nested_dependency_is_named_with_its_path() -> None:
    def get_client(base_url: str) -> object: ...

    def get_mailer(client: object = Depends(get_client)) -> None: ...

    def handle(mailer: Mailer = Depends(get_mailer)) -> None: ...

    with pytest.raises(UnresolvableParameter) as refused:
        compile_plan(handle, owner="job 'x': handle()", can_provide=lambda _: False)

    for part in ("job 'x'", "'mailer'", "get_mailer()", "'client'", "get_client()", "'base_url'"):
        assert part in str(refused.value)


@pytest.mark.rule("ARG-5")
def test_a_dependency_that_needs_a_part_of_an_http_request_is_refused() -> None:
    class Query:
        """FastAPI's, by the place its class claims to be in."""

    Query.__module__ = "fastapi.params"

    def get_page(page: int = Query()) -> None: ...  # type: ignore[assignment]  # as in FastAPI

    def handle(page: object = Depends(get_page)) -> None: ...

    with pytest.raises(UnresolvableParameter, match="'page' is a part of an HTTP request"):
        compile_plan(handle, owner="handle", can_provide=lambda _: True)


def test_a_dependency_on_itself_is_refused() -> None:
    def egg(hen: object) -> None: ...

    def hen(egg: object = Depends(egg)) -> None: ...

    egg.__defaults__ = (Depends(hen),)
    with pytest.raises(UnresolvableParameter, match="depends on itself"):
        compile_plan(hen, owner="hen", can_provide=lambda _: True)


@pytest.mark.parametrize("marker", [LookAlike(5), LookAlike([])])  # type: ignore[arg-type]  # what users may write
def test_a_marker_without_anything_to_call_is_refused(marker: object) -> None:
    def handle(thing: str) -> None: ...

    handle.__defaults__ = (marker,)
    with pytest.raises(UnresolvableParameter, match="callable"):
        compile_plan(handle, owner="handle", can_provide=lambda _: True)


def test_an_unknown_lifetime_is_refused() -> None:
    with pytest.raises(InvalidJob, match="'function' or 'request'"):
        Depends(get_store, scope="session")  # type: ignore[arg-type]  # the point of the test


@pytest.mark.rule("ARG-5")
async def test_a_parameter_keeps_its_default_where_nothing_provides_its_type() -> None:
    default = Mailer()

    def handle(mailer: Mailer = default, maybe: Mailer | None = None) -> tuple[object, object]:
        return mailer, maybe

    provided = Mailer()
    assert await injected(handle) == (default, None)
    assert await injected(handle, AppScope({Mailer: provided})) == (provided, provided)
    assert await injected(handle, AppScope(initializers=[lambda _: None])) == (default, None)


@pytest.mark.rule("ARG-5")
async def test_what_only_an_initializer_could_provide_is_refused_at_run_time() -> None:
    def handle(mailer: Mailer) -> None: ...

    app = AppScope(initializers=[lambda _: None])
    plan = compile_plan(handle, owner="job 'x': handle()", can_provide=app.can_provide)

    with pytest.raises(UnresolvableParameter, match=r"job 'x': handle\(\) parameter 'mailer'"):
        await plan.arguments(begin(app))


async def test_annotations_written_as_text_are_understood() -> None:
    def handle(mailer: "Mailer", store: "Annotated[Store, Depends(get_store)]", n: "Unknown" = 5) -> object:  # type: ignore[name-defined]  # noqa: F821 - a name only type checkers know
        return type(mailer), type(store), n

    assert await injected(handle, AppScope({Mailer: Mailer()})) == (Mailer, Store, 5)


@pytest.mark.rule("ARG-5")
def test_an_annotation_nobody_can_evaluate_is_refused_by_name() -> None:
    def handle(thing: "Unknown") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point of the test

    with pytest.raises(UnresolvableParameter, match=r"'thing' \(Unknown\)"):
        compile_plan(handle, owner="handle", can_provide=lambda _: True)


# Closing


def sessions(log: list[str], name: str = "session") -> Callable[[], AsyncIterator[str]]:
    async def session() -> AsyncIterator[str]:
        log.append(f"open {name}")
        try:
            yield name
        except BaseException as error:
            log.append(f"roll back {name} ({type(error).__name__})")
            raise
        else:
            log.append(f"commit {name}")

    return session


@pytest.mark.rule("WORK-9")
async def test_the_order_is_handle_function_exit_request_exit() -> None:
    log: list[str] = []
    app = AppScope()
    scope = begin(app)

    def handle(
        a: str = Depends(sessions(log, "long")),
        b: str = Depends(sessions(log, "short"), scope="function"),
    ) -> None:
        log.append("handle")

    await inject(handle, app, scope)
    before = (scope.has_function_exits, scope.has_exits)
    await scope.close_function_scope(None)
    log.append("settle")
    between = (scope.has_function_exits, scope.has_exits)
    await scope.close(None)

    assert log == ["open long", "open short", "handle", "commit short", "settle", "commit long"]
    assert before == (True, True)
    assert between == (False, True)
    assert (scope.has_function_exits, scope.has_exits) == (False, False)


@pytest.mark.rule("WORK-9")
@pytest.mark.parametrize("how", ["function", "request"])
async def test_the_error_that_ended_the_handler_is_thrown_into_generators(how: Any) -> None:
    log: list[str] = []

    def plain() -> Iterator[int]:
        try:
            yield 1
        except LookupError:
            log.append("roll back plain")
            raise

    def handle(a: str = Depends(sessions(log), scope=how), b: int = Depends(plain, scope=how)) -> None: ...

    await injected(handle, error=LookupError())

    assert log == ["open session", "roll back plain", "roll back session (LookupError)"]


async def test_a_generator_that_swallows_the_error_hides_it_from_no_other() -> None:
    log: list[str] = []

    async def swallows() -> AsyncIterator[int]:
        try:
            yield 1
        except LookupError:
            log.append("swallowed")

    def handle(a: str = Depends(sessions(log)), b: int = Depends(swallows)) -> None: ...

    await injected(handle, error=LookupError())

    assert log == ["open session", "swallowed", "roll back session (LookupError)"]


@pytest.mark.rule("WORK-9")
async def test_closing_is_last_in_first_out_and_a_failure_stops_no_other() -> None:
    log: list[str] = []
    scope = begin()

    def fail(error: Exception) -> None:
        log.append(type(error).__name__)
        raise error

    scope.callback(lambda: log.append("first in"))
    scope.callback(lambda: fail(KeyError()))
    scope.callback(lambda: fail(OSError()))
    scope.callback(lambda: log.append("last in"))
    with pytest.raises(ExceptionGroup) as failed:
        await scope.close(None)

    assert log == ["last in", "OSError", "KeyError", "first in"]
    assert [type(each) for each in failed.value.exceptions] == [OSError, KeyError]


async def test_a_single_failure_of_a_closing_is_raised_as_itself_and_only_once() -> None:
    scope = begin()

    async def fail() -> None:
        raise OSError("gone")

    scope.callback(fail)
    with pytest.raises(OSError, match="gone"):
        await scope.close(None)
    await scope.close(None)


@pytest.mark.rule("WORK-9")
async def test_a_closing_that_fails_makes_what_is_still_open_roll_back() -> None:
    log: list[str] = []

    async def publisher(session: str = Depends(sessions(log), scope="function")) -> AsyncIterator[str]:
        yield session
        raise ConnectionError("the broker is gone")

    app = AppScope()
    scope = begin(app)

    def handle(publisher: str = Depends(publisher, scope="function")) -> None: ...

    await inject(handle, app, scope)
    with pytest.raises(ConnectionError, match="the broker"):
        await scope.close_function_scope(None)

    assert log == ["open session", "roll back session (ConnectionError)"]


async def test_the_handlers_own_error_is_never_raised_from_a_closing() -> None:
    scope = begin()
    await scope.enter(_reraising())

    await scope.close(LookupError())


@contextmanager
def _reraising() -> Iterator[None]:
    yield


async def test_an_exit_that_fails_while_the_handlers_error_passes_is_reported() -> None:
    async def translates() -> AsyncIterator[int]:
        try:
            yield 1
        except LookupError as error:
            raise PermissionError from error

    app = AppScope()
    scope = begin(app)

    def handle(a: int = Depends(translates)) -> None: ...

    await inject(handle, app, scope)
    with pytest.raises(PermissionError):
        await scope.close(LookupError())


async def test_a_cancellation_while_closing_skips_no_exit_and_is_not_swallowed() -> None:
    log: list[str] = []
    scope = begin()
    scope.callback(lambda: log.append("still closed"))
    scope.callback(anyio.sleep_forever)

    with anyio.move_on_after(0.01) as deadline:
        await scope.close(None)

    assert deadline.cancelled_caught
    assert log == ["still closed"]


async def test_closing_works_under_a_shield_in_a_cancelled_task() -> None:
    log: list[str] = []
    scope = begin()

    async def slow() -> None:
        await anyio.lowlevel.checkpoint()
        log.append("closed")

    scope.callback(slow)
    with anyio.CancelScope() as cancelled:
        cancelled.cancel()
        with anyio.CancelScope(shield=True):
            await scope.close(asyncio.CancelledError())

    assert log == ["closed"]


async def test_a_context_manager_entered_by_hand_may_be_plain_or_async() -> None:
    log: list[str] = []

    @contextmanager
    def plain() -> Iterator[str]:
        yield "plain"
        log.append("plain")

    @asynccontextmanager
    async def asynchronous() -> AsyncIterator[str]:
        yield "async"
        log.append("async")

    scope = begin()
    assert await scope.enter(plain()) == "plain"
    assert await scope.enter(asynchronous()) == "async"
    await scope.close(None)

    assert log == ["async", "plain"]


async def test_what_a_closing_registers_is_closed_too() -> None:
    log: list[str] = []
    scope = begin()
    scope.callback(lambda: scope.callback(lambda: log.append("late")))

    await scope.close(None)

    assert log == ["late"]


# Function and request lifetimes


@pytest.mark.rule("WORK-9")
def test_a_request_scoped_dependency_may_not_use_a_function_scoped_one() -> None:
    def repository(session: str = Depends(sessions([]), scope="function")) -> str:
        return session

    async def cache(repository: str = Depends(repository)) -> AsyncIterator[str]:
        yield repository

    def handle(cache: str = Depends(cache)) -> None: ...

    with pytest.raises(UnresolvableParameter, match=r"cache\(\) lives until the delivery is settled"):
        compile_plan(handle, owner="handle", can_provide=lambda _: False)


async def test_a_function_scoped_dependency_may_use_a_request_scoped_one() -> None:
    log: list[str] = []

    async def transaction(connection: str = Depends(sessions(log, "connection"))) -> AsyncIterator[str]:
        yield connection
        log.append("commit")

    def handle(transaction: str = Depends(transaction, scope="function")) -> None: ...

    await injected(handle)

    assert log == ["open connection", "commit", "commit connection"]


async def test_what_was_made_for_one_call_of_the_handler_is_new_for_the_next() -> None:
    log: list[str] = []
    app = AppScope()
    scope = begin(app)

    def repository(session: str = Depends(sessions(log), scope="function")) -> object:
        return object()

    def handle(repository: object = Depends(repository)) -> object:
        return repository

    first = await inject(handle, app, scope)
    await scope.close_function_scope(LookupError())
    second = await inject(handle, app, scope)
    await scope.close_function_scope(None)

    assert first is not second
    assert log == ["open session", "roll back session (LookupError)", "open session", "commit session"]


async def test_a_function_scope_left_open_is_closed_with_the_rest() -> None:
    log: list[str] = []
    app = AppScope()
    scope = begin(app)

    def handle(a: str = Depends(sessions(log), scope="function")) -> None: ...

    await inject(handle, app, scope)
    await scope.close(None)

    assert log == ["open session", "commit session"]


# Overrides


async def test_an_override_replaces_a_dependency_and_has_its_own_parameters_resolved() -> None:
    log: list[str] = []

    async def fake_store(
        mailer: Mailer, session: str = Depends(sessions(log))
    ) -> AsyncIterator[tuple[object, str]]:
        yield mailer, session
        log.append("fake closed")

    def handle(store: object = Depends(get_store)) -> object:
        return store

    mailer = Mailer()
    app = AppScope({Mailer: mailer}, overrides={get_store: fake_store})

    assert await injected(handle, app) == (mailer, "session")
    assert log == ["open session", "fake closed", "commit session"]


async def test_a_mapping_of_overrides_is_read_live() -> None:
    overrides: dict[Callable[..., object], Callable[..., object]] = {}
    app = AppScope(overrides=overrides)

    def handle(store: object = Depends(get_store)) -> object:
        return store

    before = await injected(handle, app)
    overrides[get_store] = lambda: "fake"
    during = await injected(handle, app)
    overrides.clear()

    assert isinstance(before, Store)
    assert during == "fake"
    assert isinstance(await injected(handle, app), Store)


async def test_an_override_lasts_as_long_as_its_block_and_blocks_nest() -> None:
    app = AppScope(overrides={get_store: lambda: "given"})

    def handle(store: object = Depends(get_store)) -> object:
        return store

    with app.override(get_store, lambda: "outer"):
        with app.override(get_store, lambda: "inner"):
            assert await injected(handle, app) == "inner"
        assert await injected(handle, app) == "outer"
    assert await injected(handle, app) == "given"


async def test_a_type_is_overridden_the_same_way_and_counts_as_provided() -> None:
    app = AppScope()
    fake = LoudMailer()

    def handle(mailer: Mailer) -> Mailer:
        return mailer

    assert not app.can_provide(Mailer)
    with app.override(Mailer, lambda: fake):
        assert app.can_provide(Mailer)
        assert await injected(handle, app) is fake
        assert await begin(app).get(Mailer) is fake


# Other providers, and leaks


async def test_a_librarys_own_container_is_a_provider_of_a_few_lines() -> None:
    log: list[str] = []

    class Container:
        """What dishka, wireup or svcs hand out for a request."""

        async def get(self, wanted: type) -> object:
            return mailer if wanted is Mailer else None

    @asynccontextmanager
    async def container() -> AsyncIterator[Container]:
        yield Container()
        log.append("container closed")

    async def enter(scope: RequestScope) -> None:
        child = await scope.enter(container())
        scope.fall_back_on(child.get)

    class Provider:
        def begin(self, delivery: Delivery, builtins: Builtins) -> RequestScope:
            return RequestScope(delivery, builtins, Sources(initializers=[enter]))

        def can_provide(self, wanted: type) -> bool:
            return wanted is Mailer

    mailer = Mailer()
    provider = Provider()
    scope = provider.begin(a_delivery(), {})
    await scope.initialize()
    plan = compile_plan(lambda: None, owner="handle", can_provide=provider.can_provide)
    assert plan.is_trivial
    assert await scope.get(Mailer) is mailer
    await scope.close(None)

    assert log == ["container closed"]


async def test_nothing_in_a_scope_leaks_to_a_neighbouring_delivery() -> None:
    tenant: ContextVar[str] = ContextVar("tenant")

    async def set_tenant(scope: RequestScope) -> AsyncIterator[str]:
        token = tenant.set(str(id(scope)))
        yield tenant.get()
        tenant.reset(token)

    async def handle(chosen: str = Depends(set_tenant)) -> tuple[str, str]:
        await asyncio.sleep(0)
        return chosen, tenant.get()

    app = AppScope()

    async def deliver() -> tuple[str, str]:
        scope = begin(app)
        answer: tuple[str, str] = await (await inject(handle, app, scope))
        await scope.close(None)
        return answer

    answers = await asyncio.gather(*(asyncio.create_task(deliver()) for _ in range(20)))

    assert all(chosen == seen for chosen, seen in answers)
    assert tenant.get("unset") == "unset"
