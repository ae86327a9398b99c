"""No store at all: a push runs the job, there and then (SYNC-1).

`push` decodes what would have been stored and hands it to whoever handles jobs, in the caller's own task, so
the handler's error reaches the caller. Nothing waits, nothing is leased and nothing is ever set aside.
"""

from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import TypeAlias

from aqueue.port import (
    Answer,
    Capabilities,
    Examination,
    FailedRecord,
    Failing,
    Faults,
    LeaseKind,
    Message,
    Position,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
    Verdict,
)
from aqueue.port.examining import warning

Perform: TypeAlias = Callable[[Message], Awaitable[None]]
"""Runs the job inside a message; raises what its handler raised."""


class InlineBackend:
    """The port without a store."""

    capabilities = Capabilities(
        system="inline",
        lease=LeaseKind.NONE,
        fenced=False,
        idempotent_push=False,
        counts_lost=False,
        store_clock=False,
        immediate=True,
    )
    faults: Faults = MappingProxyType({})

    def __init__(self) -> None:
        self.perform: Perform | None = None

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to release."""

    async def migrate(self) -> None:
        """Nothing to create."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Run each job in turn; one that raises is answered with its error, and the others run too."""
        assert self.perform is not None
        answers: list[Stored] = []
        for message in batch:
            try:
                await self.perform(message)
            except Exception as error:  # noqa: BLE001 - it is the handler's, and its pusher's to see
                answers.append(error)
            else:
                answers.append(None)
        return answers

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Nothing waits."""
        return []

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Nothing arrives."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Nothing is leased."""
        return [Verdict.STALE] * len(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Nothing is leased."""
        return [Verdict.STALE] * len(batch)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Nothing is leased."""
        return [Verdict.STALE] * len(batch)

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Nothing is leased."""
        return [Verdict.STALE] * len(batch)

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Say that nothing is stored."""
        meaning = "each job runs inside push(): nothing is stored, delayed, retried or set aside"
        advice = "use a store to have jobs outlive a push"
        return Examination([warning("durability", "none", meaning, advice)])

    async def stats(self, queue: str) -> QueueStats:
        """Nothing is stored."""
        return QueueStats(ready=0, delayed=0, leased=0, failed=0)

    async def clear(self, queue: str) -> int:
        """Nothing is stored."""
        return 0

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Nothing fails into this store; it is no `failed=` store for another either."""

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """Nothing failed."""
        return []

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Nothing failed."""
        return None

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Nothing failed."""
        return 0

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Nothing failed."""
        return False

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Nothing failed."""
        return False

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Nothing failed."""
        return 0
