"""Who waits for which queues of an SQL server, and what is still true of those found empty."""

import asyncio
from collections.abc import Sequence

_LONGEST_PAUSE = 1.0
_REMEMBERED = 1_000
_NEVER = float("inf")


class Arrivals:
    """Hints that a queue is not empty any more; the next sweep is the truth (POP-3)."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._everywhere = 0
        self._empty: dict[tuple[str, ...], tuple[tuple[int, ...], float]] = {}
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}

    def counts(self, queues: Sequence[str]) -> tuple[int, ...]:
        """Return how many arrivals each queue has seen; take it before a sweep."""
        return (self._everywhere, *(self._counts.get(queue, 0) for queue in queues))

    def found_empty(self, queues: Sequence[str], counts: tuple[int, ...], due_in: float | None) -> None:
        """Remember a sweep that found nothing, and in how many seconds the next job falls due."""
        if len(self._empty) >= _REMEMBERED:
            self._empty.clear()
        due = _NEVER if due_in is None else asyncio.get_running_loop().time() + due_in
        self._empty[tuple(queues)] = counts, due

    def due_in(self, queues: Sequence[str]) -> float | None:
        """Return how long these queues will stay empty for all that is known; None if nothing is."""
        counts, due = self._empty.get(tuple(queues), (None, 0.0))
        if counts != self.counts(queues):
            return None
        return max(0.0, due - asyncio.get_running_loop().time())

    def announce(self, queue: str, due_in: float = 0.0) -> None:
        """Say that something was put into the queue; what is due only after the longest pause is no news."""
        if due_in >= _LONGEST_PAUSE:
            return
        if len(self._counts) >= _REMEMBERED and queue not in self._counts:
            self._counts.clear()
            self._everywhere += 1
        self._counts[queue] = self._counts.get(queue, 0) + 1
        loop = asyncio.get_running_loop()
        for future, queues in self._waiting.items():
            if queue not in queues:
                continue
            if due_in > 0:
                loop.call_later(due_in, _wake, future)
            else:
                _wake(future)

    def announce_all(self) -> None:
        """Say that something may have been put into any queue, and let nobody wait any longer."""
        self._everywhere += 1
        for future in self._waiting:
            _wake(future)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return when something arrives on one of the queues, or after `seconds`."""
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        self._waiting[arrival] = frozenset(queues)
        timer = loop.call_later(max(0.0, seconds), _wake, arrival)
        try:
            await arrival
        finally:
            timer.cancel()
            del self._waiting[arrival]


def _wake(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)
