"""What a handler's parameters are found in: one `RequestScope` per delivery, made by a `ScopeProvider`.

The life of a scope, as the runner drives it (WORK-1, WORK-9)::

    scope = provider.begin(delivery, builtins)           # plain call, allocates one small object
    if scope.initializers: await scope.initialize()
    ...                                                   # the handler runs
    if scope.has_function_exits: await scope.close_function_scope(error)      # before settlement
    ...                                                   # settled, reported
    if scope.has_exits: await scope.close(error)

Nothing here touches context variables, starts a task or shields: a scope lives in the task that runs its
delivery, and shielding its closing is the runner's part.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import msgspec

from aqueue.delivery import Delivery
from aqueue.dependencies import MISSING, Dependency, Lifetime, compile_dependency
from aqueue.errors import UnresolvableParameter

T = TypeVar("T")

Builtins: TypeAlias = Mapping[type, Callable[[Delivery], object]]
"""What every scope of a worker gives by type: a function per type, asked only when a handler wants it."""

Fallback: TypeAlias = Callable[[Any], Awaitable[object]]
"""Where a scope looks last; a dependency injection library's own `get`."""

_Exit: TypeAlias = Callable[[BaseException | None], Awaitable[object] | None]


class ScopeProvider(Protocol):
    """Makes the scope of each delivery: `AppScope`, or an adapter for dishka, wireup, svcs or your own.

    An adapter returns `RequestScope(delivery, builtins, sources)` with one initializer that enters the
    library's own scope and makes it the scope's fallback::

        async def enter(scope: RequestScope) -> None:
            child = await scope.enter(container())
            scope.fall_back_on(child.get)
    """

    def begin(self, delivery: Delivery, builtins: Builtins) -> "RequestScope":
        """Make the scope of one delivery. Called for each, so it must be cheap and must not fail."""

    def can_provide(self, wanted: type) -> bool:
        """Whether a scope may have a value of this type; asked when the worker is built (ARG-5)."""


