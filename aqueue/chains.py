"""Chains: the next step is stored before the one before it is settled, once, whatever crashes (CHAIN-1).

The steps to come travel with the job. When it is done, a note beside the next step's queue says that the
step is stored, and is written in one act with it; then the job is acked. Who does this again finds the note.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from aqueue.contract.envelope import Malformed
from aqueue.contract.flows import CHAIN_KEY, Step, step_id, steps_in, steps_text
from aqueue.contract.notes import note_key
from aqueue.contract.results import Keep
from aqueue.delivery import Delivery
from aqueue.ids import new_id
from aqueue.notes import Change, Decision, Leave, Note, Notes
from aqueue.plans import Chain
from aqueue.port import Message
from aqueue.pusher import Prepared, Pusher
from aqueue.sealing import CloseEnvelope, OpenEnvelope

MARK_SECONDS = 7 * 86_400.0
"""How long it is known that a step was stored: no crash leads to a second run later than that."""

logger = logging.getLogger("aqueue.queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """What a push of a chain or a batch says of all its jobs; a step's own word wins."""

    queue: str | None = None
    delay: float | timedelta = 0
    at: datetime | None = None
    max_attempts: int | None = None
    results: Keep = None


class Chains:
    """Pushes chains, and goes on with them."""

    def __init__(
        self,
        notes: Notes,
        pusher: Pusher,
        *,
        open_envelope: OpenEnvelope,
        close_envelope: CloseEnvelope,
        clock: Callable[[], float],
    ) -> None:
        self._notes = notes
        self._pusher = pusher
        self._open = open_envelope
        self._close = close_envelope
        self._clock = clock

    async def push(self, chain: Chain, options: PushOptions, id: str | None, connection: object) -> str:
        """Store the first step, with the others in it, and return its id; raises what `Queue.push` does."""
        self._notes.check_kept()
        first = self.prepared(chain, options, id or new_id())
        if connection is not None:
            self._pusher.check_connection()
        return await self._pusher.push(first, connection)

    def prepared(
        self, chain: Chain, options: PushOptions, id: str, extra: Mapping[str, str] | None = None
    ) -> Prepared:
        """Check and encode all steps; return the first, with the others and `extra` in its metadata.

        A delay of the push is the first step's. A job's `unique` is not asked: a step that were left out
        would be the end of its chain.
        """
        first, *others = (
            self._pusher.prepare(
                planned.job,
                queue=planned.queue or options.queue,
                delay=planned.delay if planned.delay is not None else 0 if number else options.delay,
                at=None if number or planned.delay is not None else options.at,
                max_attempts=options.max_attempts if planned.max_attempts is None else planned.max_attempts,
                id=step_id(id, number),
                unique=False,
                results=options.results if planned.results is None else planned.results,
            ).along_with(extra)
            for number, planned in enumerate(chain.steps)
        )
        return first.along_with(_followed_by([self.step(other) for other in others]))

    def step(self, prepared: Prepared) -> Step:
        """Close a job that is not pushed yet."""
        return Step(prepared.id, prepared.queue, prepared.delay, self._pusher.closed(prepared).payload)

    async def go_on(self, delivery: Delivery) -> bool:
        """Store the step that follows a job, unless it has been; False where none follows."""
        steps = steps_in(delivery.envelope.metadata)
        if not steps:
            return False
        await self.store_once(steps[0], steps[1:])
        return True

    async def store_once(self, step: Step, others: Sequence[Step] = ()) -> None:
        """Store a step, with those that follow it, unless it has been within the last week."""

        def decide(note: Note) -> Decision[None]:
            if note.value is not None:
                return Leave(None)
            return Change(value=b"1", seconds=MARK_SECONDS, messages=(message,), result=None)

        message = self.message(step, others)
        await self._notes.change(step.queue, note_key("step", step.id), decide)

    def message(self, step: Step, others: Sequence[Step] = ()) -> Message:
        """Return what to store for a step whose turn it is, closed anew with the key that is active now.

        One that can't be opened is stored as it is: whoever pops it sets it aside, where it can be seen.
        """
        try:
            envelope = self._open(step.payload)
            metadata = {**envelope.metadata, **_followed_by([self._anew(other) for other in others])}
        except Malformed as malformed:
            logger.error("step %s can't be read, and what follows it is lost: %s", step.id, malformed)
            return Message(step.id, step.queue, step.payload, step.delay)
        now = msgspec.structs.replace(envelope, metadata=metadata, pushed_at=self._clock())
        return Message(step.id, step.queue, self._close(now), step.delay)

    def _anew(self, step: Step) -> Step:
        """Close a waiting step with the active key, so that the job alone tells which are in use (SIGN-3)."""
        return msgspec.structs.replace(step, payload=self._close(self._open(step.payload)))


def _followed_by(steps: Sequence[Step]) -> dict[str, str]:
    return {CHAIN_KEY: steps_text(steps)} if steps else {}
