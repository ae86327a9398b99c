"""How a queue that was found empty learns that it may not be any more, without asking the database.

What this process stores is announced. What other processes and the application's own transactions store
is seen in the files: every commit writes one of them, so the thread compares their times and sizes with
those from before the queue was found empty. Both are hints; the next sweep is the truth (POP-3).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from aqueue.backends._sqlite_thread import DatabaseThread

_INTERVAL = 0.025
_TICK_NS = 20_000_000
_SYNC_NS = 200_000_000
_REMEMBERED = 1_000

Signature: TypeAlias = tuple[int, ...]
"""The times and sizes of a database's files."""


class Emptiness(NamedTuple):
    """What an empty sweep learned: the files before it, and when the next job falls due or a lease runs out.

    No signature means that the files had just been written, so that a later commit might not show in them.
    """

    signature: Signature | None
    next_time: float


class FileWatch:
    """Looks at a database's files from its thread, while somebody waits for them to change.

    It never opens them: closing a file drops every lock that its process holds on it, SQLite's included.
    """

    def __init__(self, path: Path) -> None:
        # A file is unsettled for the kernel's tick, in which a second write leaves the same time; a WAL for
        # as long as a sync may take, since what was written to it shows to readers only after that.
        self._files = ((path, _TICK_NS), (path.with_name(f"{path.name}-wal"), _SYNC_NS))
        self._known: dict[Callable[[], None], Signature | None] = {}
        self._next_look = 0.0

    def signature(self) -> Signature | None:
        """Return the files as they are now; None if they are too fresh to tell the next commit by them."""
        now = time.time_ns()
        seen: list[int] = []
        for file, unsettled in self._files:
            try:
                status = file.stat()
            except FileNotFoundError:
                continue
            if abs(now - status.st_mtime_ns) <= unsettled:
                return None
            seen += (status.st_mtime_ns, status.st_size)
        return tuple(seen)

    def add(self, changed: Callable[[], None], known: Signature | None) -> None:
        """Call `changed` once, on the thread, when the files differ from what was known."""
        if not self._known:
            self._next_look = time.monotonic() + _INTERVAL
        self._known[changed] = known

    def remove(self, changed: Callable[[], None]) -> None:
        """Call it no more."""
        self._known.pop(changed, None)

    def pause(self) -> float | None:
        """Return how long to wait before looking; None if nobody waits."""
        return max(0.001, self._next_look - time.monotonic()) if self._known else None

    def look(self) -> None:
        """Compare, if it is time to."""
        if not self._known or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _INTERVAL
        now = self.signature()
        for changed, known in list(self._known.items()):
            if now is None or now != known:
                self.remove(changed)
                changed()


class Arrivals:
    """Who waits for which queues, and what is still true of those found empty. Lives on the event loop."""

    def __init__(self, watch: FileWatch) -> None:
        self._watch = watch
        self._counts: dict[str, int] = {}
        self._empty: dict[tuple[str, ...], tuple[tuple[int, ...], Emptiness]] = {}
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}

    def counts(self, queues: Sequence[str]) -> tuple[int, ...]:
        """Return how many arrivals each queue has seen; take it before a sweep."""
        return tuple(self._counts.get(queue, 0) for queue in queues)

    def found_empty(self, queues: Sequence[str], counts: tuple[int, ...], emptiness: Emptiness) -> None:
        """Remember what a sweep that found nothing learned."""
        if len(self._empty) >= _REMEMBERED:
            self._empty.clear()
        self._empty[tuple(queues)] = counts, emptiness

    def emptiness(self, queues: Sequence[str]) -> Emptiness | None:
        """Return what is known of these queues, unless something arrived since."""
        counts, emptiness = self._empty.get(tuple(queues), (None, None))
        return emptiness if counts == self.counts(queues) else None

    def announce(self, queue: str) -> None:
        """Say that something was put into the queue."""
        self._counts[queue] = self._counts.get(queue, 0) + 1
        for future, queues in self._waiting.items():
            if queue in queues:
                _wake(future)

    async def wait(
        self, thread: DatabaseThread, queues: Sequence[str], known: Signature | None, seconds: float
    ) -> None:
        """Return when something arrives on one of the queues, when the files change, or after `seconds`."""
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()

        def changed() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits on it
                loop.call_soon_threadsafe(_wake, arrival)

        self._waiting[arrival] = frozenset(queues)
        self._watch.add(changed, known)
        thread.nudge()
        timer = loop.call_later(max(0.0, seconds), _wake, arrival)
        try:
            await arrival
        finally:
            timer.cancel()
            self._watch.remove(changed)
            del self._waiting[arrival]

    def end(self) -> None:
        """Let nobody wait any longer."""
        for future in self._waiting:
            _wake(future)


def _wake(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)
