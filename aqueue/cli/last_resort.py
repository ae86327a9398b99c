"""The end of a worker's process, kept even when something in it won't end (STOP-1).

Python itself waits: for non-daemon threads when it exits, for every cancelled task when the loop closes, for
a blocked loop before it hears of anything. A `def` handler asleep in its thread, a handler that swallows its
cancellation or a database that hangs would each hold the process until somebody kills it with SIGKILL. By
the time the deadline passes the worker has given their jobs back, or their leases will, so leaving is safe.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from queue import Empty, SimpleQueue

_log = logging.getLogger("aqueue.cli")
_FLUSHING = 0.3


class LastResort:
    """Ends the process with `status` when the earliest deadline passes, unless it ended before."""

    def __init__(self) -> None:
        self.status = 1
        # Its put() may interrupt itself, so a signal handler may call it; no lock or event allows that.
        self._deadlines: SimpleQueue[float] = SimpleQueue()

    def watch(self) -> None:
        """Start watching, on a daemon thread: it outlives the event loop and runs while Python exits."""
        threading.Thread(target=self._watch, name="aqueue last resort", daemon=True).start()

    def within(self, seconds: float) -> None:
        """Let the process go on for so many seconds; an earlier deadline stands. Fit for a signal handler."""
        self._deadlines.put(time.monotonic() + seconds)

    def _watch(self) -> None:
        deadline = self._deadlines.get()
        with contextlib.suppress(Empty):
            while True:
                left = max(0.0, deadline - time.monotonic())
                deadline = min(deadline, self._deadlines.get(timeout=left))
        self._leave()

    def _leave(self) -> None:
        # Whatever hangs may also hold the lock of a log handler or fill the pipe behind stdout, so even the
        # last words get a thread and a moment, no more. os._exit skips the waiting that never ends.
        with contextlib.suppress(RuntimeError):  # too late in Python's own exit for another thread
            last_words = threading.Thread(target=_say_and_flush, daemon=True)
            last_words.start()
            last_words.join(_FLUSHING)
        os._exit(self.status)


def _say_and_flush() -> None:
    left = [
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    _log.warning("leaving what did not end in time%s", f": threads {', '.join(left)}" if left else "")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
