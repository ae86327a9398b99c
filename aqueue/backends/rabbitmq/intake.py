"""What a connection has asked the broker for and not yet handed out: plain state, changed in one step.

A consumer's prefetch is its credit: so many unsettled deliveries the broker lets it have. A queue's intake
adds a consumer where it wants more than its consumers have left, so what lies in its buffer is never more
than somebody asked for.
"""

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from aqueue.backends.rabbitmq.wire import Tidings

if TYPE_CHECKING:
    from aqueue.backends.rabbitmq.session import Session


class State(Enum):
    """Where a delivery stands, as far as this end knows."""

    HELD = "held"
    SETTLING = "settling"
    OVER = "over"


class Consumer:
    """One consumer in the broker: how many unsettled deliveries it may have, and how many it has."""

    __slots__ = ("intake", "prefetch", "tag", "unsettled")

    def __init__(self, tag: str, intake: "Intake", prefetch: int) -> None:
        self.tag = tag
        self.intake = intake
        self.prefetch = prefetch
        self.unsettled = 0


class HandOut:
    """One delivery of a message, from its arrival to its settlement; as a receipt it proves this very one."""

    __slots__ = ("body", "consumer", "session", "state", "tag", "tidings")

    def __init__(
        self, session: "Session", consumer: Consumer, tag: int, tidings: Tidings, body: bytes
    ) -> None:
        self.session = session
        self.consumer = consumer
        self.tag = tag
        self.tidings = tidings
        self.body = body
        self.state = State.HELD

    def __str__(self) -> str:
        return f"{self.session.word}.{self.tag}"

    def __repr__(self) -> str:
        return f"<HandOut {self} {self.state.value}>"

    @property
    def is_held(self) -> bool:
        """Whether it can be settled: not over, not being settled, and its channel still open."""
        return self.state is State.HELD and self.session.is_open


class Source(NamedTuple):
    """A queue to take from: ours and the broker's name for it, and whether failed jobs lie there."""

    queue: str
    name: str
    is_failed: bool = False


class Intake:
    """One queue's consumers and its buffer.

    `wanted` is how many jobs the last sweep wanted here, `demanded` when that was or when somebody last
    waited, `watchers` how many wait now. `keeps_place` says that the broker puts back what it is told to
    without counting.
    """

    __slots__ = ("buffer", "consumers", "demanded", "keeps_place", "source", "wanted", "watchers")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.buffer: deque[HandOut] = deque()
        self.consumers: dict[str, Consumer] = {}
        self.wanted = 1
        self.demanded = 0.0
        self.watchers = 0
        self.keeps_place = False

    @property
    def credit(self) -> int:
        """How many more messages the broker would send at once if it had them."""
        return sum(max(0, consumer.prefetch - consumer.unsettled) for consumer in self.consumers.values())

    def take(self, limit: int) -> list[HandOut]:
        """Hand out up to so many of what has arrived."""
        return [self.buffer.popleft() for _ in range(min(limit, len(self.buffer)))]

    def drop_what_is_over(self) -> None:
        """Leave in the buffer only what can still be handed out."""
        self.buffer = deque(handout for handout in self.buffer if handout.is_held)
