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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    overload,
    runtime_checkable,
)
from weakref import WeakValueDictionary

from aqueue.contract.codec import JSON, ArgsCodec, Sensitive
from aqueue.contract.hints import Scope
from aqueue.contract.kinship import is_under
from aqueue.contract.names import check_max_attempts, check_queue_name, check_seconds
from aqueue.contract.plain import Restore, plain_restorer
from aqueue.contract.results import Keep, check_results
from aqueue.contract.retry import Backoff, BackoffFunction, check_backoff
from aqueue.contract.unique import Unique
from aqueue.errors import InvalidJob, InvalidQueueArgument, JobReconstructionError
from aqueue.payloads import default_name, payload_of_class, payload_of_function, scope_of

__all__ = [
    "JSON",
    "FunctionJob",
    "JobType",
    "Sensitive",
    "declare_payload",
    "declared_under",
    "job",
    "job_type",
]

C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")


@runtime_checkable
class _Bindable(Protocol):
    """Middleware that a worker binds to its queue first."""

    def bind(self, queue: Any, /) -> Callable[..., Awaitable[object]]:
        """Return the middleware itself."""


JobMiddleware: TypeAlias = Callable[..., Awaitable[object]] | _Bindable
"""What `@job(middleware=…)` takes: `m(delivery, call_next)`, or a limit such as `RateLimit`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobType:
    """What `@job` knows about one declared job.

    `payload` is the dataclass that carries the arguments: the decorated class, or one made of a function's
    parameters. `timeout` is in seconds. `function` is the function of a function job. `restore(raw)` returns
    the job that was pushed with these encoded arguments, in one step if `is_plain`; it raises
    `JobReconstructionError`, with its cause where the class's own constructor raised (ARG-5).
    """

    name: str
    aliases: tuple[str, ...]
    queue: str | None
    max_attempts: int | None
    backoff: Backoff | BackoffFunction | None
    timeout: float | None
    middleware: tuple[JobMiddleware, ...]
    unique: Unique | None
    results: Keep
    payload: type
    codec: ArgsCodec
    restore: Restore
    is_plain: bool
    function: Callable[..., object] | None


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
    middleware: Sequence[JobMiddleware] = (),
    unique: Unique | None = None,
    results: float | timedelta | Literal[False] | None = None,
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
    middleware: Sequence[JobMiddleware] = (),
    unique: Unique | None = None,
    results: float | timedelta | Literal[False] | None = None,
) -> object:
    """Declare a class or a function as a job, bare or with options.

    `name` is its wire name (the importable path by default); `aliases` are older names that stay readable
    (ARG-4). `queue`, `max_attempts`, `backoff` and `timeout` (seconds) are what a push and the worker use
    unless told otherwise. `middleware` runs around its handler (MID-1). While a job holds its `unique` key,
    pushes of the same key store nothing new (UNIQUE-1). What it returns is kept for `results` seconds; with
    False never, whatever the connection says (RESULT-1).

    Raises `InvalidJob` for a field that can't be restored exactly, or a bad name (ARG-2), and
    `InvalidQueueArgument` for another bad option (PUSH-1).
    """
    options = _checked(
        name=name,
        aliases=aliases,
        queue=queue,
        max_attempts=max_attempts,
        backoff=backoff,
        timeout=timeout,
        middleware=middleware,
        unique=unique,
        results=results,
    )
    scope = scope_of(sys._getframe(1))
    if target is None:
        return functools.partial(_declare, options=options, scope=scope)
    return _declare(target, options, scope)


def declare_payload(
    payload: type,
    codec: ArgsCodec,
    *,
    name: str,
    aliases: Sequence[str] = (),
    queue: str | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | BackoffFunction | None = None,
    timeout: float | timedelta | None = None,
    middleware: Sequence[JobMiddleware] = (),
) -> JobType:
    """Declare a class that was made to carry arguments, and their codec, as a job; raises as `job` does."""
    options = _checked(
        name=name,
        aliases=aliases,
        queue=queue,
        max_attempts=max_attempts,
        backoff=backoff,
        timeout=timeout,
        middleware=middleware,
    )
    return _register(_job_type(name, payload, codec, None, options))


def job_type(job_or_class: object) -> JobType:
    """Return what `@job` knows about a job, a job class or a function job.

    Raises `InvalidJob` for anything else; a subclass of a job class is not a job until it is decorated.
    """
    cls = job_or_class if isinstance(job_or_class, type) else type(job_or_class)
    declared = cls.__dict__.get("__aqueue_job__")
    if declared is not None:
        known: JobType = declared
        return known
    if isinstance(job_or_class, FunctionJob):
        return job_or_class.__aqueue_job__
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
        if is_under(payload, base):
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
    middleware: tuple[JobMiddleware, ...]
    unique: Unique | None
    results: Keep


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
    def restore(raw: bytes) -> object:
        arguments = codec.decode(raw)
        try:
            return payload(**arguments)
        except Exception as error:
            raise JobReconstructionError(
                f"job {name!r} can't be restored: its constructor raised {type(error).__name__}"
            ) from error

    plainly = plain_restorer(payload, codec, restore)
    return JobType(
        name=name,
        aliases=options.aliases,
        queue=options.queue,
        max_attempts=options.max_attempts,
        backoff=options.backoff,
        timeout=options.timeout,
        middleware=options.middleware,
        unique=options.unique,
        results=options.results,
        payload=payload,
        codec=codec,
        restore=plainly or restore,
        is_plain=plainly is not None,
        function=function,
    )


def _register(declared: JobType) -> JobType:
    setattr(declared.payload, "__aqueue_job__", declared)  # noqa: B010 - `type` declares no such attribute
    _declared[next(_order)] = declared.payload
    return declared


def _checked(
    *,
    name: str | None,
    aliases: Sequence[str],
    queue: str | None,
    max_attempts: int | None,
    backoff: Backoff | BackoffFunction | None,
    timeout: float | timedelta | None,
    middleware: Sequence[JobMiddleware],
    unique: Unique | None = None,
    results: object = None,
) -> _Options:
    return _Options(
        name=None if name is None else _check_name(name),
        aliases=_check_aliases(aliases, name),
        queue=None if queue is None else check_queue_name(queue),
        max_attempts=check_max_attempts(max_attempts),
        backoff=None if backoff is None else check_backoff(backoff),
        timeout=_check_timeout(timeout),
        middleware=_check_middleware(middleware),
        unique=_check_unique(unique),
        results=check_results(results),
    )


def _check_unique(unique: object) -> Unique | None:
    if unique is not None and not isinstance(unique, Unique):
        raise InvalidQueueArgument(f"unique must be Unique(…), not {type(unique).__name__}")
    return unique


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


def _check_middleware(middleware: object) -> tuple[JobMiddleware, ...]:
    if not isinstance(middleware, Sequence) or not all(
        callable(each) or isinstance(each, _Bindable) for each in middleware
    ):
        raise InvalidQueueArgument("middleware must be a list of callables: m(delivery, call_next)")
    return tuple(middleware)
