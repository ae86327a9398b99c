"""What becomes of a delivery once its handler has ended (ATT-2, ATT-3, ATT-4, WORK-3)."""

from dataclasses import dataclass
from typing import TypeAlias

from aqueue.contract.retry import Backoff, BackoffFunction, pause_after
from aqueue.errors import Discard, JobLost, Retry, Snooze


@dataclass(frozen=True, slots=True)
class Ack:
    """The handler returned: the job is done."""


@dataclass(frozen=True, slots=True)
class Release:
    """Another attempt follows after `delay` seconds; `counted` says whether this one was an attempt."""

    delay: float = 0.0
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Fail:
    """The job is set aside with this reason."""

    reason: str


Decision: TypeAlias = Ack | Release | Fail

ACK = Ack()
GIVE_BACK = Release(0.0, counted=False)


def decision_after(
    error: BaseException | None,
    *,
    attempt: int,
    max_attempts: int,
    backoff: Backoff | BackoffFunction,
    chance: float,
) -> Decision:
    """Decide a delivery's ending from what its handler did; only a raised error consults the cap (ATT-2).

    `chance` is a random number in [0, 1). A cap of 0 or 1 never retries.
    """
    match error:
        case None:
            return ACK
        case Snooze():
            return Release(_seconds(error.seconds), counted=False)
        case Discard():
            return Fail("discarded")
        case JobLost():
            return Fail("lost")
    if attempt >= max_attempts:
        return Fail("error")
    if isinstance(error, Retry) and error.after is not None:
        return Release(_seconds(error.after))
    return Release(pause_after(backoff, attempt, chance))


def _seconds(value: float) -> float:
    return value if 0 < value < float("inf") else 0.0


def is_poison(lost: int, max_lost: int) -> bool:
    """Say whether a job's lease ran out so often that running it again would go on for ever (ATT-3)."""
    return 0 < max_lost <= lost


def is_handed_out_too_often(attempt: int, *, max_attempts: int, max_lost: int) -> bool:
    """Say the same where a store counts hand-outs alone, and nobody knows what became of each (ATT-3)."""
    return max_lost > 0 and attempt > max_attempts + max_lost
