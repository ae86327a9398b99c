"""What listens to events: a function, or a class that is built for each; told at once, or by a job (EVENT-1).

Whatever a listener is, `call(event, …)` tells it, and the parameters after the event are injected. A queued
one has a job class of its own, whose wire name is the listener's name: so workers find it, retry it, and set
it aside under that name, and compile its parameters when they are built, as they do for every job.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from aqueue.contract.codec import ArgsCodec, FieldSpec
from aqueue.contract.hints import Refused, Scope
from aqueue.contract.retry import Backoff, BackoffFunction
from aqueue.dependencies import Depends, Kind, kind_of, label
from aqueue.errors import InvalidJob
from aqueue.event_wire import EventForm
from aqueue.handlers import refuse_generator
from aqueue.jobs import JobMiddleware, declare_payload
from aqueue.payloads import default_name


class InvokeListener:
    """The job that tells a queued listener of an event; each such listener has a subclass of its own.

    `listener` is the listener's name, which is also the job's wire name; `event` is what was dispatched.
    """

    __slots__ = ()
    listener: ClassVar[str]
    event: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """What a queued listener's jobs are called, and how they are handled; None as in `@job`."""

    name: str | None = None
    aliases: Sequence[str] = ()
    queue: str | None = None
    max_attempts: int | None = None
    backoff: Backoff | BackoffFunction | None = None
    timeout: float | timedelta | None = None
    middleware: Sequence[JobMiddleware] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """The job of a queued listener: `invoke(event)` makes one to push."""

    job: type[InvokeListener]
    codec: ArgsCodec
    events: EventForm

    def learn(self, event: type) -> None:
        """Make sure that events of this class can travel; raises `InvalidJob` naming class and field."""
        try:
            self.events.learn(event)
        except Refused as refused:
            raise _unfit(self.job.listener, refused) from None
        if self.events.hides:
            self.codec.sensitive = _EVENT

    def invoke(self, event: object) -> InvokeListener:
        """Return the job that tells the listener of this event; raises `UnserializableJob` (ARG-3)."""
        make: Callable[[object], InvokeListener] = self.job
        job = make(event)
        self.codec.encode(job)
        return job


def callable_of(listener: object) -> Callable[..., object]:
    """Return what tells the listener: `call(event, …)`; raises `InvalidJob` for what can't be told."""
    if not isinstance(listener, type):
        refuse_generator(listener, label(listener))
        assert callable(listener)
        _check_takes_event(listener, label(listener), given=1)
        return listener
    method = getattr(listener, "handle", None)
    if method is None:
        raise InvalidJob(f"{listener.__qualname__} is not a listener: it has no handle(event) method")
    refuse_generator(method, label(method))
    _check_takes_event(method, label(method), given=2)
    return _built_for_each(listener, method)


def declare_queued(
    listener: object,
    call: Callable[..., object],
    target: type,
    *,
    options: ListenerOptions,
    scope: Scope,
    others: Callable[[], Iterable[type]],
) -> Queued:
    """Make the job class of a queued listener; raises `InvalidJob` for an event that can't travel (ARG-2)."""
    name = options.name if options.name is not None else _name_of(listener)
    events = EventForm(target, scope, others)
    try:
        events.learn_known()
    except Refused as refused:
        raise _unfit(name, refused) from None
    field = FieldSpec(
        name=_EVENT, annotation=target, required=True, sensitive=False, hides=events.hides, form=events
    )
    codec = ArgsCodec(name, [field])
    job = _payload(name, call)
    declare_payload(
        job,
        codec,
        name=name,
        aliases=options.aliases,
        queue=options.queue,
        max_attempts=options.max_attempts,
        backoff=options.backoff,
        timeout=options.timeout,
        middleware=options.middleware,
    )
    return Queued(job, codec, events)


_EVENT = "event"


def _payload(name: str, call: Callable[..., object]) -> type[InvokeListener]:
    payload: type[InvokeListener] = dataclasses.make_dataclass(
        "InvokeListener",
        [(_EVENT, object)],
        bases=(InvokeListener,),
        namespace={"listener": name, "handle": _handle(call), "__repr__": _repr},
        frozen=True,
        slots=True,
    )
    payload.__module__ = getattr(call, "__module__", __name__)
    payload.__qualname__ = f"InvokeListener[{name}]"
    payload.__doc__ = f"Tells {name} of an event."
    return payload


def _repr(self: InvokeListener) -> str:
    return f"<InvokeListener {self.listener} of {type(self.event).__qualname__}>"


def _handle(call: Callable[..., object]) -> Callable[..., object]:
    """Return the job's `handle()`: the listener's own signature, with the job in the event's place."""
    if kind_of(call) is Kind.COROUTINE:

        @functools.wraps(call)
        async def handle(job: InvokeListener, /, *args: object, **named: object) -> object:
            return await call(job.event, *args, **named)  # type: ignore[misc]  # it is a coroutine function

        return handle

    @functools.wraps(call)
    def handle_in_thread(job: InvokeListener, /, *args: object, **named: object) -> object:
        return call(job.event, *args, **named)

    return handle_in_thread


def _built_for_each(listener: type, method: Callable[..., object]) -> Callable[..., object]:
    """Return a function with the signature of `handle`, to which the listener itself is injected.

    So it is built by whatever scope it is told in, its constructor's parameters found there.
    """
    if kind_of(method) is Kind.COROUTINE:

        @functools.wraps(method)
        async def told(event: object, /, *args: object, **named: Any) -> object:
            return await named.pop(_BUILT).handle(event, *args, **named)

        call: Callable[..., object] = told
    else:

        @functools.wraps(method)
        def told_in_thread(event: object, /, *args: object, **named: Any) -> object:
            answer: object = named.pop(_BUILT).handle(event, *args, **named)
            return answer

        call = told_in_thread

    _, *parameters = inspect.signature(method).parameters.values()
    itself = inspect.Parameter(
        _BUILT, inspect.Parameter.KEYWORD_ONLY, default=Depends(listener, use_cache=False)
    )
    ends_open = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    parameters.insert(len(parameters) - ends_open, itself)
    signature = inspect.Signature(parameters)
    setattr(call, "__signature__", signature)  # noqa: B010 - functions declare no such attribute
    return call


_BUILT = "__listener"


def _check_takes_event(fn: Callable[..., object], owner: str, *, given: int) -> None:
    leading = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    kinds = [each.kind for each in inspect.signature(fn).parameters.values()]
    takes = [kind in leading for kind in kinds[:given]]
    if takes != [True] * given:
        raise InvalidJob(f"{owner} is not a listener: its first parameter must be the event")


def _name_of(listener: object) -> str:
    if not hasattr(listener, "__qualname__") or "<lambda>" in listener.__qualname__:
        raise InvalidJob("this listener has no name of its own: give listen(…, queued=True) a name=")
    return default_name(listener)  # type: ignore[arg-type]  # it has a module and a name


def _unfit(name: str, refused: Refused) -> InvalidJob:
    return InvalidJob(f"listener {name!r} can't be queued: {refused}")
