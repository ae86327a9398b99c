"""One delivery under way, and how it runs in a context of its own inside a long-lived task (WORK-2)."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
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
    """A delivery and where it stands. Its handler can be cancelled; its settlement can't.

    The handler runs in the slot's own `task`, so cancelling it means cancelling the task, and taking the
    request back once the handler has ended. Only `is_ending` tells whether the task itself is meant to end:
    anybody may call `cancel()` on it, the handler too. `settling_since` is the duration at which the handler
    had ended. `error` is what the attempt raised, and after a lost `ack` the refusal; the span tells it.
    """

    __slots__ = (
        "_timer",
        "cause",
        "declared",
        "delivery",
        "error",
        "has_lost_lease",
        "is_ending",
        "job",
        "settling_since",
        "started",
        "task",
        "timeout",
    )

    def __init__(self, delivery: Delivery, task: "asyncio.Task[Any]", is_ending: Callable[[], bool]) -> None:
        self.delivery = delivery
        self.task = task
        self.is_ending = is_ending
        self.started = time.perf_counter()
        self.declared: JobType | None = None
        self.job: object = None
        self.error: BaseException | None = None
        self.timeout: float | None = None
        self.cause: Cause | None = None
        self.settling_since: float | None = None
        self.has_lost_lease = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_settling(self) -> bool:
        """Whether the handler has ended, so that nothing may cancel this delivery any more."""
        return self.settling_since is not None

    @property
    def duration(self) -> float:
        """Seconds since the delivery began."""
        return time.perf_counter() - self.started

    def cancel(self, cause: Cause) -> None:
        """Cancel the handler if it still runs; the first cause stands, but a stop asks again."""
        if self.is_settling or (self.cause is not None and cause is not Cause.STOP):
            return
        self.cause = self.cause or cause
        self.task.cancel()

    def limit(self, seconds: float) -> None:
        """Cancel the handler when it has run this long (WORK-10)."""
        self.timeout = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self.cancel, Cause.TIMEOUT)

    def end_handling(self) -> bool:
        """Note that the handler has ended; say whether somebody asked to cancel it, in time or too late.

        Such a request must be taken back, delivered or not, before it hits the settlement.
        """
        self.settling_since = time.perf_counter() - self.started
        if self._timer is not None:
            self._timer.cancel()
        return self.cause is not None or self.task.cancelling() > 0


async def forget_cancellation(task: "asyncio.Task[Any] | None") -> None:
    """Take back every request to cancel the current task, and absorb the one that may still be on its way."""
    while task is not None and task.cancelling():
        task.uncancel()
    with anyio.CancelScope(shield=True), contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


class Stepping:
    """Which delivery's code the event loop is executing this very moment; None between steps (WORK-11)."""

    __slots__ = ("delivery",)

    def __init__(self) -> None:
        self.delivery: Delivery | None = None


class InContext(Awaitable[T], Generic[T]):
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
