"""`@job`: what a job is, its options, its wire name, and how it comes back from the wire.

    @job(name="emails.welcome", queue="emails")
    class SendWelcome:
        email: str
        async def handle(self, mailer: Mailer) -> None: ...

    @job
    async def resize(image_id: int, width: int = 640, *, store: Store = Depends(get_store)) -> None: ...

A class becomes a frozen, slotted dataclass. A function keeps being called as before; `resize.job(42)` makes
the job. Whatever can't travel exactly is refused here, when the job is declared (ARG-2).
"""

import dataclasses
import functools
import itertools
import sys
from abc import ABCMeta
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType
from typing import (
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    dataclass_transform,
    overload,
)
from weakref import WeakValueDictionary

from aqueue.contract.codec import JSON, ArgsCodec, Sensitive
from aqueue.contract.hints import Scope, annotations_of
from aqueue.contract.names import check_max_attempts, check_queue_name, check_seconds
from aqueue.contract.plain import plain_restorer
from aqueue.contract.retry import Backoff, BackoffFunction, check_backoff
from aqueue.errors import InvalidJob, InvalidQueueArgument, JobReconstructionError
from aqueue.payloads import default_name, payload_of_class, payload_of_function, scope_of

__all__ = ["JSON", "FunctionJob", "JobType", "Sensitive", "declared_under", "job", "job_type"]

C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobType:
    """What `@job` knows about one declared job.

    `payload` is the dataclass that carries the arguments: the decorated class, or one made of a function's
    parameters. `timeout` is in seconds. `function` is the function of a function job. `plain` restores a job
    of plain arguments in one step, where it is one.
    """

    name: str
    aliases: tuple[str, ...]
    queue: str | None
    max_attempts: int | None
    backoff: Backoff | BackoffFunction | None
    timeout: float | None
    middleware: tuple[Callable[..., Awaitable[object]], ...]
    payload: type
    codec: ArgsCodec
    plain: Callable[[bytes], object | None] | None
    function: Callable[..., object] | None

    def restore(self, raw: bytes) -> object:
        """Return the job that `raw`, its encoded arguments, was pushed as.

        Raises `JobReconstructionError`, with its cause where the class's own constructor raised (ARG-5).
        """
        if self.plain is not None and (restored := self.plain(raw)) is not None:
            return restored
        arguments = self.codec.decode(raw)
        try:
            return self.payload(**arguments)
        except Exception as error:
            raise JobReconstructionError(
                f"job {self.name!r} can't be restored: its constructor raised {type(error).__name__}"
            ) from error


class FunctionJob(Generic[P, R]):
    """A function that is a job: call it as before, or make a job of the call with `.job(...)`."""

    __aqueue_job__: JobType
    __name__: str
    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], declared: JobType) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._payload: Callable[..., object] = declared.payload
        self.__aqueue_job__ = declared

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with nothing injected."""
        return self._function(*args, **kwargs)

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> object:
        """Return the job to push; parameters marked Depends are not arguments of it."""
        return self._payload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.__aqueue_job__.name!r}>"


class _Decorator(Protocol):
    """What `job(...)` with options returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a class is callable too, and meant first
        self, target: C, /
    ) -> C: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> FunctionJob[P, R]: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, dataclasses.Field))
def job(  # type: ignore[overload-overlap]  # a class is callable too, and meant first
    target: C, /
) -> C: ...
@overload
def job(target: Callable[P, R], /) -> FunctionJob[P, R]: ...
@overload
def job(
    *,
    name: str | None = None,
    queue: str | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | BackoffFunction | None = None,
    timeout: float | timedelta | None = None,
    aliases: Sequence[str] = (),
    middleware: Sequence[Callable[..., Awaitable[object]]] = (),
) -> _Decorator: ...


def job(
    target: object = None,
    /,
    *,
    name: str | None = None,
    queue: str | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | BackoffFunction | None = None,
    timeout: float | timedelta | None = None,
    aliases: Sequence[str] = (),
    middleware: Sequence[Callable[..., Awaitable[object]]] = (),
) -> object:
    """Declare a class or a function as a job, bare or with options.

    `name` is its wire name (the importable path by default); `aliases` are older names that stay readable
    (ARG-4). `queue`, `max_attempts`, `backoff` and `timeout` (seconds) are what a push and the worker use
    unless told otherwise. `middleware` runs around its handler (MID-1).

    Raises `InvalidJob` for a field that can't be restored exactly, or a bad name (ARG-2), and
    `InvalidQueueArgument` for another bad option (PUSH-1).
    """
    options = _Options(
        name=None if name is None else _check_name(name),
        aliases=_check_aliases(aliases, name),
        queue=None if queue is None else check_queue_name(queue),
        max_attempts=check_max_attempts(max_attempts),
        backoff=None if backoff is None else check_backoff(backoff),
        timeout=_check_timeout(timeout),
        middleware=_check_middleware(middleware),
    )
    scope = scope_of(sys._getframe(1))
    if target is None:
        return functools.partial(_declare, options=options, scope=scope)
    return _declare(target, options, scope)


