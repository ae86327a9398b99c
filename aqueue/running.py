"""One delivery under way, and how it runs in a context of its own inside a long-lived task (WORK-2)."""

import time
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import Context
from enum import Enum
from typing import Any, Generic, TypeVar

import anyio

from aqueue.delivery import Delivery
from aqueue.jobs import JobType

T = TypeVar("T")


class Cause(Enum):
    """Why the worker cancelled a handler."""

    TIMEOUT = "timeout"
    LEASE = "lease"
    STOP = "stop"


class Run:
    """A delivery and where it stands. The handler's part can be cancelled; its settlement can't.

    `settling_since` is the duration at which its handler had ended. `error` is what the attempt raised, and after a lost `ack` the refusal; it is what the span tells.
    """

    __slots__ = ("_scope", "cause", "declared", "delivery", "error", "has_lost_lease", "job", "settling_since", "started", "timeout")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.declared: JobType | None = None
        self.job: object = None
        self.error: BaseException | None = None
        self.started = time.perf_counter()
        self.timeout: float | None = None
        self.cause: Cause | None = None
        self.settling_since: float | None = None
        self.has_lost_lease = False
        self._scope: anyio.CancelScope | None = None

    def enter(self, scope: anyio.CancelScope) -> None:
        """Say which cancel scope the handler runs in; one that was cancelled before it began stays so."""
        self._scope = scope
        if self.cause is not None:
            scope.cancel()

    def cancel(self, cause: Cause) -> None:
        """Cancel the handler, if it still runs; the first cause stands."""
        if self.is_settling or self.cause is not None:
            return
        self.cause = cause
        if self._scope is not None:
            self._scope.cancel()

    @property
    def is_settling(self) -> bool:
        """Whether the handler has ended, so that nothing may cancel this delivery any more."""
        return self.settling_since is not None

    @property
    def duration(self) -> float:
        """Seconds since the delivery began."""
        return time.perf_counter() - self.started


class Stepping:
    """Which delivery's code the event loop is executing this very moment; None between steps (WORK-11)."""

    __slots__ = ("delivery",)

    def __init__(self) -> None:
        self.delivery: Delivery | None = None


class InContext(Generic[T], Awaitable[T]):
    """Awaits a coroutine step by step inside another context, without the price of a task for each."""

    __slots__ = ("_context", "_coroutine", "_delivery", "_stepping")

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], context: Context, stepping: Stepping, delivery: Delivery
    ) -> None:
        self._coroutine = coroutine
        self._context = context
        self._stepping = stepping
        self._delivery = delivery

    def __await__(self) -> Generator[Any, Any, T]:
        """Run each step in the context, and pass what it waits for on to the task."""
        run, stepping, delivery = self._context.run, self._stepping, self._delivery
        step: Any = self._coroutine.send
        argument: Any = None
        while True:
            stepping.delivery = delivery
            try:
                waits_for = run(step, argument)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                stepping.delivery = None
            try:
                yield waits_for
                step, argument = self._coroutine.send, None
            except BaseException as thrown:  # noqa: BLE001 - cancellation and all belong to the coroutine
                step, argument = self._coroutine.throw, thrown
