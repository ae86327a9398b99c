"""Virtual time: a loop that jumps to its next timer where nothing else is ready, instead of waiting for it.

A week's backoff, a delayed job or an `asyncio.sleep(3600)` inside a handler then takes no time, and all on
the loop agree what time it is: `MemoryQueue()` made there takes its clock from the loop.
"""

import asyncio
import functools
import math
import queue
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from types import FrameType
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Args = TypeVarTuple("Args")

_THREADS_OF_HANDLERS = "AnyIO worker thread"
_FOR_THREADS = 0.005
_DEADLOCK_AFTER = 30.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` moves only when every task waits for it, and then at once.

    Time stands still while a plain `def` handler, or anything in the loop's executor, runs on its thread; so
    no `timeout` of such a job is ever over. Sockets are looked at before each jump, but not waited for: what
    comes over a network has no place in virtual time. A worker that runs looks for jobs every second of it,
    so a day is quick and a year is not; `drain` has no such pulse. `RuntimeError` where no timer is set and
    nothing comes for 30 s.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._in_executor = 0
        super().__init__(_JumpingSelector(self._jump, self._waits_for_threads))

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args
    ) -> "asyncio.Future[T]":
        """Run it on a thread, and let no time go by until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._in_executor += 1
        future.add_done_callback(self._left_executor)
        return future

    def _left_executor(self, _: object) -> None:
        self._in_executor -= 1

    def _waits_for_threads(self) -> bool:
        return self._in_executor > 0 or _handlers_are_on_threads()

    def _jump(self, seconds: float) -> None:
        self._now = math.nextafter(self._now + seconds, math.inf)  # a timer fires past its time, not at it


class LoopClock:
    """Seconds since the epoch by the running loop's time, for a store that takes a clock."""

    def __init__(self, start: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = (time.time() if start is None else start) - self._loop.time()

    def __call__(self) -> float:
        """Return the time by the loop that this clock was made on."""
        return self._start + self._loop.time()


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end as `asyncio.run` does, on a loop in virtual time; not from inside a loop."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a plain test function of an async one, which runs in virtual time whatever the test runner is."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_in_virtual_time(test(*args, **kwargs))

    return run


def runs_in_virtual_time() -> bool:
    """Whether the running loop, if there is one, is in virtual time."""
    try:
        return isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    except RuntimeError:
        return False


class _JumpingSelector(selectors.DefaultSelector):
    """Polls instead of waiting, and tells how long it should have waited."""

    def __init__(self, jump: Callable[[float], None], waits_for_threads: Callable[[], bool]) -> None:
        super().__init__()
        self._jump = jump
        self._waits_for_threads = waits_for_threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; where nothing is, jump over the time given, or wait for the threads."""
        if timeout is None:
            return self._wait_for_something()
        events = super().select(0)
        if events or timeout <= 0:
            return events
        if self._waits_for_threads():
            return super().select(_FOR_THREADS)
        self._jump(timeout)
        return events

    def _wait_for_something(self) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(_DEADLOCK_AFTER)
        if not events and not self._waits_for_threads():
            raise RuntimeError(
                f"every task waits, no timer is set, and nothing came for {_DEADLOCK_AFTER:g} s: a deadlock"
            )
        return events


def _handlers_are_on_threads() -> bool:
    threads = [each for each in threading.enumerate() if each.name.startswith(_THREADS_OF_HANDLERS)]
    if not threads:
        return False
    frames = sys._current_frames()
    return any(_is_busy(thread, frames.get(thread.ident or 0)) for thread in threads)


def _is_busy(thread: threading.Thread, frame: FrameType | None) -> bool:
    """Whether a thread of a pool does anything but ask for its next work, which is nowhere to be read off."""
    asked = getattr(thread, "queue", None)
    if isinstance(asked, queue.Queue) and not asked.empty():
        return True
    while frame is not None:
        if frame.f_code is queue.Queue.get.__code__:
            return frame.f_back is None or frame.f_back.f_code is not type(thread).run.__code__
        frame = frame.f_back
    return True
