"""One worker as a service: started from its target, stopped by signals, closed in time (STOP-1, STOP-2)."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from aqueue.cli.last_resort import LastResort
from aqueue.cli.target import worker_from
from aqueue.heartbeat import heartbeat
from aqueue.worker import Worker

_log = logging.getLogger("aqueue.cli")

# Seconds. The promise is grace + 5 (STOP-1); the worker takes up to 4 of them for what won't be cancelled.
_AFTER_GRACE = 4.8
_CLOSING_THE_QUEUE = 3.0
_CLOSING = 10.0
_LEAVING = 3.0
_LEAVING_AT_ONCE = 1.0


class Phase(Enum):
    """Where a service stands, since a signal means something else in each."""

    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a service ended. `seconds` is how long its worker ran; `worker` is None if it never did."""

    worker: Worker | None
    signals: tuple[signal.Signals, ...]
    seconds: float

    @property
    def status(self) -> int:
        """0 after a clean stop, 1 after a second signal."""
        return 1 if len(self.signals) > 1 else 0


class Service:
    """Runs the worker that a target gives, until a signal, or until it stops by itself.

    The first SIGTERM or SIGINT is `worker.stop()`, the second gives everything back at once. `tell` is called
    with the ending while the process is still sure to have a moment left.
    """

    def __init__(
        self,
        target: object,
        text: str,
        last_resort: LastResort,
        tell: Callable[[Ending], None],
        *,
        health_file: Path | None = None,
    ) -> None:
        self._target = target
        self._text = text
        self._last_resort = last_resort
        self._tell = tell
        self._health_file = health_file
        self._signals: list[signal.Signals] = []
        self._phase = Phase.STARTING
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seconds = 0.0

    @property
    def ending(self) -> Ending:
        """How the service ended, or would if it ended now."""
        return Ending(worker=self._worker, signals=tuple(self._signals), seconds=self._seconds)

    async def run(self) -> None:
        """Start, work and close; raises what starting or an outage raised, once everything is closed."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        try:
            await self._start_and_work()
        except asyncio.CancelledError:
            if not self._signals:
                raise
        finally:
            # What is left is closing the loop and leaving Python, where anything left behind would hold us.
            self._last_resort.within(_LEAVING_AT_ONCE if len(self._signals) > 1 else _LEAVING)
        self._last_resort.status = self.ending.status
        self._tell(self.ending)

    def hear(self, number: int, frame: FrameType | None = None) -> None:
        """Take a signal; made for `signal.signal`.

        The callback of `loop.add_signal_handler` waits for its turn in the loop. This is heard even while a
        handler blocks the loop, so that the process ends in time then, too.
        """
        self._signals.append(signal.Signals(number))
        if len(self._signals) > 1:
            self._last_resort.status = 1
            self._last_resort.within(_AFTER_GRACE)
        else:
            if self._phase is Phase.STARTING:
                self._last_resort.status = 0  # no job was taken yet, so however this ends it is clean
            self._last_resort.within(self._grace + _AFTER_GRACE)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._react)

    @property
    def _grace(self) -> float:
        return self._worker.grace if self._worker is not None and self._phase is Phase.RUNNING else 0.0

    def _react(self) -> None:
        """Act on a signal in the loop, between two steps of everything else."""
        at_once = len(self._signals) > 1
        if self._phase is Phase.STARTING and not at_once and self._task is not None:
            _log.info("%s: stopping before the worker has started", self._signals[-1].name)
            self._task.cancel()
        if self._phase is Phase.RUNNING and self._worker is not None:
            _log_signal(self._signals[-1], self._grace, at_once=at_once)
            self._worker.stop(at_once=at_once)

    async def _start_and_work(self) -> None:
        async with AsyncExitStack() as stack:
            # Before the target is entered, so after it was left: its own cleaning up may still push.
            stack.push_async_callback(self._close_queue)
            worker = self._worker = await worker_from(self._target, self._text, stack)
            await worker.queue.open()
            if self._signals:
                return
            _log_start(worker)
            await self._work(worker)

    async def _work(self, worker: Worker) -> None:
        started = time.monotonic()
        try:
            async with AsyncExitStack() as stack:
                if self._health_file is not None:
                    await stack.enter_async_context(heartbeat(worker, self._health_file))
                if self._signals:
                    return
                self._phase = Phase.RUNNING  # nothing is awaited from here until run() has begun
                await worker.run()
                self._last_resort.status = self.ending.status
        finally:
            self._seconds = time.monotonic() - started
            self._phase = Phase.CLOSING
            if not self._signals:
                self._last_resort.within(_CLOSING)

    async def _close_queue(self) -> None:
        """A store that hangs must not hold the exit; closing a queue that its owner closed does nothing."""
        if self._worker is None:
            return
        closing = asyncio.create_task(self._worker.queue.aclose())
        await asyncio.wait({closing}, timeout=_CLOSING_THE_QUEUE)
        if not closing.done():
            _log.warning("the store did not close within %g s and is left behind", _CLOSING_THE_QUEUE)
        elif (error := closing.exception()) is not None:
            _log.warning("closing the store failed: %s: %s", type(error).__name__, error)


def _log_start(worker: Worker) -> None:
    _log.info(
        "worker %s takes jobs from %s on %s (aqueue %s, %s)",
        worker.name,
        ", ".join(worker.queues) or "no queue",
        worker.queue.capabilities.system,
        _version(),
        type(asyncio.get_running_loop()).__module__.partition(".")[0],
    )


def _log_signal(number: signal.Signals, grace: float, *, at_once: bool) -> None:
    if at_once:
        _log.info("%s: giving everything back at once", number.name)
    else:
        _log.info(
            "%s: no new work; what runs has %g s to end, or less at the next signal", number.name, grace
        )


def _version() -> str:
    try:
        return version("aqueue-jobs")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "from source"
