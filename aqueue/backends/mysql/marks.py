"""How far down its queues a worker has already been, for when dead rows would slow its pops (POP-8).

An old read view, a backup's for one, keeps every entry of every job that was ever popped in the index, and a
sweep that looks everywhere reads past all of them. Sweeps do look everywhere, though, for as long as that is
cheap. While it is not, they only go on where the last one ended, and one that looks everywhere, to find what
fell due, was lost, or came to stand behind, may take a tenth of the time.
"""

from collections.abc import Mapping, Sequence

_CHEAP = 0.005
_SHARE = 10.0
_REMEMBERED = 10_000


class Marks:
    """The marks of one worker's queues; `now` and costs are seconds of the event loop's clock."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._usual = 0.0
        self._whole = (0.0, 0.0)
        self._next_whole = 0.0

    def starts(self, queues: Sequence[str], now: float) -> dict[str, int] | None:
        """Return from which place to go on, queue by queue; None for looking everywhere."""
        if now >= self._next_whole:
            return None
        return {queue: self._places.get(queue, 0) for queue in queues}

    def swept(self, places: Mapping[str, int], cost: float, now: float, *, is_whole: bool) -> None:
        """Remember where a sweep ended on the queues it came to, and learn from what it cost.

        One slow sweep proves nothing about the next, so it takes two.
        """
        if len(self._places) >= _REMEMBERED:
            self._places.clear()
        self._places.update(places)
        if not is_whole:
            self._usual = cost
            return
        self._whole = (self._whole[1], cost)
        extra = min(self._whole) - self._usual
        self._next_whole = now + extra * _SHARE if extra > _CHEAP else 0.0

    def returned(self, queue: str) -> None:
        """Start at the beginning of this queue: a job went back to its place in it."""
        self._places.pop(queue, None)
