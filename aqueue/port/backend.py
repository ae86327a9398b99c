"""The verbs, what differs between stores, and what a driver's errors prove."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from aqueue.port.records import Answer, Failing, Message, QueueStats, Releasing, Reserved, Stored


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
    so that a give-back adds an attempt too (ATT-1, SQS). `pauses_in_flight` says that a job
    released with a delay counts as leased until that is over (SQS). `atomic_push` promises that one batch of
    pushes is stored whole or not at all, whatever queues it is for (TOPIC-1). `delay_step` is the unit of
    seconds to which the store rounds a delay up.
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
    pauses_in_flight: bool = False
    atomic_push: bool = False
    delay_step: float = 0.0


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
class AcksAtOnce(Protocol):
    """A store in this process's own memory, where removing a job takes less time than waiting for it."""

    def ack_now(self, item: Reserved) -> Answer:
        """Do as `ack` does for one delivery, by a plain call."""


@runtime_checkable
class Clearable(Protocol):
    """A store that can discard waiting jobs without touching reserved ones."""

    async def clear(self, queue: str) -> int:
        """Discard every unreserved job, delayed ones included; return how many (CLEAR-1)."""


@runtime_checkable
class Transactional(Protocol):
    """A store that can write inside the caller's own transaction (PUSH-8)."""

    async def push_within(self, connection: object, batch: Sequence[Message]) -> None:
        """Store the batch on the caller's connection, or raise `InvalidQueueArgument` if it can't be used."""
