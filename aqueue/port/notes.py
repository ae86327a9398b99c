"""Notes: small values beside a queue's jobs, changed by compare-and-set (NOTE-1, NOTE-2)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from aqueue.port.records import Answer, Message, Quiet


class Note(Quiet, frozen=True):
    """What a note says now: `value` None and `token` "" where there is none. `now` is the store's clock."""

    value: bytes | None
    token: str
    now: float


class NoteKey(NamedTuple):
    """Where a note is: beside the jobs of a queue, under a key of 1 to 120 of `[A-Za-z0-9_.:-]`."""

    queue: str
    key: str


class Noting(Quiet, frozen=True, kw_only=True):
    """A note to be written if it still is what the writer read, and the jobs to push in the same step.

    `expected` is the token that was read, "" for no note. `token`, 32 hexadecimal digits, is new and the
    writer's own, so that one who lost the reply can look for it. `value` None removes the note. `seconds` is
    how long it lasts by the store's clock, None for ever; past it, it counts as absent. The messages are of
    its own queue; one whose id is held is not stored again, and keeps nothing else from being written.
    """

    at: NoteKey
    value: bytes | None
    token: str
    expected: str = ""
    seconds: float | None = None
    messages: tuple[Message, ...] = ()


@runtime_checkable
class KeepsNotes(Protocol):
    """A store that keeps small values beside a queue's jobs, changed by compare-and-set.

    Limits, unique pushes, schedules, results and batches are built on it, once for all stores.
    """

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note | Exception]:
        """Return what each note says, with the store's time; an error here concerns this note alone."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write each note and push its messages, which wakes who waits, in one atomic step, or answer STALE.

        No key comes twice in one batch.
        """
