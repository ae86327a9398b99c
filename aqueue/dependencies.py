"""What a callable needs, found out once: `Depends`, and the plan that says where each parameter comes from.

A plan is compiled when a worker is built, never per delivery (SCOPE-1, ARG-5). It asks its scope two things
only, see `Resolver`, so nothing here knows what a scope is made of.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MethodType, UnionType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, Union

from aqueue.contract.hints import Refused, resolve
from aqueue.errors import InvalidJob, UnresolvableParameter
from aqueue.payloads import is_marker

Lifetime: TypeAlias = Literal["function", "request"]
"""How long a dependency lives: until `handle()` ended, or until the delivery is settled (WORK-9)."""

CanProvide: TypeAlias = Callable[[type], bool]

MISSING = object()
"""What `Resolver.find` answers for a type nothing provides."""


class Resolver(Protocol):
    """What a plan asks of the scope that it is resolved in."""

    def look_up(self, wanted: type) -> object:
        """Return the value of this type if it is at hand, else `MISSING`."""

    async def find(self, wanted: type) -> object:
        """Return the value of this type wherever it comes from, or `MISSING`."""

    async def depend(self, dependency: "Dependency") -> object:
        """Return what the dependency gives in this scope."""


class DependsMarker(Protocol):
    """The shape of a `Depends(...)`, ours or FastAPI's; `scope` is optional."""

    @property
    def dependency(self) -> Callable[..., object] | None:
        """The callable that gives the value; None means the parameter's annotation."""

    @property
    def use_cache(self) -> bool:
        """Whether one value serves the whole delivery."""


@dataclass(frozen=True, slots=True)
class _Depends:
    dependency: Callable[..., object] | None
    use_cache: bool
    scope: Lifetime | None


def Depends(  # noqa: N802 - it stands where a value stands and is known by this name from FastAPI
    dependency: Callable[..., object] | None = None,
    *,
    use_cache: bool = True,
    scope: Lifetime | None = None,
) -> Any:
    """Mark a parameter as injected, as its default or inside `Annotated` (SCOPE-1).

    Without a callable the parameter's own annotation is called. The result is shared within one delivery
    unless `use_cache=False`. A generator is finished when its scope closes, with the error that ended the
    handler thrown into it: `scope="function"` before settlement, where its failure fails the attempt, the
    default `"request"` after it, where a failure is only logged (WORK-9). Plain functions and generators run
    on the event loop. The return type is `Any` on purpose: the marker is written as the default of a
    parameter of whatever type the dependency gives.
    """
    if scope not in {None, "function", "request"}:
        raise InvalidJob(f"Depends(scope={scope!r}): it is 'function' or 'request'")
    return _Depends(dependency, use_cache, scope)


class Kind(Enum):
    """How a dependency's callable gives its value."""

    VALUE = "value"
    COROUTINE = "coroutine"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async generator"


@dataclass(frozen=True, slots=True, eq=False)
class Dependency:
    """One compiled marker; `make` is its callable, or for a generator the factory of its context manager."""

    fn: Callable[..., object]
    make: Callable[..., Any]
    is_generator: bool
    plan: "Plan"
    declared: Lifetime | None
    lifetime: Lifetime
    use_cache: bool


