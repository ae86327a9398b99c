"""`OccurrenceNotes`: an `OccurrenceRuntime` over a queue's notes, for whoever has none of their own (OCC-1).

On the SQL stores an occurrence is one row, on Redis one key. Every transition is one compare-and-set and
names the fence of its lease, so whoever lost it changes nothing.
"""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from aqueue.contract.names import check_seconds
from aqueue.contract.notes import note_key
from aqueue.contract.occurrence import Occurrence
from aqueue.contract.ownership import (
    Owned,
    acquired,
    completed,
    dead_lettered,
    owned_in,
    released,
    renewed,
)
from aqueue.errors import InvalidQueueArgument
from aqueue.limits import check_time
from aqueue.notes import Change, Decision, Leave, Note
from aqueue.occurrences import Acquired, OccurrenceDone, OccurrenceLease
from aqueue.queue import Queue

_LONGEST_REASON = 1000


class OccurrenceNotes:
    """Keeps who runs which occurrence, and which are complete, in the store of a queue that is open.

    A lease lasts `lease` seconds without renewal. What became of an occurrence is remembered for `keep`, a
    week unless told otherwise: a job of it that turns up later runs again. Both are seconds or timedeltas.
    Raises `NotesMissing` for a store that keeps no notes.
    """

    def __init__(
        self, queue: Queue, *, lease: float | timedelta = 60.0, keep: float | timedelta = timedelta(days=7)
    ) -> None:
        queue.notes.check_kept()
        self._notes = queue.notes
        self._lease = check_time(lease, "lease")
        self._keep = check_seconds(keep, "keep")
        if self._keep < self._lease:
            raise InvalidQueueArgument("keep must be at least as long as a lease")

    async def acquire(self, occurrence: Occurrence, worker: str) -> Acquired:
        """Return a lease with a higher fence than any before, or say why there is none."""

        def take(note: Note) -> Decision[Acquired]:
            owned = owned_in(note.value)
            taken = acquired(owned, worker, now=note.now, lease=self._lease)
            if taken is None:
                return Leave(OccurrenceDone() if owned.phase == "done" else None)
            lease = OccurrenceLease(
                occurrence=occurrence, worker=worker, fence=taken.fence, seconds=self._lease
            )
            return Change(value=msgspec.json.encode(taken), seconds=self._keep, result=lease)

        return await self._notes.change(*_place(occurrence), take)

    async def renew(self, lease: OccurrenceLease) -> bool:
        """Begin the lease's time anew; False where somebody else was given one since."""
        return await self._step(
            lease, lambda owned, now: renewed(owned, lease.fence, now=now, lease=self._lease)
        )

    async def complete(self, lease: OccurrenceLease) -> bool:
        """Note that it is done; False, with nothing noted, where somebody else was given a lease since."""
        return await self._step(lease, lambda owned, _: completed(owned, lease.fence))

    async def dead_letter(self, lease: OccurrenceLease, reason: str) -> bool:
        """Note that its job was set aside; it may be acquired again, for a job that a person puts back."""
        text = reason[:_LONGEST_REASON]
        return await self._step(lease, lambda owned, _: dead_lettered(owned, lease.fence, text))

    async def release(self, lease: OccurrenceLease) -> bool:
        """End the lease with nothing done, so that the next attempt need not wait until it is over."""
        return await self._step(lease, lambda owned, _: released(owned, lease.fence))

    async def state(self, occurrence: Occurrence) -> Owned:
        """Say where an occurrence stands; one that nobody asked for is free, with fence 0."""
        return owned_in((await self._notes.read(*_place(occurrence))).value)

    async def _step(self, lease: OccurrenceLease, becomes: Callable[[Owned, float], Owned | None]) -> bool:
        def decide(note: Note) -> Decision[bool]:
            after = becomes(owned_in(note.value), note.now)
            if after is None:
                return Leave(False)
            return Change(value=msgspec.json.encode(after), seconds=self._keep, result=True)

        return await self._notes.change(*_place(lease.occurrence), decide)


def _place(occurrence: Occurrence) -> tuple[str, str]:
    """Return where an occurrence's note is: beside one of 256 queues, so that a cluster spreads them."""
    key = note_key("occurrence", occurrence.schedule, occurrence.due_at.isoformat(), occurrence.trigger)
    return f"occurrences-{key[-2:]}", key
