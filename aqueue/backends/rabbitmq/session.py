"""One consuming channel and all that hangs on it: consumers, and what they were sent, by its tags.

When the channel is gone so is the session: its deliveries are stale, the broker hands them out again, and no
tag of theirs is ever sent on another channel (FENCE-1).
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from pamqp import base, commands, frame

from aqueue.backends.rabbitmq import wire
from aqueue.backends.rabbitmq.channel import Channel, Content, Hears
from aqueue.backends.rabbitmq.intake import Consumer, HandOut, Intake, Source, State
from aqueue.backends.rabbitmq.link import Link

_MOST_CONSUMERS = 8
"""Of one queue; beyond that, those that have no credit left are ended."""


class Session:
    """Consumers on one channel. `word` is in every receipt, so that none is ever given twice.

    `is_stirred` says that credit has come free, so that more may be on its way than a mere round trip shows;
    `counted` is when it was last asked what the queues have ready. `on_gone` is told of queues that are no
    more.
    """

    def __init__(self, link: Link, on_gone: Callable[[Source], None]) -> None:
        self._on_gone = on_gone
        self.word = os.urandom(6).hex()
        self.link = link
        self.intakes: dict[Source, Intake] = {}
        self.is_stirred = False
        self.counted = link.time()
        self._channel: Channel | None = None
        self._consumers: dict[str, Consumer] = {}
        self._unsettled: dict[int, HandOut] = {}
        self._arrivals: set[asyncio.Future[None]] = set()
        self._last_consumer = 0

    @classmethod
    async def on(cls, link: Link, on_gone: Callable[[Source], None]) -> "Session":
        """Open one on this connection."""
        session = cls(link, on_gone)
        hears = Hears(delivered=session._delivered, cancelled=session._cancelled, closed=session._closed)
        session._channel = await link.channel(hears)
        return session

    @property
    def is_open(self) -> bool:
        """Whether its deliveries can still be settled."""
        return self._channel is not None and self._channel.is_open

    def held(self, source: Source) -> int:
        """Return how many deliveries of a queue are handed out and not settled."""
        intake = self.intakes.get(source)
        if intake is None:
            return 0
        unsettled = sum(handout.consumer.intake is intake for handout in self._unsettled.values())
        return unsettled - len(intake.buffer)

    async def subscribe(self, wanted: Sequence[tuple[Intake, int]]) -> None:
        """Add a consumer with so much credit to each intake; return once the broker has them all."""
        requests: list[base.Frame] = []
        for intake, credit in wanted:
            self._last_consumer += 1
            consumer = Consumer(f"{self._last_consumer}", intake, credit)
            self._consumers[consumer.tag] = intake.consumers[consumer.tag] = consumer
            requests.append(commands.Basic.Qos(prefetch_count=credit))
            requests.append(commands.Basic.Consume(queue=intake.source.name, consumer_tag=consumer.tag))
            if len(intake.consumers) > _MOST_CONSUMERS:
                self._end_spent(intake)
        for reply in self._used.call_all(requests):
            await reply

    async def unsubscribe(self, intake: Intake) -> None:
        """End the consumers of an intake; once this returns, nothing more arrives for it."""
        ended = tuple(intake.consumers.values())
        for reply in self._end(ended):
            await reply
        await self.settled()
        for consumer in ended:  # a delivery may come after the end was confirmed, but not after that
            self._consumers.pop(consumer.tag, None)

    async def settled(self) -> None:
        """Return once the broker has done what was asked of it and sent what it had sent off by then."""
        await self._used.send(frame.marshal(_FENCE, self._used.number))

    def watch(self) -> "asyncio.Future[None]":
        """Return a future that is done at the next arrival, or when the channel closes."""
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.add(arrival)
        arrival.add_done_callback(self._arrivals.discard)
        return arrival

    async def ack(self, handouts: Sequence[HandOut]) -> None:
        """Acknowledge deliveries; return once the broker has taken it."""
        number, tags = self._used.number, sorted(handout.tag for handout in handouts)
        together = self._prefix(set(tags))
        frames = [wire.ack(number, together, multiple=True)] if together else []
        frames += [wire.ack(number, tag) for tag in tags if tag > together]
        await self._settle(handouts, b"".join(frames))

    async def requeue(self, handouts: Sequence[HandOut]) -> None:
        """Let the broker put deliveries back where they were; return once it has taken it."""
        number = self._used.number
        await self._settle(handouts, b"".join(wire.requeue(number, handout.tag) for handout in handouts))

    def close(self) -> None:
        """End the channel; whatever is unsettled goes back."""
        if self._channel is not None:
            self.link.discard(self._channel)

    @property
    def _used(self) -> Channel:
        assert self._channel is not None
        return self._channel

    async def _settle(self, handouts: Sequence[HandOut], frames: bytes) -> None:
        """The answer to a request that follows proves that the broker has taken what went before."""
        done = self._used.send(frames + frame.marshal(_FENCE, self._used.number))
        self.is_stirred = True
        for handout in handouts:
            handout.state = State.OVER
            if self._unsettled.pop(handout.tag, None) is not None:
                handout.consumer.unsettled -= 1
        await done

    def _prefix(self, tags: set[int]) -> int:
        """Return the tag up to which every unsettled delivery is among these; 0 for none."""
        last = 0
        for tag in self._unsettled:
            if tag not in tags:
                break
            last = tag
        return last

    def _end_spent(self, intake: Intake) -> None:
        """End consumers that are sent nothing as long as what they have is unsettled."""
        spent = [one for one in intake.consumers.values() if one.unsettled >= one.prefetch]
        for consumer, ended in zip(spent, self._end(spent), strict=True):
            ended.add_done_callback(lambda _, tag=consumer.tag: self._consumers.pop(tag, None))  # type: ignore[misc]

    def _end(self, consumers: Iterable[Consumer]) -> "list[asyncio.Future[base.Frame]]":
        """End consumers; what they were sent stays theirs to settle."""
        requests: list[base.Frame] = []
        for consumer in consumers:
            del consumer.intake.consumers[consumer.tag]
            requests.append(commands.Basic.Cancel(consumer_tag=consumer.tag))
        return self._used.call_all(requests) if requests else []

    def _delivered(self, content: Content) -> None:
        method = content.method
        end = 5 + method[4]
        consumer = self._consumers.get(method[5:end].decode())
        tag = wire.UNSIGNED_64.unpack_from(method, end)[0]
        if consumer is None:
            self._used.write(wire.requeue(self._used.number, tag))
            return
        handout = HandOut(self, consumer, tag, wire.read(content.properties), content.body)
        self._unsettled[tag] = handout
        consumer.unsettled += 1
        consumer.intake.buffer.append(handout)
        self._tell()

    def _cancelled(self, tag: bytes) -> None:
        """The broker has ended a consumer: its queue is gone or has moved, and what it held is lost to it."""
        consumer = self._consumers.get(tag.decode())
        if consumer is None:
            return
        self._consumers.pop(consumer.tag, None)
        consumer.intake.consumers.pop(consumer.tag, None)
        lost = [handout for handout in self._unsettled.values() if handout.consumer is consumer]
        for handout in lost:
            handout.state = State.OVER
            del self._unsettled[handout.tag]
        consumer.intake.drop_what_is_over()
        self._on_gone(consumer.intake.source)
        self._tell()

    def _closed(self, _: Exception) -> None:
        for intake in self.intakes.values():
            intake.buffer.clear()
            intake.consumers.clear()
        self._unsettled.clear()
        self._tell()

    def _tell(self) -> None:
        for arrival in tuple(self._arrivals):
            if not arrival.done():
                arrival.set_result(None)


_FENCE = commands.Basic.Qos(prefetch_count=1)
