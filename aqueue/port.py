"""The port: what a store must do to be an aqueue backend, and nothing it need not.

Five verbs in batches, `push`, `pop`, `ack`, `release` and `fail`, each one atomic step per item in the
store; beside them `extend`, `wait`, `stats` and the opening and closing. What only some stores can do is a
small protocol of its own. A backend translates these verbs into its store's primitives and does nothing
else: no retry, no logging, no polling loop, no spans, no policy. Its driver's errors pass through raw;
`Backend.faults` says what they mean and the queue translates them once.

Two promises every verb keeps:

* An item is answered only after the store holds the change (PUSH-3).
* Cancelling a verb abandons the connection it used, never the next caller's (PUSH-11, CALL-1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

Receipt: TypeAlias = object
"""Opaque proof of one hand-out; only the backend that made it looks inside."""


class Message(msgspec.Struct, frozen=True):
    """A job on its way into the store: sealed bytes, and where and when they become due."""

    id: str
    queue: str
    payload: bytes
    delay: float = 0.0


class Reserved(msgspec.Struct, frozen=True):
    """One hand-out of a stored job: raw bytes, the receipt, and the counters kept outside the seal.

    `attempt` is the number of this attempt, from 1. `lost` counts the leases that ran out since the job's
    last counted settlement. `waited` is how long it had been ready, in seconds of the store's clock.
    """

    id: str
    queue: str
    payload: bytes
    receipt: Receipt
    attempt: int
    lost: int = 0
    waited: float = 0.0


class Releasing(msgspec.Struct, frozen=True):
    """A delivery to put back: due after `delay` seconds, with one more attempt counted, or with none.

    A counted release also starts `lost` at 0 again; an uncounted one changes no counter.
    """

    reserved: Reserved
    delay: float = 0.0
    counted: bool = True


class FailedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job set aside for a person. `payload` is kept byte for byte; `failed_at` is stamped by the store.

    `delivery` names the hand-out that failed, so that writing the same failure twice keeps one record.
    """

    id: str
    name: str
    queue: str
    payload: bytes
    attempts: int
    lost: int
    reason: str
    error_type: str = ""
    error: str = ""
    traceback: str = ""
    pushed_at: float | None = None
    failed_at: float = 0.0
    worker: str = ""
    delivery: str = ""


class Failing(msgspec.Struct, frozen=True):
    """A delivery to set aside, and the record that takes its place."""

    reserved: Reserved
    record: FailedRecord


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs stand where. `ready` includes jobs whose lease ran out; `oldest_age` is in seconds."""

    ready: int
    delayed: int
    leased: int
    failed: int
    oldest_age: float | None = None


class Verdict(Enum):
    """What a store answers to a settlement or a renewal, item by item."""

    SETTLED = "settled"
    STALE = "stale"
    UNKNOWN = "unknown"


Stored: TypeAlias = Exception | None
"""What became of one pushed message: None once the store holds it, else the driver's error."""

Answer: TypeAlias = Verdict | Exception
"""What became of one settlement; an error here concerns this item alone."""


class LeaseKind(StrEnum):
    """How long a hand-out holds: a time, the life of its channel, or not at all."""

    TIMED = "timed"
    CHANNEL = "channel"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What differs between stores; checked when a queue opens, not when a job is already lost.

    `longest_delay` and `longest_wait` are seconds. `max_batch` and `max_batch_bytes` bound one verb call.
    `immediate` promises that a verb is safe in the caller's own task, whenever that is cancelled: it never
    suspends, or what it does is the caller's. Such calls get no task and no upper time, and their errors
    reach the caller as they are. `counts_give_backs` says that the store counts hand-outs and nothing else,
    so that a give-back adds an attempt too (ATT-1, SQS).
    """

    system: str
    longest_delay: float | None = None
    longest_wait: float = 1.0
    max_batch: int = 500
    max_batch_bytes: int = 4 * 1024 * 1024
    max_message_bytes: int = 16 * 1024 * 1024
    lease: LeaseKind = LeaseKind.TIMED
    shortest_lease: float = 0.05
    longest_lease: float | None = None
    fenced: bool = True
    idempotent_push: bool = True
    counts_lost: bool = True
    exact_size: bool = True
    ordered: bool = True
    store_clock: bool = True
    immediate: bool = False
    counts_give_backs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What every backend is told: the lease in seconds, and a clock for stores without one of their own."""

    lease: float
    clock: Callable[[], float]