@dataclass(frozen=True, slots=True)
class Injected:
    """One parameter and its source: a dependency, or else a type and perhaps a default to fall back on."""

    name: str
    wanted: type
    dependency: Dependency | None
    default: object
    positional: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the injected parameters of one callable come from; `is_trivial` when there are none."""

    owner: str
    injected: tuple[Injected, ...]
    is_trivial: bool
    lifetime: Lifetime

    async def arguments(self, scope: Resolver) -> tuple[list[object], dict[str, object]]:
        """Resolve every parameter, in order; raises `UnresolvableParameter` where nothing provides it."""
        positional: list[object] = []
        named: dict[str, object] = {}
        for parameter in self.injected:
            if parameter.dependency is not None:
                value = await scope.depend(parameter.dependency)
            elif (value := scope.look_up(parameter.wanted)) is MISSING:
                value = await self._search(parameter, scope)
            if parameter.positional:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named

    async def _search(self, parameter: Injected, scope: Resolver) -> object:
        value = await scope.find(parameter.wanted)
        if value is not MISSING:
            return value
        if parameter.default is MISSING:
            raise _nothing_provides(self.owner, parameter.name, parameter.wanted)
        return parameter.default


def compile_plan(
    fn: Callable[..., object],
    *,
    owner: str,
    can_provide: CanProvide,
    given: int = 0,
    named: Collection[str] = (),
) -> Plan:
    """Find a source for every parameter but the first `given` and the `named` ones, which the caller has.

    `owner` names the callable in errors. Raises `UnresolvableParameter` for a parameter that is untyped, a
    scalar or of a type `can_provide` denies, unless it has a default, which it then keeps (ARG-5), and
    `InvalidJob` where `fn` takes fewer than `given` parameters.
    """
    return _Compiler(can_provide).plan(fn, owner, given=given, named=named)


def compile_dependency(fn: Callable[..., object], replaced: Dependency | None = None) -> Dependency:
    """Compile a callable that stands in for a dependency or a type, in the lifetime of what it replaces."""
    marker = _Depends(fn, use_cache=True, scope=replaced.declared if replaced else None)
    return _Compiler(lambda _: True).dependency(marker, None, f"the override {label(fn)}")


def kind_of(fn: Callable[..., object]) -> Kind:
    """Tell how a callable gives its value: functions, partials and callable objects alike."""
    for candidate in (fn, getattr(_bare(fn), "__call__", None)):  # noqa: B004 - the method itself is inspected
        if inspect.isasyncgenfunction(candidate):
            return Kind.ASYNC_GENERATOR
        if inspect.isgeneratorfunction(candidate):
            return Kind.GENERATOR
        if inspect.iscoroutinefunction(candidate):
            return Kind.COROUTINE
        if isinstance(candidate, type):
            break
    return Kind.VALUE


def label(fn: object) -> str:
    """Name a callable for an error message."""
    bare = _bare(fn)
    return f"{getattr(bare, '__qualname__', type(bare).__qualname__)}()"


class _Compiler:
    """Compiles one callable and everything it depends on, refusing cycles."""

    def __init__(self, can_provide: CanProvide) -> None:
        self._can_provide = can_provide
        self._under_way: list[Callable[..., object]] = []

    def plan(
        self, fn: Callable[..., object], owner: str, *, given: int = 0, named: Collection[str] = ()
    ) -> Plan:
        """Compile the parameters of `fn` that its caller doesn't supply."""
        injected = tuple(
            found
            for parameter in _open_parameters(fn, owner, given, named)
            if (found := self._injected(fn, parameter, owner)) is not None
        )
        short = any(
            each.dependency is not None and each.dependency.lifetime == "function" for each in injected
        )
        return Plan(owner, injected, not injected, "function" if short else "request")

    def dependency(self, marker: DependsMarker, annotated: type | None, owner: str) -> Dependency:
        """Compile a marker found on a parameter of `owner`."""
        fn = marker.dependency if marker.dependency is not None else annotated
        if not callable(fn) or not isinstance(fn, Hashable):
            raise UnresolvableParameter(
                f"{owner}: Depends() needs a hashable callable, or a class as annotation"
            )
        if fn in self._under_way:
            raise UnresolvableParameter(f"{owner}: {label(fn)} depends on itself")

        self._under_way.append(fn)
        plan = self.plan(fn, f"{owner} <- {label(fn)}")
        self._under_way.pop()

        kind, declared = kind_of(fn), getattr(marker, "scope", None)
        wrap = _FACTORIES.get(kind)
        return Dependency(
            fn=fn,
            make=fn if wrap is None else wrap(fn),
            is_generator=wrap is not None,
            plan=plan,
            declared=declared,
            lifetime=_lifetime(declared, plan, is_generator=wrap is not None),
            use_cache=marker.use_cache,
        )

    def _injected(
        self, fn: Callable[..., object], parameter: inspect.Parameter, owner: str
    ) -> Injected | None:
        """Find the source of one parameter; None where it simply keeps its default."""
        where = f"{owner} parameter {parameter.name!r}"
        default = MISSING if parameter.default is parameter.empty else parameter.default
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        hint, extras = _annotation(fn, parameter)
        wanted = _injectable(hint)

        marker = next((each for each in (default, *reversed(extras)) if is_marker(each)), None)
        if marker is not None:
            compiled = self.dependency(typing.cast("DependsMarker", marker), wanted, where)
            return Injected(parameter.name, object, compiled, MISSING, positional)

        if any(_is_request_field(each) for each in (default, *extras)):
            raise UnresolvableParameter(f"{where} is a part of an HTTP request, and a job has none")
        if wanted is not None and self._can_provide(wanted):
            return Injected(parameter.name, wanted, None, default, positional)
        if default is not MISSING:
            return None
        if wanted is not None:
            raise _nothing_provides(owner, parameter.name, wanted)
        raise UnresolvableParameter(
            f"{where} ({_shown(parameter.annotation)}) can't be found by its type: "
            "annotate it with an importable class, or give it Depends(...) or a default"
        )


