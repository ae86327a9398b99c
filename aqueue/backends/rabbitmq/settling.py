"""How a delivery ends: acknowledged, put back, or swapped for a copy that the broker has confirmed (REL-1).

A copy is always confirmed before its original is acknowledged: a stop between the two doubles a job, and none
is ever lost. Each delivery is settled once; another try, or one whose channel is gone, is stale and nothing
is sent.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from aiormq.exceptions import AMQPError

from aqueue.backends.rabbitmq.intake import HandOut, State
from aqueue.backends.rabbitmq.names import LONGEST_DELAY
from aqueue.backends.rabbitmq.outbox import Outbox, Posting
from aqueue.backends.rabbitmq.session import Session
from aqueue.backends.rabbitmq.troubles import dropping
from aqueue.port import Answer, Failing, NotDispatched, Refused, Releasing, Reserved, Stored, Verdict


class Settling:
    """Settles hand-outs by their receipts."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def ack(self, batch: Sequence[Reserved]) -> list[Answer]:
        """Acknowledge each delivery that is held."""
        return await self._settled(batch, _acknowledge)

    async def release(self, batch: Sequence[Releasing]) -> list[Answer]:
        """Put each delivery back: in its place where the broker can do that uncounted, else as a copy."""
        await _want_no_more([item.reserved for item in batch if not item.counted and not item.delay])
        answers: list[Answer] = [Verdict.STALE] * len(batch)
        in_place, copied = [], []
        for at, item in enumerate(batch):
            if item.delay > LONGEST_DELAY:
                answers[at] = Refused(f"a delay on RabbitMQ is at most {LONGEST_DELAY} s")
            elif not item.counted and not item.delay and _handout(item.reserved).consumer.intake.keeps_place:
                in_place.append(at)
            else:
                copied.append(at)
        back = await self._settled([batch[at].reserved for at in in_place], _requeue)
        swapped = await self._swapped(
            [batch[at].reserved for at in copied],
            lambda places: self._outbox.post([_posting(batch[copied[place]]) for place in places]),
        )
        for at, answer in zip([*in_place, *copied], [*back, *swapped], strict=True):
            answers[at] = answer
        return answers

    async def fail(self, batch: Sequence[Failing]) -> list[Answer]:
        """Swap each delivery for its record on the failed queue."""
        return await self._swapped(
            [failing.reserved for failing in batch],
            lambda places: self._outbox.set_aside([batch[place].record for place in places]),
        )

    async def _settled(
        self,
        batch: Sequence[Reserved],
        settle: Callable[[Session, Sequence[HandOut]], Awaitable[None]],
    ) -> list[Answer]:
        answers: list[Answer] = [Verdict.STALE] * len(batch)
        for session, places in _claimed(batch).items():
            if await _in_session(session, [_handout(batch[place]) for place in places], settle):
                for place in places:
                    answers[place] = Verdict.SETTLED
        return answers

    async def _swapped(
        self,
        batch: Sequence[Reserved],
        store: Callable[[Sequence[int]], Awaitable[Sequence[Stored]]],
    ) -> list[Answer]:
        """Store a copy of each delivery that is held, and acknowledge those whose copy is confirmed."""
        answers: list[Answer] = [Verdict.STALE] * len(batch)
        for session, places in _claimed(batch).items():
            stored: Sequence[Stored] = [NotDispatched()] * len(places)
            try:
                stored = await store(places)
            finally:
                confirmed = [place for place, error in zip(places, stored, strict=True) if error is None]
                for place in set(places) - set(confirmed):
                    _handout(batch[place]).state = State.HELD
            for place, error in zip(places, stored, strict=True):
                if error is not None:
                    answers[place] = error
            if await _in_session(session, [_handout(batch[place]) for place in confirmed], _acknowledge):
                for place in confirmed:
                    answers[place] = Verdict.SETTLED
        return answers


def extended(batch: Sequence[Reserved]) -> list[Answer]:
    """Say which deliveries are held: their channel is their lease, so there is nothing to send (LEASE-1)."""
    return [Verdict.SETTLED if _handout(item).is_held else Verdict.STALE for item in batch]


async def _want_no_more(given_back: Sequence[Reserved]) -> None:
    """End the consumers of queues whose jobs are given back, or the broker would send them here again."""
    held = [handout for handout in map(_handout, given_back) if handout.is_held]
    for intake, session in {handout.consumer.intake: handout.session for handout in held}.items():
        if intake.consumers and not intake.watchers:
            with dropping(session.link), suppress(AMQPError, NotDispatched):
                await session.unsubscribe(intake)


async def _in_session(
    session: Session,
    handouts: Sequence[HandOut],
    settle: Callable[[Session, Sequence[HandOut]], Awaitable[None]],
) -> bool:
    """Settle claimed deliveries; return False where their channel went before anything was sent."""
    if not handouts:
        return True
    with dropping(session.link):
        try:
            await session.link.ready()
            await settle(session, handouts)
        except NotDispatched:
            return False
    return True


async def _acknowledge(session: Session, handouts: Sequence[HandOut]) -> None:
    await session.ack(handouts)


async def _requeue(session: Session, handouts: Sequence[HandOut]) -> None:
    await session.requeue(handouts)


def _claimed(batch: Sequence[Reserved]) -> dict[Session, list[int]]:
    """Claim each delivery that is held for one settlement, by its session; the others are stale."""
    claimed: dict[Session, list[int]] = {}
    for place, item in enumerate(batch):
        handout = _handout(item)
        if handout.is_held:
            handout.state = State.SETTLING
            claimed.setdefault(handout.session, []).append(place)
    return claimed


def _handout(reserved: Reserved) -> HandOut:
    assert isinstance(reserved.receipt, HandOut)
    return reserved.receipt


def _posting(item: Releasing) -> Posting:
    reserved = item.reserved
    counted = item.counted
    return Posting(
        reserved.id,
        reserved.queue,
        reserved.payload,
        item.delay,
        attempts=reserved.attempt if counted else reserved.attempt - 1,
        lost=0 if counted else reserved.lost,
    )