class Fault(Enum):
    """What a driver's error proves about the call that raised it (PUSH-4)."""

    NEVER_SENT = "never sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


Faults: TypeAlias = Mapping[type[BaseException], Fault]


class NotDispatched(Exception):
    """Raise from the driver's error when no byte of the call was handed over: connecting failed, say."""


class Refused(Exception):
    """Raise when the store certainly did nothing and no driver error says so by its class."""


class Backend(Protocol):
    """A store of jobs. Constructors keep options; `open` connects; whoever opens closes."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can and can't do."""

    @property
    def faults(self) -> Faults:
        """The driver's exceptions and what each proves."""

    async def open(self) -> None:
        """Connect and check the store; safe to call once per `aclose`."""

    async def aclose(self) -> None:
        """Release connections and threads; idempotent."""

    async def migrate(self) -> None:
        """Create or upgrade what the store needs; safe to repeat and side by side."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Store each message, in order; an id its queue still holds stores nothing and counts as stored."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Make one immediate sweep in list order and reserve up to `limit` jobs; never wait (POP-2).

        Leases that ran out are taken back here: one more attempt and one more lost lease each (LEASE-2).
        """

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return when something may have arrived or become due, or when the time is over (POP-3)."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Remove each delivery that is still leased."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Swap each delivery that is still leased for a waiting job (REL-1)."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each delivery that is still leased for its failed record (FAIL-1)."""

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease that is still held anew, without reviving one that passed on (LEASE-3)."""

    async def stats(self, queue: str) -> QueueStats:
        """Count the queue's jobs by state."""


@runtime_checkable
class Clearable(Protocol):
    """A store that can discard waiting jobs without touching reserved ones."""

    async def clear(self, queue: str) -> int:
        """Discard every unreserved job, delayed ones included; return how many (CLEAR-1)."""


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

    async def failed_purge(self, *, older_than: float | None, keep: int | None, limit: int) -> int:
        """Remove up to `limit` of the oldest records past an age in seconds or beyond a count."""


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


class Note(msgspec.Struct, frozen=True):
    """What a note says now: `value` None and `token` "" where there is none. `now` is the store's clock."""

    value: bytes | None
    token: str
    now: float


class NoteKey(NamedTuple):
    """Where a note is: beside the jobs of a queue, under a key of 1 to 120 of `[A-Za-z0-9_.:-]`."""

    queue: str
    key: str


class Noting(msgspec.Struct, frozen=True, kw_only=True):
    """A note to be written if it still is what the writer read, and the jobs to push in the same step.

    `expected` is the token that was read, "" for no note; `token` is new and the writer's own, so that one
    who lost the reply can see whether the write was applied. `value` None removes the note. `seconds` is
    how long it lasts by the store's clock, None for ever; a note past its time counts as absent. The
    messages wait on the note's own queue.
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

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        """Return what each note says, with the store's time."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write each note and push its messages in one atomic step, or answer STALE and do neither."""


@runtime_checkable
class Transactional(Protocol):
    """A store that can write inside the caller's own transaction (PUSH-8)."""

    async def push_within(self, connection: object, batch: Sequence[Message]) -> None:
        """Store the batch on the caller's connection, or raise `InvalidQueueArgument` if it can't be used."""


@runtime_checkable
class Browsable(Protocol):
    """A store that can show what it holds without reserving it."""

    async def browse(self, queue: str, *, after: str | None, limit: int) -> Sequence[Message]:
        """Return waiting and leased jobs in a stable order, `limit` after the given id."""