def _open_parameters(
    fn: Callable[..., object], owner: str, given: int, named: Collection[str]
) -> Iterator[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError, NameError) as error:
        raise UnresolvableParameter(f"{owner} has no signature that could be read: {error}") from error

    leading = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    takes_more = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if given > sum(each.kind in leading for each in parameters) and not takes_more:
        raise InvalidJob(
            f"{owner} must take {given} positional parameter(s), self and the job, before injected ones"
        )

    bound = _bound_names(fn)
    for position, parameter in enumerate(parameters):
        variadic = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        supplied = (position < given and parameter.kind in leading) or parameter.name in named
        if not variadic and not supplied and parameter.name not in bound:
            yield parameter


def _bound_names(fn: object) -> set[str]:
    names: set[str] = set()
    while isinstance(fn, functools.partial):
        names.update(fn.keywords)
        fn = fn.func
    return names


def _annotation(fn: Callable[..., object], parameter: inspect.Parameter) -> tuple[object, tuple[object, ...]]:
    """Return the annotation and its `Annotated` extras; an annotation nobody can evaluate is none at all."""
    hint: object = parameter.annotation
    if isinstance(hint, str):
        try:
            hint = resolve(hint, _namespace(fn), {}, parameter.name)
        except Refused:
            # Only some parameters matter: one with Depends() or a default needs no annotation.
            return parameter.empty, ()
    if typing.get_origin(hint) is typing.Annotated:
        inner, *extras = typing.get_args(hint)
        return inner, tuple(extras)
    return hint, ()


def _namespace(fn: object) -> dict[str, Any]:
    bare = _bare(fn)
    if isinstance(bare, type):
        bare = getattr(bare, "__init__", None)
    elif not hasattr(bare, "__globals__"):
        bare = getattr(type(bare), "__call__", None)  # noqa: B004 - the method itself is inspected
    found: dict[str, Any] = getattr(bare, "__globals__", {})
    return found


def _bare(fn: Any) -> Any:
    """Return the function or class below partials, methods and `functools.wraps` decorators."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif callable(fn) and hasattr(fn, "__wrapped__") and not isinstance(fn, type):
            fn = inspect.unwrap(fn)
        else:
            return fn


_NEVER_BY_TYPE: frozenset[object] = frozenset(
    {
        inspect.Parameter.empty, Any, object, type(None), str, bytes, bytearray, int, float, complex, bool,
        list, tuple, dict, set, frozenset, type,
    }
)  # fmt: skip


def _injectable(hint: object) -> type | None:
    """Return the type to look up for an annotation, or None for one that says too little (ARG-5)."""
    if typing.get_origin(hint) in {Union, UnionType}:
        options = [each for each in typing.get_args(hint) if each is not type(None)]
        hint = options[0] if len(options) == 1 else None
    if hint is None or isinstance(hint, str | TypeVar) or typing.get_origin(hint) is Literal:
        return None
    try:
        if hint in _NEVER_BY_TYPE:
            return None
    except TypeError:  # unhashable: such an annotation can't be a key
        return None
    return typing.cast("type", hint)


def _is_request_field(thing: object) -> bool:
    """Whether it is FastAPI's Query, Header, Body … by the place of its class; nothing is imported to see."""
    return any(base.__module__ == "fastapi.params" for base in type(thing).__mro__)


def _lifetime(declared: Lifetime | None, plan: Plan, *, is_generator: bool) -> Lifetime:
    outlives = declared == "request" or (declared is None and is_generator)
    if plan.lifetime == "function" and outlives:
        raise UnresolvableParameter(
            f"{plan.owner} lives until the delivery is settled, but needs a dependency that closes before: "
            "give it scope='function' too"
        )
    return declared if declared is not None else plan.lifetime


_FACTORIES: Mapping[Kind, Callable[[Any], Callable[..., Any]]] = {
    Kind.GENERATOR: contextmanager,
    Kind.ASYNC_GENERATOR: asynccontextmanager,
}


def _nothing_provides(owner: str, name: str, wanted: type) -> UnresolvableParameter:
    return UnresolvableParameter(
        f"{owner} parameter {name!r}: nothing provides {_shown(wanted)}; "
        "add it to AppScope(values=...), or give it Depends(...) or a default"
    )


def _shown(hint: object) -> str:
    if hint is inspect.Parameter.empty:
        return "no annotation"
    return getattr(hint, "__qualname__", None) or str(hint)
