"""One schedule at work: looks at its note, and pushes what is due (CRON-1).

Where the queue's own store keeps the note, note and jobs are written in one step. Elsewhere, and for a unique
job, whose key is a note too, they are two: the ticks are taken in hand, pushed, and marked as pushed.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from aqueue.contract.names import check_seconds
from aqueue.contract.notes import note_key
from aqueue.contract.occurrence import job_id_of, occurrence_at, written
from aqueue.contract.schedule import jitter_of
from aqueue.contract.ticking import (
    HAND_LEASE,
    MOST_TICKS,
    Plan,
    Rule,
    Ticked,
    after_pushing,
    encode,
    next_due,
    paused,
    plan_for,
    plan_in_hand,
    resumed,
    ticked_in,
)
from aqueue.notes import Change, Decision, Leave, Note
from aqueue.pusher import Prepared
from aqueue.queue import Queue
from aqueue.schedules import Schedule

_LONGEST_PUSHING = 30.0


class Looked(NamedTuple):
    """How many jobs a look pushed, and in how many seconds another one pays."""

    pushed: int
    wait: float


class ScheduleStatus(NamedTuple):
    """Where a schedule stands. `next_due` is in its own zone, and is told of a paused one, too.

    `last_fired` is the last time that got its job by itself.
    """

    name: str
    expression: str
    tz: str
    queue: str
    next_due: datetime | None
    last_fired: datetime | None
    paused: bool


class Ticker:
    """A schedule over a queue, and over the store of its note; made, it raises what a push would."""

    def __init__(self, schedule: Schedule, queue: Queue, store: Queue) -> None:
        self.schedule = schedule
        self._queue = queue
        self._notes = store.notes
        self._rule: Rule = schedule.rule()
        self._jitter = check_seconds(schedule.jitter, "jitter")
        sample = self._prepared(0, self._jitter, trigger="")
        self._place = (sample.queue, note_key("schedule", schedule.name))
        self._is_one_step = store is queue and sample.claim is None
        limits = queue.capabilities
        size = len(queue.pusher.message(sample)[0].payload) + 256
        self._most = max(1, min(MOST_TICKS, limits.max_batch, limits.max_message_bytes // size))

    async def look(self) -> Looked:
        """Push what is due now, if nobody else did, and say when to look again."""
        return await (self._look_in_one_step() if self._is_one_step else self._look_in_two_steps())

    async def pause(self) -> None:
        """Have nothing fire from now on, in no process."""
        await self._change(paused)

    async def resume(self) -> None:
        """Have what is due from now on fire again; what passed meanwhile was not missed."""
        await self._change(resumed)

    async def trigger(self) -> str:
        """Push one job more, now, and return its id; no tick of the schedule is touched by it."""
        now = (await self._read()).now
        job = self._prepared(now, 0.0, trigger=os.urandom(16).hex())
        return await self._queue.pusher.push(job, None)

    async def preview(self, count: int) -> list[datetime]:
        """Return the next `count` times after now, by the store's clock."""
        now = (await self._read()).now
        return self.schedule.upcoming(count, after=datetime.fromtimestamp(now, UTC))

    async def status(self) -> ScheduleStatus:
        """Say where the schedule stands."""
        note = await self._read()
        ticked = ticked_in(note.value)
        zone = self._rule.times.zone
        due = next_due(self._rule, ticked, note.now)
        fired = ticked.fired if ticked is not None else None
        return ScheduleStatus(
            name=self.schedule.name,
            expression=self.schedule.expression,
            tz=str(self.schedule.tz),
            queue=self._place[0],
            next_due=datetime.fromtimestamp(due, zone) if due is not None else None,
            last_fired=datetime.fromtimestamp(fired, zone) if fired is not None else None,
            paused=ticked is not None and ticked.paused,
        )

    async def _look_in_one_step(self) -> Looked:
        note = await self._read()
        ticked = ticked_in(note.value)
        plan = plan_for(self._rule, ticked, note.now, self._most)
        if plan.note is None:
            return Looked(0, self._until_next(ticked, note.now))
        if not await self._write_with_jobs(plan, note.now):
            return Looked(0, 0.0)  # somebody else was here in between
        return self._looked(plan, note.now)

    async def _write_with_jobs(self, plan: Plan, now: float) -> bool:
        """Write note and jobs, unless the note asks for something else by now."""
        pusher, telemetry = self._queue.pusher, self._queue.telemetry
        made = [pusher.message(self._prepared(due, self._delay(due, now), trigger="")) for due in plan.ticks]
        messages = tuple(message for message, _ in made)

        def decide(note: Note) -> Decision[bool]:
            again = plan_for(self._rule, ticked_in(note.value), note.now, self._most)
            if again.note is None or again.ticks != plan.ticks:
                return Leave(False)
            return Change(value=encode(again.note), messages=messages, result=True)

        try:
            is_written = await self._notes.change(*self._place, decide)
        except BaseException as error:
            for _, span in made:
                telemetry.finish(span, error)
            raise
        for _, span in made if is_written else ():
            telemetry.finish(span)
        return is_written

    async def _look_in_two_steps(self) -> Looked:
        holder = os.urandom(8).hex()

        def take(note: Note) -> Decision[tuple[Note, Plan]]:
            plan = plan_in_hand(self._rule, ticked_in(note.value), note.now, holder, self._most)
            if plan.note is None:
                return Leave((note, plan))
            return Change(value=encode(plan.note), result=(note, plan))

        note, plan = await self._notes.change(*self._place, take)
        if plan.note is None:
            return Looked(0, self._until_next(ticked_in(note.value), note.now))
        if plan.ticks:
            # What is in hand is pushed even while its task is being cancelled: nobody else may for a while.
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _LONGEST_PUSHING):
                await self._push_in_hand(plan.ticks, holder, note.now)
        return self._looked(plan, note.now)

    async def _push_in_hand(self, ticks: Sequence[int], holder: str, now: float) -> None:
        """Push the jobs one by one and mark them as pushed; what was not goes to whoever comes next."""
        give_up_at = asyncio.get_running_loop().time() + HAND_LEASE / 2
        pushed: list[int] = []
        try:
            for due in ticks:
                if asyncio.get_running_loop().time() > give_up_at:
                    break
                await self._queue.pusher.push(self._prepared(due, self._delay(due, now), trigger=""), None)
                pushed.append(due)
        finally:
            await self._mark(holder, tuple(pushed))

    async def _mark(self, holder: str, pushed: tuple[int, ...]) -> None:
        def mark(note: Note) -> Decision[None]:
            ticked = ticked_in(note.value)
            marked = after_pushing(ticked, holder, pushed) if ticked is not None else None
            return Change(value=encode(marked), result=None) if marked is not None else Leave(None)

        await self._notes.change(*self._place, mark)

    async def _change(self, becomes: Callable[[Rule, Ticked | None, float], Ticked]) -> None:
        def decide(note: Note) -> Decision[None]:
            return Change(value=encode(becomes(self._rule, ticked_in(note.value), note.now)), result=None)

        await self._notes.change(*self._place, decide)

    async def _read(self) -> Note:
        """Read the note together with those of the other schedules."""
        return await self._notes.change(*self._place, _as_it_is)

    def _prepared(self, due: float, delay: float, *, trigger: str) -> Prepared:
        schedule = self.schedule
        job = self._queue.pusher.prepare(
            schedule.job, queue=schedule.queue, delay=delay, max_attempts=schedule.max_attempts
        )
        occurrence = occurrence_at(schedule.name, due, self._rule.fingerprint, trigger=trigger)
        return replace(job, id=trigger or job_id_of(occurrence, job.queue), occurrence=written(occurrence))

    def _delay(self, due: int, now: float) -> float:
        """How long the store keeps the job back: what is left of its jitter."""
        return max(0.0, due + jitter_of(self.schedule.name, due, self._jitter) - now) if self._jitter else 0.0

    def _looked(self, plan: Plan, now: float) -> Looked:
        """Say what was done; a plan as long as plans may be leaves something to do at once."""
        assert plan.note is not None
        if len(plan.ticks) >= self._most:
            return Looked(len(plan.ticks), 0.0)
        return Looked(len(plan.ticks), self._until_next(replace(plan.note, in_hand=()), now))

    def _until_next(self, ticked: Ticked | None, now: float) -> float:
        if ticked is not None and ticked.in_hand and ticked.until > now:
            return ticked.until - now
        due = next_due(self._rule, ticked, now)
        return due - now if due is not None else float("inf")


def _as_it_is(note: Note) -> Decision[Note]:
    return Leave(note)
