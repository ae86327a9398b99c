"""`Dispatcher`: says that something happened to whoever listens, now or by a job on a queue (EVENT-1).

An event is a value of its own class; who dispatches it knows none of its listeners. Inline listeners run
inside `dispatch`, in order; queued ones each get an `InvokeListener` job, which a worker handles like any
other: `handlers.add(*dispatcher.jobs)`.
"""

import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, overload

import anyio
import msgspec

from aqueue.contract.envelope import VERSION, Envelope
from aqueue.contract.hints import Scope
from aqueue.contract.kinship import is_under
from aqueue.contract.retry import Backoff, BackoffFunction
from aqueue.delivery import Delivery
from aqueue.dependencies import CanProvide, Plan, compile_plan, label
from aqueue.errors import InvalidJob, InvalidQueueArgument, StopPropagation
from aqueue.events import log_quietly
from aqueue.handling import LONGEST_CLOSING, closing_deadline
from aqueue.jobs import JobMiddleware
from aqueue.listeners import InvokeListener, ListenerOptions, Queued, callable_of, declare_queued
from aqueue.payloads import default_name, scope_of
from aqueue.port import Reserved
from aqueue.queue import Queue
from aqueue.scope import AppScope, Builtins, RequestScope, ScopeProvider

H = TypeVar("H", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """One registration: the class it hears of, what tells it, and its job if it is queued."""

    target: type
    call: Callable[..., object]
    queued: Queued | None


@dataclass(frozen=True, slots=True, eq=False)
class _Heard:
    """A listener of one class of event; `plan` says what an inline one is injected."""

    listener: _Listener
    plan: Plan | None


class Dispatcher:
    """Listeners, and a way to tell them of events.

    `queue` is where queued listeners' jobs are pushed; a dispatcher that only lends its `jobs` to a worker
    needs none. `scope` is what inline listeners' parameters come from, as a worker's `scope=` is for
    handlers: every `dispatch` makes one `RequestScope` and closes it when it ends. Its `delivery` stands in
    for one, under the event's name, and listeners can't ask for it.
    """

    def __init__(self, queue: Queue | None = None, *, scope: ScopeProvider | None = None) -> None:
        self._queue = queue
        self._provider: ScopeProvider = scope if scope is not None else AppScope()
        self._builtins: Builtins = {} if queue is None else {Queue: lambda _: queue}
        self._can_provide: CanProvide = lambda wanted: (
            wanted in self._builtins or wanted is RequestScope or self._provider.can_provide(wanted)
        )
        self._listeners: list[_Listener] = []
        self._heard: dict[type, list[_Heard]] = {}

    def __repr__(self) -> str:
        return f"<Dispatcher of {len(self._listeners)} listeners, {len(self.jobs)} of them queued>"

    @overload
    def listen(
        self,
        event: type[object],
        listener: None = None,
        *,
        queued: bool = False,
        queue: str | None = None,
        name: str | None = None,
        aliases: Sequence[str] = (),
        max_attempts: int | None = None,
        backoff: Backoff | BackoffFunction | None = None,
        timeout: float | timedelta | None = None,
        middleware: Sequence[JobMiddleware] = (),
    ) -> Callable[[H], H]: ...
    @overload
    def listen(
        self,
        event: type[object],
        listener: H,
        *,
        queued: bool = False,
        queue: str | None = None,
        name: str | None = None,
        aliases: Sequence[str] = (),
        max_attempts: int | None = None,
        backoff: Backoff | BackoffFunction | None = None,
        timeout: float | timedelta | None = None,
        middleware: Sequence[JobMiddleware] = (),
    ) -> H: ...

    def listen(
        self,
        event: type[object],
        listener: Any = None,
        *,
        queued: bool = False,
        queue: str | None = None,
        name: str | None = None,
        aliases: Sequence[str] = (),
        max_attempts: int | None = None,
        backoff: Backoff | BackoffFunction | None = None,
        timeout: float | timedelta | None = None,
        middleware: Sequence[JobMiddleware] = (),
    ) -> Any:
        """Register a listener for a class of event and whatever extends or implements it.

        As a decorator, or directly. A listener is a function whose first parameter is the event, or a class
        with `handle(event)`, built anew each time; all other parameters are injected. With `queued` it is
        told by a job on `queue` (`default`); `name` is the job's wire name (the listener's import path by
        default), and the rest is as for `@job`.

        Raises `InvalidJob` for what is no listener, for two queued listeners of one name, and for a queued
        one's event that could not come back from the wire, naming its class and field (ARG-2);
        `InvalidQueueArgument` for another bad option, or one that only a queued listener has.
        """
        if not isinstance(event, type):
            raise InvalidJob(f"listen() takes a class of event, not {event!r}")
        options = ListenerOptions(
            name=name,
            aliases=aliases,
            queue=queue,
            max_attempts=max_attempts,
            backoff=backoff,
            timeout=timeout,
            middleware=middleware,
        )
        if not queued and options != ListenerOptions():
            raise InvalidQueueArgument("an inline listener has no options: did you mean queued=True?")
        scope = scope_of(sys._getframe(1))
        wanted = options if queued else None
        if listener is None:
            return lambda decorated: self._register(event, decorated, wanted, scope)
        return self._register(event, listener, wanted, scope)

    @property
    def jobs(self) -> tuple[type[InvokeListener], ...]:
        """The job of each queued listener, for a worker: `handlers.add(*dispatcher.jobs)`."""
        return tuple(each.queued.job for each in self._listeners if each.queued is not None)

    async def dispatch(self, event: object, *, connection: object | None = None) -> None:
        """Tell every listener of the event, in order of registration; nobody listening is fine (EVENT-1).

        Whether all parts can be told is found out first, with nothing told. Then inline listeners run in
        this task, a plain `def` on the event loop. What one raises is raised from here: later listeners
        don't run, and no job is pushed. `StopPropagation` ends it at that listener without an error. Last,
        the queued listeners before that point get their jobs, together: all or none where the store can
        (`Queue.push_many`), and inside the caller's own transaction with `connection` (PUSH-8).

        Raises `InvalidQueueArgument` where a queued listener is to be told and there is no queue,
        `UnserializableJob`, `UnresolvableParameter`, and what `push_many` raises; by then inline listeners
        have run. Cancelling cancels the listener that runs.
        """
        if isinstance(event, type):
            raise InvalidJob(f"dispatch() takes an event, not the class {event.__qualname__} itself")
        heard = self._listeners_of(type(event))
        jobs = self._jobs_for(heard, event)
        if not any(each.plan is not None and not each.plan.is_trivial for each in heard):
            await self._tell(heard, event, jobs, None, connection)
            return

        scope = self._provider.begin(_stand_in(event), self._builtins)
        error: BaseException | None = None
        try:
            if scope.initializers:
                await scope.initialize()
            await self._tell(heard, event, jobs, scope, connection)
        except BaseException as raised:
            error = raised
            raise
        finally:
            await _close(scope, error)

    def _register(self, event: type, listener: H, options: ListenerOptions | None, scope: Scope) -> H:
        call = callable_of(listener)
        queued = None
        if options is not None:
            queued = declare_queued(listener, call, event, options=options, scope=scope, others=self._targets)
            if any(queued.job.listener == job.listener for job in self.jobs):
                raise InvalidJob(
                    f"two queued listeners are called {queued.job.listener!r}: give one another name="
                )
        self._listeners.append(_Listener(event, call, queued))
        self._heard.clear()
        return listener

    def _targets(self) -> list[type]:
        return [each.target for each in self._listeners]

    def _listeners_of(self, event: type) -> list[_Heard]:
        heard = self._heard.get(event)
        if heard is None:
            under = [each for each in self._listeners if is_under(event, each.target)]
            heard = self._heard[event] = [self._made_ready(each, event) for each in under]
        return heard

    def _made_ready(self, listener: _Listener, event: type) -> _Heard:
        if listener.queued is not None:
            listener.queued.learn(event)
            return _Heard(listener, None)
        owner = f"event {event.__qualname__}: {label(listener.call)}"
        plan = compile_plan(listener.call, owner=owner, can_provide=self._can_provide, given=1)
        return _Heard(listener, plan)

    def _jobs_for(self, heard: Sequence[_Heard], event: object) -> dict[_Listener, InvokeListener]:
        """Make the jobs of the queued listeners, and see that they can be pushed."""
        jobs = {
            each.listener: each.listener.queued.invoke(event)
            for each in heard
            if each.listener.queued is not None
        }
        if jobs and self._queue is None:
            names = ", ".join(repr(job.listener) for job in jobs.values())
            raise InvalidQueueArgument(
                f"queued listeners ({names}) need a queue to push to: make it Dispatcher(queue)"
            )
        return jobs

    async def _tell(
        self,
        heard: Sequence[_Heard],
        event: object,
        jobs: Mapping[_Listener, InvokeListener],
        scope: RequestScope | None,
        connection: object | None,
    ) -> None:
        reached: list[InvokeListener] = []
        for each in heard:
            job = jobs.get(each.listener)
            if job is not None:
                reached.append(job)
            elif await _stops(each, event, scope):
                break
        if reached and self._queue is not None:
            await self._queue.push_many(reached, connection=connection, together=True)


async def _stops(heard: _Heard, event: object, scope: RequestScope | None) -> bool:
    """Tell an inline listener, and say whether it stops the event; what it raises else is raised."""
    error: BaseException | None = None
    stops = False
    try:
        await _call(heard, event, scope)
    except StopPropagation:
        stops = True
    except BaseException as raised:  # noqa: BLE001 - raised again below, once its dependencies have seen it
        error = raised
    if scope is not None and scope.has_function_exits:
        failure = await _close_function_scope(scope, error)
        error = error or failure
    if error is not None:
        raise error
    return stops


async def _close_function_scope(scope: RequestScope, error: BaseException | None) -> Exception | None:
    """Close what one listener alone was given, and return what went wrong with that."""
    with anyio.CancelScope(shield=True, deadline=closing_deadline()):
        try:
            await scope.close_function_scope(error)
        except Exception as failure:  # noqa: BLE001 - the listener's own error comes first
            return failure
        return None
    return TimeoutError(f"a dependency took longer than {LONGEST_CLOSING} s to close")


async def _call(heard: _Heard, event: object, scope: RequestScope | None) -> None:
    positional: list[object] = []
    named: dict[str, object] = {}
    if scope is not None and heard.plan is not None and not heard.plan.is_trivial:
        positional, named = await heard.plan.arguments(scope)
    answer = heard.listener.call(event, *positional, **named)
    if inspect.isawaitable(answer):
        await answer


async def _close(scope: RequestScope, error: BaseException | None) -> None:
    """Close a dispatch's scope; a failure of that is raised, unless there is an error to raise already."""
    try:
        with anyio.CancelScope(shield=True, deadline=closing_deadline()):
            await scope.close(error)
    except Exception:
        if error is None:
            raise
        log_quietly(logging.ERROR, "closing the scope of %r failed", scope.delivery.name, with_traceback=True)


def _stand_in(event: object) -> Delivery:
    """Return what a scope shows as its delivery, where nothing was delivered."""
    id, name = os.urandom(16).hex(), default_name(type(event))
    envelope = Envelope(VERSION, id, name, time.time(), msgspec.Raw(b"{}"))
    return Delivery(Reserved(id, "", b"", None, attempt=1), envelope)