class Overrides:
    """Replacements of callables and types: a mapping read live, and on top of it temporary ones."""

    __slots__ = ("_compiled", "given", "temporary")

    def __init__(self, given: Mapping[Callable[..., object], Callable[..., object]]) -> None:
        self.given = given
        self.temporary: dict[Callable[..., object], Callable[..., object]] = {}
        self._compiled: dict[tuple[object, object], Dependency] = {}

    def find(self, original: Callable[..., object], replaced: Dependency | None = None) -> Dependency | None:
        """Return the compiled replacement of a callable or type, or None; compiled when first met."""
        replacement = self.temporary.get(original) or self.given.get(original)
        if replacement is None:
            return None
        key = (replacement, replaced.declared if replaced is not None else None)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = compile_dependency(replacement, replaced)
        return compiled

    @contextmanager
    def replace(self, original: Callable[..., object], replacement: Callable[..., object]) -> Iterator[None]:
        """Replace while the block runs; blocks nest."""
        before = self.temporary.get(original)
        self.temporary[original] = replacement
        try:
            yield
        finally:
            if before is None:
                del self.temporary[original]
            else:
                self.temporary[original] = before


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What all scopes of one provider share."""

    values: Mapping[type, object] = field(default_factory=dict)
    initializers: Sequence["Initializer"] = ()
    overrides: Overrides = field(default_factory=lambda: Overrides({}))


class _Tier:
    """What lives equally long in a scope: values made once, and what to close, last in, first out."""

    __slots__ = ("exits", "made")

    def __init__(self) -> None:
        self.made: dict[Callable[..., object], object] = {}
        self.exits: list[_Exit] = []


class _Held:
    """What a scope has only once something is put in it; most deliveries need none of it."""

    __slots__ = ("fallback", "function", "request", "values")

    def __init__(self) -> None:
        self.values: dict[type, object] = {}
        self.fallback: Fallback | None = None
        self.function = _Tier()
        self.request = _Tier()


class RequestScope(msgspec.Struct, eq=False):
    """The values and resources of one delivery (SCOPE-1). Nothing is allocated in it until it is needed.

    `has_function_exits` and `has_exits` tell whether closing would do anything; they are plain attributes
    because every delivery asks.
    """

    delivery: Delivery
    _builtins: Builtins
    _sources: "Sources"
    has_function_exits: bool = False
    has_exits: bool = False
    _is_initialized: bool = False
    _held: _Held | None = None

    def __repr__(self) -> str:
        return f"<RequestScope of {self.delivery!r}>"

    @property
    def initializers(self) -> "Sequence[Initializer]":
        """Those that `initialize()` has still to run."""
        return () if self._is_initialized else self._sources.initializers

    async def initialize(self) -> None:
        """Run the initializers in order, once. If one raises, the scope still has to be closed."""
        pending, self._is_initialized = self.initializers, True
        for initializer in pending:
            answer = initializer(self)
            if inspect.isawaitable(answer):
                await answer

    def add(self, wanted: type, value: object) -> None:
        """Give this delivery's handler and dependencies a value by type; a later one replaces an earlier."""
        self._hold().values[wanted] = value

    def fall_back_on(self, get: Fallback) -> None:
        """Ask this function for every type that nothing else in the scope knows."""
        self._hold().fallback = get

    async def get(self, wanted: type[T]) -> T:
        """Return the value of this exact type; raises `UnresolvableParameter` where there is none."""
        value = await self.find(wanted)
        if value is MISSING:
            raise UnresolvableParameter(
                f"nothing provides {getattr(wanted, '__qualname__', wanted)} in this scope"
            )
        return cast("T", value)

    async def enter(self, manager: AbstractAsyncContextManager[T] | AbstractContextManager[T]) -> T:
        """Enter a context manager, async or plain, and exit it when the scope closes, after settlement.

        The exit sees the error that ended the handler, but can't suppress it.
        """
        entered, leave = await _enter(manager)
        self._at_exit(leave, "request")
        return cast("T", entered)

    def callback(self, call: Callable[[], Awaitable[object] | None]) -> None:
        """Have a function, async or plain, called when the scope closes, after settlement."""
        self._at_exit(lambda _: call(), "request")

    def look_up(self, wanted: type) -> object:
        """Return the value of this exact type if it is at hand, else `MISSING`.

        What was added to this scope comes first, then the worker's own (`Delivery`, `Queue`, the current
        span), then the application's values. An overridden type is never at hand.
        """
        sources, held = self._sources, self._held
        overrides = sources.overrides
        if (overrides.given or overrides.temporary) and overrides.find(wanted) is not None:
            return MISSING
        if held is not None and wanted in held.values:
            return held.values[wanted]
        if (builtin := self._builtins.get(wanted)) is not None:
            return builtin(self.delivery)
        if wanted in sources.values:
            return sources.values[wanted]
        return self if wanted is RequestScope else MISSING

    async def find(self, wanted: type) -> object:
        """Return the value of this exact type, or `MISSING`: overridden, at hand, or from the fallback."""
        replacement = self._sources.overrides.find(wanted)
        if replacement is not None:
            return await self._give(wanted, replacement, use_cache=True)
        value = self.look_up(wanted)
        held = self._held
        if value is MISSING and held is not None and held.fallback is not None:
            return await held.fallback(wanted)
        return value

    async def depend(self, dependency: Dependency) -> object:
        """Return what a dependency gives: its value made before, or a new one."""
        overrides = self._sources.overrides
        if overrides.given or overrides.temporary:
            replacement = overrides.find(dependency.fn, dependency) or dependency
            return await self._give(dependency.fn, replacement, use_cache=dependency.use_cache)
        return await self._give(dependency.fn, dependency, use_cache=dependency.use_cache)

    async def close_function_scope(self, error: BaseException | None) -> None:
        """Close what was declared `scope="function"`: after `handle()`, before settlement (WORK-9).

        Takes the error that ended the handler, and forgets the values, so that a handler called again gets
        new ones. See `close` for what it raises.
        """
        held = self._held
        if held is not None:
            tier, held.function = held.function, _Tier()
            self.has_function_exits = False
            closing = _Closing(error)
            await closing.run(tier.exits)
            closing.report()

    async def close(self, error: BaseException | None) -> None:
        """Close everything left, last in, first out; safe to call twice (WORK-9).

        `error` is what ended the handler; it is thrown into generators so that they roll back, and never
        raised from here. Without one, the first failure of a closing takes its place for those still open. A
        failing one stops no other: the failures are raised at the end, one as itself, several as an
        `ExceptionGroup`. A cancellation is raised in preference to them and skips nothing either, so a
        deadline on this must be a level one (an anyio scope).
        """
        held = self._held
        if held is not None:
            closing = _Closing(error)
            await closing.run(held.function.exits)
            await closing.run(held.request.exits)
            self._held = None
            self.has_function_exits = self.has_exits = False
            closing.report()

    def _hold(self) -> _Held:
        if self._held is None:
            self._held = _Held()
        return self._held

    async def _give(
        self, original: Callable[..., object], dependency: Dependency, *, use_cache: bool
    ) -> object:
        held = self._hold()
        tier = held.function if dependency.lifetime == "function" else held.request
        if use_cache and original in tier.made:
            return tier.made[original]

        positional, named = await dependency.plan.arguments(self)
        made: Any = dependency.make(*positional, **named)
        if dependency.is_generator:
            made, leave = await _enter(made)
            self._at_exit(leave, dependency.lifetime)
        elif inspect.iscoroutine(made):
            made = await made

        if use_cache:
            tier.made[original] = made
        return made

    def _at_exit(self, leave: _Exit, lifetime: Lifetime) -> None:
        self.has_exits = True
        if lifetime == "function":
            self.has_function_exits = True
            self._hold().function.exits.append(leave)
        else:
            self._hold().request.exits.append(leave)


