"""From a wire name and a queue to something that can be called: compiled once for each worker."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from aqueue.dependencies import CanProvide, Kind, Plan, compile_plan, kind_of, label
from aqueue.handlers import Handlers, Registration, own_handler
from aqueue.jobs import JobType
from aqueue.middleware import Bind, Bindable, Chain, Middleware, chain, unbound
from aqueue.scope import Builtins, RequestScope, ScopeProvider

InThread: TypeAlias = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a callable in a worker thread and returns what it gave (WORK-11)."""

Call: TypeAlias = Callable[[Any, RequestScope, InThread], Awaitable[object]]

_Direct: TypeAlias = Callable[[Any], Awaitable[object]]
_Bound: TypeAlias = tuple[Callable[..., object], list[object], dict[str, object]]
_Bind: TypeAlias = Callable[[Any, RequestScope], Awaitable[_Bound]]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """How one job type is handled by one worker.

    `await call(job, scope, in_thread)` resolves the handler's parameters on the event loop and runs it, a
    plain `def` (`is_sync`) by `in_thread`. It neither settles nor closes the scope. `await direct(job)` does
    the same for a coroutine function that needs nothing but its job. `around` is the worker's
    and the job's middleware in one, or None: `await around(delivery, call_next)` (MID-1). `restore(raw)`
    rebuilds the job from its JSON bytes; raises `JobReconstructionError`.
    """

    job_type: JobType
    handler: str
    is_sync: bool
    restore: Callable[[bytes], Any]
    call: Call
    direct: _Direct | None
    around: Chain | None


class Router:
    """Answers a worker's one question for each delivery: what handles this name on this queue.

    Built when the worker is, it compiles every route known then and raises the first mistake it finds:
    `UnresolvableParameter`, `InvalidJob`, or `InvalidQueueArgument` for middleware that can't be called
    (ARG-5). What is declared or registered later is compiled when first met.
    """

    def __init__(
        self,
        handlers: Handlers,
        provider: ScopeProvider,
        builtins: Builtins,
        middleware: Sequence[Middleware | Bindable] = (),
        bind: Bind = unbound,
    ) -> None:
        self._handlers = handlers
        self._can_provide: CanProvide = lambda wanted: (
            wanted in builtins or wanted is RequestScope or provider.can_provide(wanted)
        )
        self._bind = bind
        self._middleware = bind(middleware)
        self._compiled: dict[tuple[type, Registration], Route] = {}
        self._routes: dict[str, dict[str, Route]] = {}
        self._version = handlers.version
        self._compile_all()

    def resolve(self, name: str, queue: str) -> Route:
        """Return the route of a wire name on a queue; raises `UnhandledJob`, or as the constructor does."""
        if self._version != self._handlers.version:
            self._version = self._handlers.version
            self._routes.clear()
        try:
            return self._routes[queue][name]
        except KeyError:
            route = self._compile(*self._handlers.resolve(name, queue))
            return self._routes.setdefault(queue, {}).setdefault(name, route)

    def _compile_all(self) -> None:
        chain(self._middleware)
        queues = {each.queue for each in self._handlers.registrations()} | {None}
        for declared in self._handlers.job_types():
            for queue in queues:
                registration = self._handlers.registration(declared, queue)
                if registration is not None:
                    self._compile(declared, registration)

    def _compile(self, declared: JobType, registration: Registration) -> Route:
        key = (declared.payload, registration)
        route = self._compiled.get(key)
        if route is None:
            around = chain([*self._middleware, *self._bind(declared.middleware)])
            route = self._compiled[key] = _route(declared, registration, self._can_provide, around)
        return route


