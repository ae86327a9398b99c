"""Batches: which of its members are done, and what is due then: pure decisions on one small state (BATCH-1).

A member counts once however often it runs, since it is a bit and not a number. Whoever was done stays done;
who failed may still be.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from aqueue.contract.flows import BATCH_KEY, Step
from aqueue.contract.names import check_job_id, check_queue_name
from aqueue.errors import InvalidQueueArgument, JobReconstructionError

MOST_MEMBERS = 100_000
LARGEST_FOLLOWERS = 256 * 1024

Moment: TypeAlias = Literal["then", "on_failure", "finally_"]
"""When a follower is due: all succeeded; one failed; all have ended, one way or the other."""


class BatchState(msgspec.Struct, frozen=True, array_like=True):
    """What a batch's note says: members by their bits, and the followers not stored yet."""

    total: int
    seconds: float
    done: bytes = b""
    failed: bytes = b""
    followers: dict[Moment, Step] = {}

    @property
    def done_count(self) -> int:
        """How many succeeded."""
        return _number(self.done).bit_count()

    @property
    def failed_count(self) -> int:
        """How many failed finally, and have not succeeded since."""
        return _number(self.failed).bit_count()

    def has_ended(self, member: int) -> bool:
        """Whether this member is done or failed."""
        return bool((_number(self.done) | _number(self.failed)) >> member & 1)


class Membership(NamedTuple):
    """Which member of which batch a job is; the batch's note lies beside `home`."""

    batch: str
    home: str
    member: int

    @property
    def public_id(self) -> str:
        """What `queue.push` returned."""
        return f"{self.batch}@{self.home}"


def count_member(state: BatchState, member: int, *, is_done: bool) -> BatchState:
    """Return the state once a member has ended; a number that the batch has not changes nothing."""
    if not 0 <= member < state.total:
        return state
    done, failed, bit = _number(state.done), _number(state.failed), 1 << member
    if is_done:
        done, failed = done | bit, failed & ~bit
    elif not done & bit:
        failed |= bit
    return replace(state, done=_bits(done), failed=_bits(failed))


def due(state: BatchState) -> list[Moment]:
    """Return the moments that have come and whose follower is not stored yet."""
    done, failed = state.done_count, state.failed_count
    has_come: dict[Moment, bool] = {
        "then": done == state.total,
        "on_failure": failed > 0,
        "finally_": done + failed == state.total,
    }
    return [moment for moment in state.followers if has_come[moment]]


def without(state: BatchState, moments: list[Moment]) -> BatchState:
    """Return the state once these followers are stored."""
    left = {moment: step for moment, step in state.followers.items() if moment not in moments}
    return replace(state, followers=left)


def batch_state(value: bytes) -> BatchState:
    """Return what a note says; raises `InvalidQueueArgument` for what no batch wrote."""
    try:
        return msgspec.json.decode(value, type=BatchState)
    except (msgspec.MsgspecError, ValueError):
        raise InvalidQueueArgument("the note of a batch can't be read") from None


def membership_text(membership: Membership) -> str:
    """Return what travels in a member's metadata."""
    return f"{membership.public_id}/{membership.member}"


def membership_in(metadata: Mapping[str, str]) -> Membership | None:
    """Return which batch a job is counted in, or None; raises `JobReconstructionError` if unreadable."""
    text = metadata.get(BATCH_KEY)
    if text is None:
        return None
    public_id, _, member = text.partition("/")
    try:
        return Membership(*parts_of(public_id), int(member))
    except ValueError as error:
        raise JobReconstructionError("the batch that this job is counted in can't be read") from error


def parts_of(public_id: object) -> tuple[str, str]:
    """Return a batch's id and the queue of its note; raises `InvalidQueueArgument` for what is none."""
    id, at, home = public_id.partition("@") if isinstance(public_id, str) else ("", "", "")
    if not at:
        raise InvalidQueueArgument("a batch's id is what push(batch(…)) returned: '<32 digits>@<queue>'")
    return check_job_id(id), check_queue_name(home)


def _number(bits: bytes) -> int:
    return int.from_bytes(bits, "little")


def _bits(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "little")
