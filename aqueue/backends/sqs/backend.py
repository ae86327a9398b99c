"""Jobs in Amazon SQS: standard queues of one account in one region, or of a server that speaks as SQS does.

A job is a message, a lease its visibility timeout, and a settlement a deletion or a change of that timeout.
SQS counts hand-outs and nothing else, and keeps no failed jobs.
"""

import math
from collections.abc import Sequence

from aqueue.backends.sqs import examining
from aqueue.backends.sqs.bodies import LABEL_BYTES, MOST_BYTES
from aqueue.backends.sqs.clients import LONGEST_POLL, Clients
from aqueue.backends.sqs.handouts import HandOuts
from aqueue.backends.sqs.places import Places
from aqueue.backends.sqs.receipts import LONGEST_HOLD
from aqueue.backends.sqs.sending import Sending
from aqueue.backends.sqs.settings import Settings
from aqueue.backends.sqs.settling import Settling
from aqueue.backends.sqs.troubles import FAULTS
from aqueue.port import (
    Answer,
    Capabilities,
    Examination,
    Failing,
    Message,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
)

_LONGEST_DELAY = 900.0
_COUNTERS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
)


class SQSBackend:
    """The port over batches of ten, many of them side by side."""

    capabilities = Capabilities(
        system="aws_sqs",
        longest_delay=_LONGEST_DELAY,
        longest_wait=float(LONGEST_POLL),
        max_batch=100,
        max_batch_bytes=4 * MOST_BYTES,
        max_message_bytes=MOST_BYTES - LABEL_BYTES,
        shortest_lease=1.0,
        longest_lease=float(LONGEST_HOLD),
        fenced=False,
        idempotent_push=False,
        counts_lost=False,
        exact_size=False,
        ordered=False,
        counts_give_backs=True,
        pauses_in_flight=True,
        delay_step=1.0,
    )
    faults = FAULTS

    def __init__(self, settings: Settings, *, lease: float) -> None:
        self._settings = settings
        self._clients = Clients(settings)
        self._places = Places(self._clients, prefix=settings.prefix, creates=settings.creates)
        self._sending = Sending(self._places)
        self._settling = Settling(self._places, lease=math.ceil(lease))
        self._handouts = HandOuts(self._places, self._settling, lease=math.ceil(lease))

    def __repr__(self) -> str:
        return f"<SQSBackend {self._settings.url}>"

    async def open(self) -> None:
        """Make the clients; queues are looked for when they are first used."""
        await self._clients.open()

    async def aclose(self) -> None:
        """Give back what nobody took, and close every connection."""
        await self._handouts.aclose()
        await self._clients.aclose()

    async def migrate(self) -> None:
        """Nothing to create: queues are your infrastructure's, or made by `create=true` at first use."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Store each message (PUSH-3)."""
        stored = await self._sending.push(batch)
        for message in batch:
            self._handouts.arrived(message.queue)
        return stored

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Sweep in list order (POP-2)."""
        return await self._handouts.pop(queues, limit)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Wait for an arrival on any of the queues by long polls (POP-3)."""
        await self._handouts.wait(queues, seconds)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Delete each message whose time is not over."""
        return await self._settling.delete(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Show each message again, at once or after its delay (REL-1)."""
        answers = await self._settling.release(batch)
        for releasing in batch:
            self._handouts.arrived(releasing.reserved.queue)
        return answers

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Delete each message: SQS keeps no failed jobs."""
        return await self._settling.delete([failing.reserved for failing in batch])

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Hide each message for a lease from now, within the twelve hours that SQS allows (LEASE-3)."""
        return await self._settling.extend(batch)

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Look at each queue's attributes; what is missing stays missing."""
        return await examining.examine(self._clients, self._settings, queues)

    async def stats(self, queue: str) -> QueueStats:
        """Return SQS' own estimates; it tells no age (SIZE-1)."""
        reply = await self._places.call(queue, "get_queue_attributes", AttributeNames=list(_COUNTERS))
        attributes = reply.get("Attributes", {})
        ready, delayed, leased = (int(attributes.get(name, 0)) for name in _COUNTERS)
        return QueueStats(ready=ready, delayed=delayed, leased=leased, failed=0)
