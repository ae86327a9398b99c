"""What passes through the port: messages, hand-outs, settlements, and what is answered to them."""

from enum import Enum
from typing import TypeAlias

import msgspec

Receipt: TypeAlias = object
"""Opaque proof of one hand-out; only the backend that made it looks inside."""


class Quiet(msgspec.Struct, frozen=True):
    """A record whose bytes are a job's or a caller's own: its repr says how many, and shows none (WORK-5)."""

    def __repr__(self) -> str:
        shown = (f"{name}={_unless_bytes(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(shown)})"


def _unless_bytes(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else repr(value)


class Message(Quiet, frozen=True):
    """A job on its way into the store: sealed bytes, and where and when they become due."""

    id: str
    queue: str
    payload: bytes
    delay: float = 0.0


class Reserved(Quiet, frozen=True):
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


class FailedRecord(Quiet, frozen=True, kw_only=True):
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
