"""One delivery under way, and how it runs in a context of its own inside a long-lived task (WORK-2)."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from enum import Enum
from typing import Any, Generic, TypeVar

import anyio
import msgspec

from aqueue.delivery import Delivery
from aqueue.jobs import JobType
from aqueue.port import Answer

T = TypeVar("T")


class Cause(Enum):
    """Why the worker cancelled a handler."""

    TIMEOUT = "timeout"
    LEASE = "lease"
    STOP = "stop"


class Run(msgspec.Struct, eq=False):
    """A delivery and where it stands. Its handler can be cancelled; its settlement can't.

    The handler runs in the slot's own `task`, so cancelling it means cancelling the task, and taking the
    request back once the handler has ended. Only `is_ending` tells whether the task itself is meant to end:
    anybody may call `cancel()` on it, the handler too. `handled` is when the handler had ended, by
    `time.perf_counter`; `was_cancelled` says that somebody asked for its end. `error` is what the attempt
    raised, and after a lost `ack` the refusal; the span tells it.

    `confirm` takes over a delivery that needs nothing more than its ack: it is told the run and the answer,
    and `is_handed_over` says that it will be. An `answer` that isn't simply yes is for `Runner` to go on
    with.
    """

    delivery: Delivery
    task: "asyncio.Task[Any]"
    is_ending: Callable[[], bool]
    context: Context = msgspec.field(default_factory=copy_context)
    confirm: "Callable[[Run, Answer], None] | None" = None
    started: float = msgspec.field(default_factory=time.perf_counter)
    declared: JobType | None = None
    job: object = None
    value: object = None
    error: BaseException | None = None
    timeout: float | None = None
    cause: Cause | None = None
    handled: float | None = None
    was_cancelled: bool = False
    has_lost_lease: bool = False
    is_handed_over: bool = False
    answer: Answer | None = None
    _timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Run of {self.delivery!r}>"

    @property
    def is_settling(self) -> bool:
        """Whether the handler has ended, so that nothing may cancel this delivery any more."""
        return self.handled is not None

    @property
    def settling_for(self) -> float:
        """Seconds since the handler ended."""
        return time.perf_counter() - self.handled if self.handled is not None else 0.0

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
        self.handled = time.perf_counter()
        if self._timer is not None:
            self._timer.cancel()
        if self.cause is not None or self.task.cancelling():
            self.was_cancelled = True
        return self.was_cancelled


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


class InContext(msgspec.Struct, Generic[T], eq=False):
    """Runs a coroutine step by step in the context of its delivery, without the price of a task for each.

    `if steps.step(): await steps` runs the first step at once, and waits for the others where there are any.
    `result` is what the coroutine returned, once it has ended.
    """

    _coroutine: Coroutine[Any, Any, T]
    _run: Run
    _stepping: Stepping
    _waits_for: Any = None
    result: T | None = None

    def step(self, thrown: BaseException | None = None) -> bool:
        """Run one step, with an exception thrown in or not; say whether another follows."""
        run, stepping = self._run, self._stepping
        stepping.delivery = run.delivery
        try:
            if thrown is None:
                self._waits_for = run.context.run(self._coroutine.send, None)
            else:
                self._waits_for = run.context.run(self._coroutine.throw, thrown)
        except StopIteration as done:
            self.result = done.value
            return False
        finally:
            stepping.delivery = None
        return True

    def __await__(self) -> Generator[Any, Any, T | None]:
        """Pass what each step waits for on to the task, and run the next."""
        goes_on = True
        while goes_on:
            try:
                yield self._waits_for
            except BaseException as thrown:  # noqa: BLE001 - cancellation and all belong to the coroutine
                goes_on = self.step(thrown)
            else:
                goes_on = self.step()
        return self.result
