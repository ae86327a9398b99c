"""Hand-outs that have arrived and that no pop has taken yet.

Whatever SQS hands out lands here first, so that a pop that is cancelled, or a wait that found something,
leaves nothing between two chairs. What is not taken soon goes back.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import NamedTuple

from aqueue.backends.sqs.receipts import Receipt
from aqueue.port import Reserved


class _Held(NamedTuple):
    item: Reserved
    since: float


class Inbox:
    """Hand-outs by queue, in the order in which they came."""

    def __init__(self) -> None:
        self._lanes: defaultdict[str, deque[_Held]] = defaultdict(deque)

    def put(self, items: Iterable[Reserved]) -> None:
        """Keep hand-outs until a pop takes them."""
        now = monotonic()
        for item in items:
            self._lanes[item.queue].append(_Held(item, now))

    def put_back(self, items: Sequence[Reserved]) -> None:
        """Keep hand-outs that a pop took and could not return, before all others."""
        now = monotonic()
        for item in reversed(items):
            self._lanes[item.queue].appendleft(_Held(item, now))

    def holds(self, queues: Iterable[str]) -> bool:
        """Whether there is something for one of these queues."""
        now = monotonic()
        return any(_is_held(held.item, now) for queue in queues for held in self._lanes.get(queue, ()))

    def take(self, queue: str, most: int) -> list[Reserved]:
        """Take the first of a queue; what has lain here until its time was over is somebody else's by now."""
        now = monotonic()
        lane = self._lanes.get(queue)
        taken: list[Reserved] = []
        while lane and len(taken) < most:
            item = lane.popleft().item
            if _is_held(item, now):
                taken.append(item)
        return taken

    def take_older_than(self, seconds: float) -> list[Reserved]:
        """Take all that has lain here for longer."""
        now = monotonic()
        taken: list[Reserved] = []
        for lane in self._lanes.values():
            while lane and now - lane[0].since >= seconds:
                item = lane.popleft().item
                if _is_held(item, now):
                    taken.append(item)
        return taken


def _is_held(item: Reserved, now: float) -> bool:
    return isinstance(item.receipt, Receipt) and item.receipt.is_held(now)