def job_type(job_or_class: object) -> JobType:
    """Return what `@job` knows about a job, a job class or a function job.

    Raises `InvalidJob` for anything else; a subclass of a job class is not a job until it is decorated.
    """
    cls = type(job_or_class)
    declared = cls.__dict__.get("__aqueue_job__")
    if declared is None and isinstance(job_or_class, type):
        cls = job_or_class
        declared = cls.__dict__.get("__aqueue_job__")
    elif declared is None and isinstance(job_or_class, FunctionJob):
        declared = job_or_class.__aqueue_job__
    if isinstance(declared, JobType):
        return declared
    if cls is FunctionJob:
        raise InvalidJob(
            "a function job is pushed with its arguments: push(resize.job(42)), not push(resize)"
        )
    raise InvalidJob(f"{cls.__module__}.{cls.__qualname__} is not a job: decorate its class with @aqueue.job")


def declared_under(base: type) -> Iterator[JobType]:
    """Yield every job type declared so far, in order, that is, extends or implements `base`.

    A Protocol, runtime-checkable or not, is implemented by a class that has all its members (TOPIC-2).
    """
    for payload in list(_declared.values()):
        if _is_under(payload, base):
            yield job_type(payload)


_declared: WeakValueDictionary[int, type] = WeakValueDictionary()
"""Payload classes in the order of their declaration: what a handler of a base class looks through."""

_order = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    name: str | None
    aliases: tuple[str, ...]
    queue: str | None
    max_attempts: int | None
    backoff: Backoff | BackoffFunction | None
    timeout: float | None
    middleware: tuple[Callable[..., Awaitable[object]], ...]


def _declare(target: object, options: _Options, scope: Scope) -> object:
    if isinstance(target, type):
        return _declare_class(target, options, scope)
    if isinstance(target, FunctionType):
        return _declare_function(target, options, scope)
    raise InvalidJob(f"@job goes on a class or a plain function, not on {type(target).__name__}")


def _declare_class(cls: type, options: _Options, scope: Scope) -> type:
    name = options.name or default_name(cls)
    payload, codec = payload_of_class(cls, name, scope)
    _register(_job_type(name, payload, codec, None, options))
    return payload


def _declare_function(function: FunctionType, options: _Options, scope: Scope) -> FunctionJob[..., object]:
    name = options.name or default_name(function)
    payload, codec = payload_of_function(function, name, scope)
    return FunctionJob(function, _register(_job_type(name, payload, codec, function, options)))


def _job_type(
    name: str, payload: type, codec: ArgsCodec, function: Callable[..., object] | None, options: _Options
) -> JobType:
    return JobType(
        name=name,
        aliases=options.aliases,
        queue=options.queue,
        max_attempts=options.max_attempts,
        backoff=options.backoff,
        timeout=options.timeout,
        middleware=options.middleware,
        payload=payload,
        codec=codec,
        plain=plain_restorer(payload, codec),
        function=function,
    )


def _register(declared: JobType) -> JobType:
    setattr(declared.payload, "__aqueue_job__", declared)  # noqa: B010 - `type` declares no such attribute
    _declared[next(_order)] = declared.payload
    return declared


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
        raise InvalidJob(f"{name!r} is not a job name: give printable text without spaces around it")
    return str(name)


def _check_aliases(aliases: object, name: str | None) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise InvalidJob(f"aliases must be a list of names, not {type(aliases).__name__}")
    checked = tuple(_check_name(alias) for alias in aliases)
    if len({*checked, name}) != len(checked) + 1:
        raise InvalidJob("aliases must differ from each other and from the job's name")
    return checked


def _check_timeout(timeout: object) -> float | None:
    if timeout is None:
        return None
    seconds = check_seconds(timeout, "timeout")
    if seconds == 0:
        raise InvalidQueueArgument("timeout must be more than 0 seconds; leave it out for no timeout")
    return seconds


def _check_middleware(middleware: object) -> tuple[Callable[..., Awaitable[object]], ...]:
    if not isinstance(middleware, Sequence) or not all(callable(each) for each in middleware):
        raise InvalidQueueArgument("middleware must be a list of callables: m(delivery, call_next)")
    return tuple(middleware)


def _is_under(payload: type, base: type) -> bool:
    if base in payload.__mro__:
        return True
    if getattr(base, "_is_protocol", False):
        members = _protocol_members(base)
        return bool(members) and all(getattr(payload, member, None) is not None for member in members)
    return isinstance(base, ABCMeta) and issubclass(payload, base)


def _protocol_members(protocol: type) -> set[str]:
    """Return the names a class must have to implement the Protocol."""
    members: set[str] = set()
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base.__name__ != "Protocol":
            members |= vars(base).keys() | annotations_of(base).keys()
    return {
        name for name in members if name not in _NOT_MEMBERS and not name.startswith(("_abc_", "__static_"))
    }


_NOT_MEMBERS = {
    *vars(type("_Plain", (Protocol,), {})),
    *("__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__", "__class_getitem__"),
    *("__firstlineno__", "__hash__", "__match_args__", "__non_callable_proto_members__", "__orig_bases__"),
    *("_is_runtime_protocol", "__protocol_attrs__", "__slots__", "__type_params__"),
}
