"""A store that sets failed jobs aside in a queue of its own, as brokers do, made out of memory."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.port import (
    Answer,
    Dead,
    FailedRecord,
    Failing,
    Message,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
    StoreOptions,
    Verdict,
)


class DeadLetterStore:
    """Failed jobs are messages of the queue `{queue}-failed`: they can be taken and settled, not listed."""

    capabilities = replace(
        MemoryBackend.capabilities, system="letters", immediate=False, max_batch=50, idempotent_push=False
    )
    faults = MemoryBackend.faults

    def __init__(self, memory: MemoryBackend, options: StoreOptions) -> None:
        self._memory = memory
        self._options = options

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to release."""

    async def migrate(self) -> None:
        """Nothing to create."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        return await self._memory.push(batch)

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await self._memory.pop(queues, limit)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        await self._memory.wait(queues, seconds)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return await self._memory.ack(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await self._memory.release(batch)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Settle first, so that a stale delivery leaves no letter; memory can't stop in between."""
        answers = await self._memory.ack([item.reserved for item in batch])
        settled = [i for i, answer in zip(batch, answers, strict=True) if answer is Verdict.SETTLED]
        await self._memory.push([self._letter(item) for item in settled])
        return answers

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return await self._memory.extend(batch)

    async def stats(self, queue: str) -> QueueStats:
        letters = await self._memory.stats(_letters_of(queue))
        return msgspec.structs.replace(await self._memory.stats(queue), failed=letters.ready)

    async def take_dead(self, queue: str, limit: int) -> Sequence[Dead]:
        taken = await self._memory.pop([_letters_of(queue)], limit)
        return [Dead(_decoder.decode(reserved.payload), reserved) for reserved in taken]

    def _letter(self, failing: Failing) -> Message:
        record = msgspec.structs.replace(failing.record, failed_at=self._options.clock())
        letter = _encoder.encode(record)
        return Message(f"{record.id}-{record.delivery}", _letters_of(record.queue), letter)


def dead_letter_store(shelf: Shelf, options: StoreOptions) -> DeadLetterStore:
    """Return a connection to the store on this shelf."""
    return DeadLetterStore(MemoryBackend(shelf, lease=options.lease, clock=options.clock), options)


def _letters_of(queue: str) -> str:
    return f"{queue}-failed"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FailedRecord)
