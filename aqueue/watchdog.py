"""Notices a blocked event loop from a thread beside it, and names the job that blocks it (WORK-11)."""

import asyncio
import logging
import threading
import time

from aqueue.events import log_quietly
from aqueue.running import Stepping

_BEAT = 0.25
BLOCKED_AFTER = 1.0


class LoopWatchdog:
    """Runs while the worker does. A loop that misses its beats for a second is a warning, once per block."""

    def __init__(self, stepping: Stepping) -> None:
        self._stepping = stepping
        self._ended = threading.Event()
        self._last_beat = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to beat on the running loop, and to listen on a thread."""
        self._beat(asyncio.get_running_loop())
        threading.Thread(target=self._listen, name="aqueue-watchdog", daemon=True).start()

    def stop(self) -> None:
        """End both; the thread goes by itself."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last_beat = time.monotonic()
        self._timer = loop.call_later(_BEAT, self._beat, loop)

    def _listen(self) -> None:
        reported = 0.0
        while not self._ended.wait(_BEAT):
            last = self._last_beat
            blocked = time.monotonic() - last
            if blocked < BLOCKED_AFTER or reported == last:
                continue
            reported = last
            delivery = self._stepping.delivery
            who = "something outside the jobs" if delivery is None else f"job {delivery.name} {delivery.id}"
            log_quietly(
                logging.WARNING,
                "the event loop has been blocked for %.1f s by %s: leases are not renewed and nothing else "
                "runs meanwhile; make the handler a plain `def`, or move the work to a thread",
                blocked,
                who,
            )
