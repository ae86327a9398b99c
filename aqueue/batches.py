"""Batches: members counted once each, and followers stored with the count that calls for them (BATCH-1).

A note beside the queue of a batch's first follower says which members have ended, and keeps the followers
until they are due. It is written before any member is stored, and each member is counted before it is
settled; so a follower can be neither lost nor due before all members are there.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from aqueue.chains import Chains, PushOptions
from aqueue.contract.batches import (
    LARGEST_FOLLOWERS,
    BatchState,
    Membership,
    Moment,
    batch_state,
    count_member,
    due,
    membership_in,
    membership_text,
    parts_of,
    without,
)
from aqueue.contract.flows import BATCH_KEY, Step, derived_id
from aqueue.contract.names import check_job_id
from aqueue.contract.notes import note_key
from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument, UnserializableJob
from aqueue.ids import new_id
from aqueue.notes import Change, Decide, Decision, Leave, Note, Notes
from aqueue.plans import Batch
from aqueue.pusher import DEFAULT_QUEUE, Prepared, Pusher

logger = logging.getLogger("aqueue.queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """How far a batch is: `done` and `failed` of `total` members; a failed one may still succeed."""

    id: str
    total: int
    done: int
    failed: int

    @property
    def pending(self) -> int:
        """How many have not ended."""
        return self.total - self.done - self.failed


class Batches:
    """Pushes batches, and counts their members."""

    def __init__(self, notes: Notes, pusher: Pusher, chains: Chains) -> None:
        self._notes = notes
        self._pusher = pusher
        self._chains = chains

    async def push(self, batch: Batch, options: PushOptions, id: str | None) -> str:
        """Store the batch's note, then its members; return the batch's id.

        With the same `id` it is safe to repeat: members that have ended are not stored again. Raises what
        `push_many` does, and then the batch is not whole, and nothing follows it until it is.
        """
        self._notes.check_kept()
        batch_id = new_id() if id is None else check_job_id(id)
        followers = {
            moment: self._chains.step(
                self._chains.prepared(chain, PushOptions(), derived_id("batch", batch_id, moment))
            )
            for moment, chain in batch.followers.items()
        }
        home = _home(followers, options)
        members = [
            self._chains.prepared(
                chain,
                options,
                derived_id("batch", batch_id, str(number)),
                {BATCH_KEY: membership_text(Membership(batch_id, home, number))},
            )
            for number, chain in enumerate(batch.members)
        ]
        longest = max((member.delay for member in members), default=0.0)
        state = BatchState(len(members), batch.seconds + longest, followers=followers)
        await self._push_rest(Membership(batch_id, home, 0), members, state)
        return f"{batch_id}@{home}"

    async def look(self, id: str) -> BatchCounts | None:
        """Return how far a batch is by the id that its push returned; None for one that isn't known any more.

        Raises `InvalidQueueArgument` for what is no batch's id, `NotesMissing` on a store without notes.
        """
        batch_id, home = parts_of(id)
        note = await self._notes.read(home, _key(batch_id))
        if note.value is None:
            return None
        state = batch_state(note.value)
        return BatchCounts(id=id, total=state.total, done=state.done_count, failed=state.failed_count)

    async def count(self, delivery: Delivery, *, is_done: bool) -> None:
        """Count a member that has ended, and store the followers that are due then."""
        membership = membership_in(delivery.envelope.metadata)
        if membership is None:
            return

        def decide(note: Note) -> Decision[Mapping[Moment, Step] | None]:
            if note.value is None:
                return Leave(None)
            state = count_member(batch_state(note.value), membership.member, is_done=is_done)
            return self._change(membership.home, state, note)

        await self._follow(membership, decide)

    async def _push_rest(self, membership: Membership, members: list[Prepared], state: BatchState) -> None:
        """Write the note unless it is there, then store the members that have not ended."""

        def decide(note: Note) -> Decision[BatchState]:
            if note.value is None:
                return Change(value=msgspec.json.encode(state), seconds=state.seconds, result=state)
            return Leave(batch_state(note.value))

        known = await self._notes.change(membership.home, _key(membership.batch), decide)
        if known.total != state.total:
            raise InvalidQueueArgument(
                f"batch {membership.batch} has {known.total} members, not {state.total}: push it as it was, "
                "or another under another id"
            )
        if not members:
            await self._follow(membership, lambda note: self._settle_empty(membership.home, note))
        await self._pusher.push_many(
            [member for number, member in enumerate(members) if not known.has_ended(number)], None
        )

    def _settle_empty(self, home: str, note: Note) -> Decision[Mapping[Moment, Step] | None]:
        if note.value is None:
            return Leave(None)
        return self._change(home, batch_state(note.value), note)

    def _change(self, home: str, state: BatchState, note: Note) -> Decision[Mapping[Moment, Step] | None]:
        """Write the state with the followers that are due beside it, and return those due on other queues."""
        here = [moment for moment in due(state) if state.followers[moment].queue == home]
        elsewhere = {moment: state.followers[moment] for moment in due(state) if moment not in here}
        value = msgspec.json.encode(without(state, here))
        if value == note.value:
            return Leave(elsewhere)
        messages = tuple(self._chains.message(state.followers[moment]) for moment in here)
        return Change(value=value, seconds=state.seconds, messages=messages, result=elsewhere)

    async def _follow(self, membership: Membership, decide: Decide[Mapping[Moment, Step] | None]) -> None:
        """Do what `decide` says, and store what is due on other queues than the note's, once as well."""
        home, key = membership.home, _key(membership.batch)
        elsewhere = await self._notes.change(home, key, decide)
        if elsewhere is None:
            logger.warning(
                "batch %s is not known any more, so member %d is counted nowhere",
                membership.public_id,
                membership.member,
            )
        if not elsewhere:
            return
        for step in elsewhere.values():
            await self._chains.store_once(step)

        def forget(note: Note) -> Decision[None]:
            if note.value is None:
                return Leave(None)
            state = without(batch_state(note.value), list(elsewhere))
            return Change(value=msgspec.json.encode(state), seconds=state.seconds, result=None)

        await self._notes.change(home, key, forget)


def _home(followers: Mapping[Moment, Step], options: PushOptions) -> str:
    """Return the queue that the note lies beside, and say so where the followers are too large for a note."""
    size = sum(len(step.payload) for step in followers.values())
    if size > LARGEST_FOLLOWERS:
        raise UnserializableJob(
            f"what follows the batch takes {size} bytes; at most {LARGEST_FOLLOWERS} are kept: push a "
            "reference to the data instead"
        )
    return next((step.queue for step in followers.values()), options.queue or DEFAULT_QUEUE)


def _key(batch_id: str) -> str:
    return note_key("batch", batch_id)
