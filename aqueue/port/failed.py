"""What a store of failed jobs can do, and one that only sets them aside (FAIL-1, FAIL-2)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from aqueue.port.records import FailedRecord, Message, Reserved


class Position(NamedTuple):
    """Where a page of failed jobs ended: they are listed oldest first."""

    failed_at: float
    id: str


@runtime_checkable
class KeepsFailed(Protocol):
    """A store of failed jobs; also the whole interface that a `failed=` store needs (FAIL-1, FAIL-2)."""

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record; one with the same queue, id and delivery is stored once."""

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """Return up to `limit` records after a position, oldest first, at the cost of the page."""

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Return the oldest record with this job id."""

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Put the message back and remove the record in one step; False when the record is gone."""

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Remove the record; False when it is gone."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Remove up to `limit` of the oldest records, or a queue's, past an age (s) or beyond a count."""


class Dead(msgspec.Struct, frozen=True):
    """A failed job taken from a store's own dead-letter queue: `reserved` settles it there."""

    record: FailedRecord
    reserved: Reserved


@runtime_checkable
class DeadLetters(Protocol):
    """A store that sets failed jobs aside in a queue they can be taken from, but not listed (FAIL-1)."""

    async def take_dead(self, queue: str, limit: int) -> Sequence[Dead]:
        """Reserve up to `limit` of the queue's failed jobs, oldest first.

        `ack` removes such a reservation, an uncounted `release` gives it back to where it was.
        """