Initializer: TypeAlias = Callable[[RequestScope], Awaitable[None] | None]
"""Prepares each scope: adds values, enters context managers."""


class AppScope:
    """What an application gives its handlers (SCOPE-1).

    `values` are shared by all deliveries and found by their exact type. Every initializer, async or plain,
    runs on each new `RequestScope`. `overrides` maps a dependency's callable, or a type, to the callable
    that replaces it; it is read live, so FastAPI's `app.dependency_overrides` fits.
    """

    def __init__(
        self,
        values: Mapping[type, object] | None = None,
        initializers: Sequence[Initializer] = (),
        *,
        overrides: Mapping[Callable[..., object], Callable[..., object]] | None = None,
    ) -> None:
        self._sources = Sources(
            values=dict(values or {}),
            initializers=tuple(initializers),
            overrides=Overrides({} if overrides is None else overrides),
        )

    def begin(self, delivery: Delivery, builtins: Builtins) -> RequestScope:
        """Make the scope of one delivery."""
        return RequestScope(delivery, builtins, self._sources)

    def can_provide(self, wanted: type) -> bool:
        """Whether a scope may have a value of this type; with initializers, which may add any, always."""
        sources = self._sources
        return (
            wanted in sources.values
            or bool(sources.initializers)
            or sources.overrides.find(wanted) is not None
        )

    def override(
        self, original: Callable[..., object], replacement: Callable[..., object]
    ) -> AbstractContextManager[None]:
        """Replace a dependency, or a type, by what `replacement` gives while the `with` block runs.

        Every scope of this `AppScope` sees it, in whatever task it lives; that is what a test wants.
        """
        return self._sources.overrides.replace(original, replacement)


async def _enter(manager: Any) -> tuple[Any, _Exit]:
    if hasattr(type(manager), "__aenter__"):
        entered, leave = await manager.__aenter__(), manager.__aexit__
    else:
        entered, leave = manager.__enter__(), manager.__exit__
    return entered, lambda error: leave(*_details(error))


def _details(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


class _Closing:
    """Runs exits, collecting what they raise, and raises it as one at the end."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error
        self._failures: list[Exception] = []
        self._interruption: BaseException | None = None

    async def run(self, exits: list[_Exit]) -> None:
        """Run them last in, first out, those that are added meanwhile too."""
        while exits:
            await self._leave(exits.pop())

    def report(self) -> None:
        """Raise what was collected, if anything."""
        failure: Exception | None = None
        if self._failures:
            several = len(self._failures) > 1
            failure = (
                ExceptionGroup("closing the scope failed", self._failures) if several else self._failures[0]
            )
        if self._interruption is not None:
            raise self._interruption from failure
        if failure is not None:
            raise failure

    async def _leave(self, leave: _Exit) -> None:
        try:
            answer = leave(self._error)
            if inspect.isawaitable(answer):
                await answer
        except BaseException as raised:  # noqa: BLE001 - raised by report(), once the others are closed too
            if raised is self._error:
                return
            if self._error is None:
                self._error = raised
            if isinstance(raised, Exception):
                self._failures.append(raised)
            elif self._interruption is None:
                self._interruption = raised
