"""How a queue that was found empty learns that it may not be any more.

What this process stores is announced. What other processes store shows in the queues' counters, which the
desk reads every 25 ms while somebody waits. Both are hints; the next sweep is the truth (POP-3).
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from aqueue.backends.file.threads import FileThread

_INTERVAL = 0.025


class CounterWatch:
    """Looks at queues' counters from the desk's thread, while somebody waits for them to change."""

    def __init__(self, arrivals: Callable[[str], int]) -> None:
        self._arrivals = arrivals
        self._known: dict[Callable[[], None], Mapping[str, int]] = {}
        self._next_look = 0.0

    def add(self, changed: Callable[[], None], known: Mapping[str, int]) -> None:
        """Call `changed` once, on the thread, when a counter is not what was known."""
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
        for changed, known in list(self._known.items()):
            if any(self._differs(queue, arrivals) for queue, arrivals in known.items()):
                self.remove(changed)
                changed()

    def _differs(self, queue: str, known: int) -> bool:
        try:
            return self._arrivals(queue) != known
        except OSError:  # the sweep will say what is wrong
            return True


class Arrivals:
    """Who waits for which queues. Lives on the event loop."""

    def __init__(self, watch: CounterWatch) -> None:
        self._watch = watch
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}

    def expect(self, queues: Sequence[str]) -> "asyncio.Future[None]":
        """Return a future that is done once something is announced for one of these queues."""
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[arrival] = frozenset(queues)
        return arrival

    def forget(self, arrival: "asyncio.Future[None]") -> None:
        """Expect no more."""
        self._waiting.pop(arrival, None)

    def announce(self, queues: Iterable[str]) -> None:
        """Say that something was put into these queues."""
        changed = set(queues)
        for future, expected in self._waiting.items():
            if not expected.isdisjoint(changed):
                _wake(future)

    async def wait(
        self, desk: FileThread, arrival: "asyncio.Future[None]", known: Mapping[str, int], seconds: float
    ) -> None:
        """Return when something is announced, when a counter has changed, or after `seconds`."""
        loop = asyncio.get_running_loop()

        def changed() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits on it
                loop.call_soon_threadsafe(_wake, arrival)

        self._watch.add(changed, known)
        desk.nudge()
        timer = loop.call_later(max(0.0, seconds), _wake, arrival)
        try:
            await arrival
        finally:
            timer.cancel()
            self._watch.remove(changed)

    def end(self) -> None:
        """Let nobody wait any longer."""
        for future in self._waiting:
            _wake(future)


def _wake(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)
