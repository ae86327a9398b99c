"""Stores that can do less pass the same suite: a capability changes what is expected, never whether."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.dead_letters import dead_letter_store

from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.port import (
    Answer,
    Backend,
    Failing,
    Message,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
    StoreOptions,
    Verdict,
)
from aqueue.testing.clock import ManualClock
from aqueue.testing.contract import Check, Harness, all_checks


class HostedQueue:
    """A store like a cloud's: it can't clear, fence, keep order, tell a repeated id or hold failed jobs."""

    capabilities = replace(
        MemoryBackend.capabilities,
        system="hosted",
        immediate=False,
        max_batch=10,
        longest_delay=7200.0,
        fenced=False,
        idempotent_push=False,
        exact_size=False,
        ordered=False,
    )
    faults = MemoryBackend.faults

    def __init__(self, shelf: Shelf, memory: MemoryBackend) -> None:
        self._shelf = shelf
        self._memory = memory

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to release."""

    async def migrate(self) -> None:
        """Nothing to create."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        return await self._memory.push(batch)

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        for name in queues:
            self._shelf.lane(name).ready.rotate()  # the last comes first: nothing was promised
        return await self._memory.pop(queues, limit)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        await self._memory.wait(queues, seconds)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        await self._memory.ack(batch)
        return [Verdict.SETTLED] * len(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        await self._memory.release(batch)
        return [Verdict.SETTLED] * len(batch)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        return await self.ack([item.reserved for item in batch])

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        await self._memory.extend(batch)
        return [Verdict.SETTLED] * len(batch)

    async def stats(self, queue: str) -> QueueStats:
        return await self._memory.stats(queue)


def _hosted() -> Harness:
    shelf = Shelf()

    def opener(_: str, options: StoreOptions) -> Backend:
        return HostedQueue(shelf, MemoryBackend(shelf, lease=options.lease, clock=options.clock))

    return Harness("hosted://", opener=opener, clock=ManualClock(ticking=True))


@pytest.mark.rule("CONF-1")
@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
async def test_a_store_that_can_do_less_passes(check: Check) -> None:
    harness = _hosted()

    await check(harness)

    await harness.aclose()


@pytest.mark.rule("CONF-1", "FAIL-1")
@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
async def test_a_store_with_a_dead_letter_queue_passes(check: Check) -> None:
    shelf = Shelf()
    harness = Harness(
        "letters://",
        opener=lambda _, options: dead_letter_store(shelf, options),
        clock=ManualClock(ticking=True),
    )

    await check(harness)

    await harness.aclose()
