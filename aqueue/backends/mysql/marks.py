"""How far down its queues a worker has already been, for when dead rows would slow its pops (POP-8).

An old read view, a backup's for one, keeps every entry of every job that was ever popped in the index, and a
sweep that starts at the beginning reads past all of them. Sweeps do start at the beginning, though, for as
long as that is cheap. While it is not, they start where the last one ended, and one that starts at the
beginning, to find what came to stand behind, may take a tenth of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_CHEAP = 0.005
_SHARE = 10.0
_SLACK = 100_000
_REMEMBERED = 10_000


class Start(NamedTuple):
    """Where to start on one queue: among the ready at a place, among the others at a time."""

    place: int = 0
    since: int = 0


class Swept(NamedTuple):
    """How a sweep went on one queue; `place` is the last that was claimed, if any was.

    `is_tidy` says that everything due or lost was made ready; `now` is the server's clock.
    """

    now: int
    is_tidy: bool
    place: int | None


@dataclass(slots=True)
class _Mark:
    place: int = 0
    since: int = 0


class Marks:
    """The marks of one worker's queues; `now` and costs are seconds of the event loop's clock."""

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}
        self._usual = 0.0
        self._whole = (0.0, 0.0)
        self._next_whole = 0.0

    def starts(self, queues: Sequence[str], now: float) -> list[Start] | None:
        """Return where to start, queue by queue; None for at the beginning."""
        if now >= self._next_whole:
            return None
        marks = [self._marks.get(queue, _Mark()) for queue in queues]
        return [Start(mark.place, mark.since) for mark in marks]

    def swept(self, queue: str, swept: Swept) -> None:
        """Remember where a sweep ended on a queue."""
        if len(self._marks) >= _REMEMBERED:
            self._marks.clear()
        mark = self._marks.setdefault(queue, _Mark())
        if swept.place is not None:
            mark.place = swept.place
        if swept.is_tidy:
            mark.since = swept.now - _SLACK

    def returned(self, queue: str) -> None:
        """Start at the beginning of this queue: a job went back to its place in it."""
        self._marks.pop(queue, None)

    def took(self, cost: float, now: float, *, is_whole: bool) -> None:
        """Learn from what a sweep cost; one slow sweep proves nothing about the next, so it takes two."""
        if not is_whole:
            self._usual = cost
            return
        self._whole = (self._whole[1], cost)
        extra = min(self._whole) - self._usual
        self._next_whole = now + extra * _SHARE if extra > _CHEAP else 0.0
