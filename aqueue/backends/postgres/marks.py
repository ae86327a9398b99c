"""How far down its queues a worker has already been, so that dead rows don't slow its next pop (POP-8).

An old snapshot, a backup's for one, keeps every row that was ever popped in the indexes, and a pop that
starts at the beginning reads past all of them. So a sweep starts where the last one ended. What lies behind,
a job given back to the head by another process or a push that committed late, is found by looking from the
beginning when a sweep comes back short, and about once a second; where that is slow, it may take a tenth of
the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_BEGINNING = -1
_ALWAYS = float("-inf")
_INTERVAL = 1.0
_CHEAP = 0.005
_SHARE = 10.0
_SLACK = 0.05
_HURRY = 0.05
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Mark:
    seq: int = _BEGINNING
    since: float = _ALWAYS
    next_round: float = _ALWAYS


class Start(NamedTuple):
    """Where a sweep starts, queue by queue: arguments of the statement. `whole` says which start anew."""

    marks: list[int]
    sinces: list[float]
    behind: list[bool]
    whole: list[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How a sweep went: the last `seq` by the place of its queue, and whether fewer came than were asked for.

    `is_tidy` says that everything due or lost was moved; `server_now` and `cost` are by the server's clock.
    """

    last: dict[int, int]
    came_short: bool
    is_tidy: bool
    server_now: float
    cost: float


class Marks:
    """The marks of the queues that one worker pops; `now` is the event loop's time."""

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}
        self._usual = 0.0
        self._whole = (0.0, 0.0)
        self._next_look_behind = _ALWAYS
        self._busy: dict[tuple[str, ...], float] = {}

    def hurry(self, queues: Sequence[str], now: float) -> list[int] | None:
        """Return where a mere claim may start; None if a sweep is due, or these queues are not busy."""
        if now >= self._busy.get(tuple(queues), _ALWAYS):
            return None
        return [self._mark(queue).seq for queue in queues]

    def claimed(self, queues: Sequence[str], last: dict[int, int]) -> None:
        """Remember where a claim ended on each queue it came to."""
        for place, seq in last.items():
            self._mark(queues[place - 1]).seq = seq

    def start(self, queues: Sequence[str], now: float) -> Start:
        """Return where to start; a queue whose round is due is looked through from the beginning."""
        start = Start([], [], [], [])
        looks_behind = now >= self._next_look_behind
        for queue in queues:
            mark = self._mark(queue)
            whole = now >= mark.next_round
            start.whole.append(whole)
            start.marks.append(_BEGINNING if whole else mark.seq)
            start.sinces.append(_ALWAYS if whole else mark.since)
            start.behind.append(looks_behind and not whole)
        return start

    def swept(self, queues: Sequence[str], start: Start, sweep: Swept, now: float) -> None:
        """Remember where the sweep ended on each queue it came to, and what it cost."""
        pause = self._pause_after(start, sweep)
        if pause:
            self._next_look_behind = now + pause
        self.claimed(queues, sweep.last)
        if len(self._busy) >= _REMEMBERED:
            self._busy.clear()
        self._busy[tuple(queues)] = _ALWAYS if sweep.came_short else now + _HURRY
        for place, queue in enumerate(queues, 1):
            mark = self._mark(queue)
            if sweep.is_tidy:
                mark.since = sweep.server_now - _SLACK
            if start.whole[place - 1] and (sweep.came_short or place <= max(sweep.last)):
                mark.next_round = now + max(_INTERVAL, pause)

    def returned(self, queue: str, seq: int) -> None:
        """Start no later than at a job that went back to its place."""
        mark = self._mark(queue)
        mark.seq = min(mark.seq, seq - 1)

    def _pause_after(self, start: Start, sweep: Swept) -> float:
        """Return how long not to look behind the marks; 0 where it costs little, or was not done.

        One slow sweep proves nothing about the next, so two in a row have to be.
        """
        if not all(start.whole) and not (sweep.came_short and any(start.behind)):
            self._usual = sweep.cost
            return 0.0
        self._whole = (self._whole[1], sweep.cost)
        extra = min(self._whole) - self._usual
        return extra * _SHARE if extra > _CHEAP else 0.0

    def _mark(self, queue: str) -> _Mark:
        mark = self._marks.get(queue)
        if mark is None:
            if len(self._marks) >= _REMEMBERED:
                self._marks.clear()
            mark = self._marks[queue] = _Mark()
        return mark
