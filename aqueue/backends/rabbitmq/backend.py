"""Jobs in RabbitMQ: confirmed in, consumed out, and delayed on a ladder of queues.

A delivery is held by the channel it came on. Nothing here polls: what consumers are sent lies in buffers that
a sweep empties, and whatever is written is answered for by a confirm or by the request behind it.
"""

from collections.abc import Callable, Sequence

from aqueue.backends.rabbitmq import examining
from aqueue.backends.rabbitmq.consuming import Consuming
from aqueue.backends.rabbitmq.declaring import Declarations
from aqueue.backends.rabbitmq.dialling import Line
from aqueue.backends.rabbitmq.intake import HandOut, Source
from aqueue.backends.rabbitmq.names import LONGEST_DELAY, TIERS, Names
from aqueue.backends.rabbitmq.outbox import Outbox, Posting, recorded
from aqueue.backends.rabbitmq.settings import Settings
from aqueue.backends.rabbitmq.settling import Settling, extended
from aqueue.backends.rabbitmq.troubles import FAULTS
from aqueue.port import (
    Answer,
    Capabilities,
    Dead,
    Examination,
    FailedRecord,
    Failing,
    LeaseKind,
    Message,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
)

_MOST_BYTES = 15 * 1024 * 1024
"""A broker takes 16 MiB by default, and a failed job travels with what is said of it."""

_GIVES_BACK_UNCOUNTED = (4, 3)
"""From this version on a quorum queue takes a delivery back without counting it."""


class RabbitMQBackend:
    """The port over two connections: one for publishing, which the broker may block, and one for the rest."""

    faults = FAULTS

    def __init__(self, settings: Settings, *, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._is_quorum = settings.queue_type == "quorum"
        self.capabilities = _capabilities(is_quorum=self._is_quorum)
        self._names = Names(settings.prefix, settings.queue_type)
        dialler = settings.dialler()
        self._publishing, self._line = Line(dialler), Line(dialler)
        self._declarations = Declarations(self._line, self._names)
        self._outbox = Outbox(
            self._publishing, self._names, confirm_timeout=settings.confirm_timeout, clock=clock
        )
        self._settling = Settling(self._outbox)
        self._consuming = Consuming(
            self._line,
            self._declarations,
            most=settings.prefetch,
            give_back=self._give_back,
            keeps_place=lambda version: not self._is_quorum or version >= _GIVES_BACK_UNCOUNTED,
        )

    def __repr__(self) -> str:
        return f"<RabbitMQBackend {self._settings.url}>"

    async def open(self) -> None:
        """Connect, and see that the broker lets us in."""
        await self._line.link()

    async def aclose(self) -> None:
        """Give back what nobody has started and close the connections; what is held goes back with them."""
        await self._consuming.aclose()
        await self._publishing.aclose()
        await self._line.aclose()

    async def migrate(self) -> None:
        """Nothing to create: queues are declared when they are first used."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Publish the batch and wait until the broker has confirmed each message of it (PUSH-3, PUSH-5)."""
        return await self._outbox.post(
            [Posting(message.id, message.queue, message.payload, message.delay) for message in batch]
        )

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Sweep the local buffers in list order, and ask the broker where they can't tell (POP-2)."""
        found = await self._consuming.pop([self._ready(queue) for queue in queues], limit)
        return [self._reserved(handout) for handout in found]

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return when a consumer of one of these queues was sent something, or after `seconds`."""
        await self._consuming.wait([self._ready(queue) for queue in queues], seconds)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Acknowledge each delivery that its channel still holds."""
        return await self._settling.ack(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each delivery back, by a confirmed copy where anything about it changes (REL-1)."""
        return await self._settling.release(batch)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each delivery for its record on the queue's own failed queue (FAIL-1)."""
        return await self._settling.fail(batch)

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Say which deliveries are held still; a channel's lease needs no renewal (LEASE-1)."""
        return extended(batch)

    async def take_dead(self, queue: str, limit: int) -> Sequence[Dead]:
        """Reserve failed jobs of a queue, the oldest first."""
        found = await self._consuming.pop_alone(self._failed(queue), limit)
        return [Dead(self._record(handout), self._reserved(handout)) for handout in found]

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Look at the broker and these queues, as far as AMQP shows them."""
        dialler = self._settings.dialler()
        return await examining.examine(dialler, self._names, queues, is_quorum=self._is_quorum)

    async def stats(self, queue: str) -> QueueStats:
        """Ask each queue for what it has ready; what other consumers were sent is in none of the numbers."""
        ready, failed = self._ready(queue), self._failed(queue)
        tiers = await self._declarations.counts(self._tiers(queue))
        waiting = sum(await self._declarations.counts([ready.name]))
        return QueueStats(
            ready=waiting + self._consuming.waiting(ready),
            delayed=sum(tiers),
            leased=self._consuming.held(ready),
            failed=sum(await self._declarations.counts([failed.name])) + self._consuming.waiting(failed),
        )

    async def clear(self, queue: str) -> int:
        """Purge the ladder from the top down, then the queue, then our own buffer of it (CLEAR-1)."""
        ready = self._ready(queue)
        there = len(await self._declarations.counts(self._tiers(queue)))
        delayed = await self._declarations.purge(self._tiers(queue)[:there][::-1])
        return delayed + await self._declarations.purge([ready.name]) + await self._consuming.discard(ready)

    def _ready(self, queue: str) -> Source:
        return Source(queue, self._names.ready(queue))

    def _failed(self, queue: str) -> Source:
        return Source(queue, self._names.failed(queue), is_failed=True)

    def _tiers(self, queue: str) -> list[str]:
        return [self._names.tier(queue, number) for number in range(TIERS)]

    def _reserved(self, handout: HandOut) -> Reserved:
        tidings, queue = handout.tidings, handout.consumer.intake.source.queue
        return Reserved(
            id=tidings.job_id or f"{handout.session.word}{handout.tag:020d}",
            queue=queue,
            payload=handout.body,
            receipt=handout,
            attempt=1 + tidings.attempts + tidings.redeliveries,
            lost=tidings.lost + tidings.redeliveries if tidings.lost >= 0 else -1,
            waited=max(0.0, self._clock() - tidings.due / 1000) if tidings.due else 0.0,
        )

    def _record(self, handout: HandOut) -> FailedRecord:
        """Return the record that a message on a failed queue holds, or one that says nobody can read it."""
        record = recorded(handout.body)
        if record is not None:
            return record
        reserved = self._reserved(handout)
        return FailedRecord(
            id=reserved.id, name="", queue=reserved.queue, payload=handout.body, attempts=0, lost=0,
            reason="malformed",
        )  # fmt: skip

    async def _give_back(self, handouts: Sequence[HandOut]) -> None:
        releasing = [Releasing(self._reserved(handout), counted=False) for handout in handouts]
        await self._settling.release(releasing)


def _capabilities(*, is_quorum: bool) -> Capabilities:
    return Capabilities(
        system="rabbitmq",
        longest_delay=LONGEST_DELAY,
        max_message_bytes=_MOST_BYTES,
        lease=LeaseKind.CHANNEL,
        fenced=False,
        idempotent_push=False,
        counts_lost=is_quorum,
        exact_size=False,
        ordered=not is_quorum,
        store_clock=False,
        delay_step=1.0,
    )