def _route(
    declared: JobType, registration: Registration, can_provide: CanProvide, around: Chain | None
) -> Route:
    handler = registration.handler
    if handler is None:
        own = own_handler(declared)
        make = _of_function_job if declared.function is not None else _of_function
        invocation = make(declared, own, can_provide)
    elif isinstance(handler, type):
        invocation = _of_class(declared, handler, can_provide)
    else:
        invocation = _of_function(declared, handler, can_provide)
    return Route(
        job_type=declared,
        handler=invocation.name,
        is_sync=invocation.is_sync,
        restore=declared.restore,
        call=_call(invocation),
        direct=invocation.direct,
        around=around,
    )


@dataclass(frozen=True, slots=True)
class _Invocation:
    """How a handler is called: by `bind` in general, by `direct` where nothing is injected or threaded."""

    name: str
    is_sync: bool
    bind: _Bind
    direct: _Direct | None


def _of_function(declared: JobType, fn: Callable[..., object], can_provide: CanProvide) -> _Invocation:
    """Call a `handle` method, or a function that takes the job first."""
    plan = _plan(declared, fn, can_provide, given=1)

    async def bind(job: Any, scope: RequestScope) -> _Bound:
        positional, named = await plan.arguments(scope)
        return fn, [job, *positional], named

    return _Invocation(label(fn), _is_sync(fn), bind, _directly(fn, fn, plan))


def _of_function_job(declared: JobType, fn: Callable[..., object], can_provide: CanProvide) -> _Invocation:
    """Call a function job: its payload goes in by name, beside what is injected."""
    names = tuple(field.name for field in declared.codec.fields)
    plan = _plan(declared, fn, can_provide, named=names)

    def call(job: Any) -> object:
        return fn(**{name: getattr(job, name) for name in names})

    async def bind(job: Any, scope: RequestScope) -> _Bound:
        positional, named = await plan.arguments(scope)
        for name in names:
            named[name] = getattr(job, name)
        return fn, positional, named

    return _Invocation(label(fn), _is_sync(fn), bind, _directly(fn, call, plan))


def _of_class(declared: JobType, handler: type, can_provide: CanProvide) -> _Invocation:
    """Build a class for each delivery, on the event loop, and call its `handle(job)`."""
    method: Callable[..., object] = getattr(handler, "handle")  # noqa: B009 - any class: on() saw that it has one
    constructor = _plan(declared, handler, can_provide)
    plan = _plan(declared, method, can_provide, given=2)

    async def bind(job: Any, scope: RequestScope) -> _Bound:
        positional, named = await constructor.arguments(scope)
        built = handler(*positional, **named)
        positional, named = await plan.arguments(scope)
        return built.handle, [job, *positional], named

    return _Invocation(label(method), _is_sync(method), bind, None)


def _plan(
    declared: JobType,
    fn: Callable[..., object],
    can_provide: CanProvide,
    *,
    given: int = 0,
    named: Sequence[str] = (),
) -> Plan:
    owner = f"job {declared.name!r}: {label(fn)}"
    return compile_plan(fn, owner=owner, can_provide=can_provide, given=given, named=named)


def _is_sync(fn: Callable[..., object]) -> bool:
    return kind_of(fn) is not Kind.COROUTINE


def _directly(fn: Callable[..., object], call: Callable[..., object], plan: Plan) -> _Direct | None:
    return cast("_Direct", call) if plan.is_trivial and not _is_sync(fn) else None


def _call(invocation: _Invocation) -> Call:
    bind = invocation.bind
    if invocation.is_sync:

        async def in_a_thread(job: Any, scope: RequestScope, in_thread: InThread) -> object:
            fn, positional, named = await bind(job, scope)
            answer = await in_thread(functools.partial(fn, *positional, **named))
            # A plain function may still hand back a coroutine, made by whatever it wraps.
            return await answer if inspect.isawaitable(answer) else answer

        return in_a_thread

    async def on_the_loop(job: Any, scope: RequestScope, _in_thread: InThread) -> object:
        fn, positional, named = await bind(job, scope)
        return await cast("Awaitable[object]", fn(*positional, **named))

    return on_the_loop
