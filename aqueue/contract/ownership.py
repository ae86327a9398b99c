"""Who owns an occurrence, as a note says it: the transitions of `OccurrenceNotes` (OCC-1).

    (nothing) --acquire--> held --complete--> done
                 ^          |  --dead_letter--> dead --acquire--> held
                 '--release-'     a lease that ran out is acquired by the next who asks

Each acquire gets a higher fence, and every other transition names the one it has: one that is no longer the
note's changes nothing.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from aqueue.errors import InvalidQueueArgument

Phase = Literal["held", "free", "done", "dead"]


class Owned(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an occurrence stands. `until` is when its lease is over, in seconds by the store's clock."""

    phase: Phase
    fence: int = 0
    worker: str = ""
    until: float = 0.0
    reason: str = ""


NEW = Owned("free")


def acquired(owned: Owned, worker: str, *, now: float, lease: float) -> Owned | None:
    """Give it to this worker, with a higher fence; None where it is done, or held by somebody."""
    if owned.phase == "done" or (owned.phase == "held" and owned.until > now):
        return None
    return Owned("held", fence=owned.fence + 1, worker=worker, until=now + lease)


def renewed(owned: Owned, fence: int, *, now: float, lease: float) -> Owned | None:
    """Begin the lease's time anew, past its end too while nobody took it; None where it has passed on."""
    return replace(owned, until=now + lease) if _is_held_by(owned, fence) else None


def completed(owned: Owned, fence: int) -> Owned | None:
    """Say that it is done; saying it twice is once. None where the lease has passed on."""
    if owned.phase == "done" and owned.fence == fence:
        return owned
    return replace(owned, phase="done", until=0.0) if _is_held_by(owned, fence) else None


def dead_lettered(owned: Owned, fence: int, reason: str) -> Owned | None:
    """Say that its job was set aside; a person may put that back. None where the lease has passed on."""
    return replace(owned, phase="dead", until=0.0, reason=reason) if _is_held_by(owned, fence) else None


def released(owned: Owned, fence: int) -> Owned | None:
    """End the lease with nothing done; None where it has passed on."""
    return replace(owned, phase="free", worker="", until=0.0) if _is_held_by(owned, fence) else None


def owned_in(value: bytes | None) -> Owned:
    """Return what a note says; raises `InvalidQueueArgument` for one that can't be read."""
    if value is None:
        return NEW
    try:
        return msgspec.json.decode(value, type=Owned)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidQueueArgument("the note of an occurrence can't be read") from error


def _is_held_by(owned: Owned, fence: int) -> bool:
    return owned.phase == "held" and owned.fence == fence
