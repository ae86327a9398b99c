"""Limits that a whole fleet keeps: how many start in a time, how many run at once (LIMIT-1, LIMIT-2).

Both are middleware, for a worker or for one job. A job that is turned away goes back to its queue with a
delay and without an attempt counted; it holds no slot of a worker while it waits. What is counted is a note
in the queue's own store, by the store's clock.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, TypeVar

import anyio
import msgspec

from aqueue.contract.limits import Slots, Starts, keep_slot, leave_slot, state_of, take_slot, take_start
from aqueue.contract.names import check_limit, check_seconds
from aqueue.contract.notes import note_key
from aqueue.delivery import Delivery
from aqueue.errors import AqueueError, InvalidQueueArgument, Snooze, StoreError
from aqueue.events import log_quietly
from aqueue.middleware import CallNext, Middleware
from aqueue.notes import Change, Decision, Leave, Note, Notes
from aqueue.port import LeaseKind
from aqueue.queue import Queue

T = TypeVar("T")

Key: TypeAlias = str | Callable[[Delivery], str] | None
"""What is limited: a text, or a function of the delivery; None limits each kind of job by itself."""

_FORGET_AFTER = 60.0
_LONGEST_LEAVING = 5.0
_PAUSE_OF_AN_OUTAGE = 1.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `limit` starts in any `per` seconds for each key, over all workers (LIMIT-1).

    `per` is seconds or a timedelta. The window slides in steps of a hundredth of it. Attempts count, retries
    too. A job that comes too early is put off until its place in the line, no attempt counted.
    """

    limit: int
    per: float | timedelta = 1.0
    key: Key = None

    def __post_init__(self) -> None:
        check_limit(self.limit)
        check_time(self.per, "per")

    def bind(self, queue: Queue) -> Middleware:
        """Return this limit over the notes of a queue's store; raises `NotesMissing` where it has none."""
        notes, per = limit_notes(queue), check_time(self.per, "per")
        if notes is None:
            return no_limit

        def one_more(note: Note) -> Decision[float]:
            state, wait = take_start(state_of(Starts, note.value), note.now, limit=self.limit, per=per)
            lasts = max(per, state.line - note.now) + _FORGET_AFTER
            return Change(value=msgspec.json.encode(state), seconds=lasts, result=wait)

        async def limited(delivery: Delivery, call_next: CallNext) -> object:
            place = place_of("rate", self.key, delivery)
            wait = await asked(notes.change(*place, one_more))
            if wait > 0:
                raise Snooze(wait)
            return await call_next(delivery)

        return limited


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """At most `limit` running at once for each key, over all workers (LIMIT-2).

    A slot is leased for `lease` seconds and renewed while the job runs, so a worker that dies gives it back.
    A worker that can't reach the store for longer than that goes on with its job, beyond the limit if the
    slot was given to somebody else. A job that finds no slot is put off, no attempt counted.
    """

    limit: int
    key: Key = None
    lease: float | timedelta = 30.0

    def __post_init__(self) -> None:
        check_limit(self.limit)
        check_time(self.lease, "lease")

    def bind(self, queue: Queue) -> Middleware:
        """Return this limit over the notes of a queue's store; raises `NotesMissing` where it has none."""
        notes, lease = limit_notes(queue), check_time(self.lease, "lease")
        if notes is None:
            return no_limit

        async def limited(delivery: Delivery, call_next: CallNext) -> object:
            slot = _Slot(notes, *place_of("slots", self.key, delivery), limit=self.limit, lease=lease)
            wait = await slot.take()
            if wait > 0:
                raise Snooze(wait)
            async with slot.held():
                return await call_next(delivery)

        return limited


class _Slot:
    """One attempt's slot: taken, renewed, given back."""

    def __init__(self, notes: Notes, queue: str, key: str, *, limit: int, lease: float) -> None:
        self._notes = notes
        self._queue = queue
        self._key = key
        self._limit = limit
        self._lease = lease
        self._holder = os.urandom(8).hex()

    async def take(self) -> float:
        """Return 0 once the slot is ours, or the seconds to wait before asking again.

        One who is cancelled while it asks gives back what it may have got.
        """

        def decide(note: Note) -> Decision[float]:
            state = state_of(Slots, note.value)
            state, wait = take_slot(state, note.now, self._holder, limit=self._limit, lease=self._lease)
            return self._change(state, note, wait)

        try:
            return await asked(self._notes.change(self._queue, self._key, decide))
        except asyncio.CancelledError:
            await self._leave(0.0)
            raise

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Renew the slot every third of its lease, and give it back in the end, also when cancelled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        renewing = loop.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await self._leave(loop.time() - began)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with contextlib.suppress(AqueueError):  # the next one may do better, while the lease lasts
                await self._notes.change(self._queue, self._key, self._kept)

    def _kept(self, note: Note) -> Decision[float]:
        state = keep_slot(state_of(Slots, note.value), note.now, self._holder, lease=self._lease)
        return self._change(state, note, 0.0)

    async def _leave(self, held: float) -> None:
        def decide(note: Note) -> Decision[float]:
            state = state_of(Slots, note.value)
            if self._holder not in state.holders:
                return Leave(0.0)
            return self._change(leave_slot(state, self._holder, held=held), note, 0.0)

        try:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _LONGEST_LEAVING):
                await self._notes.change(self._queue, self._key, decide)
        except AqueueError as error:
            log_quietly(logging.WARNING, "a slot is free only when its lease is over: %s", error)

    def _change(self, state: Slots, note: Note, result: float) -> Change[float]:
        lasts = max(self._lease, state.line - note.now) + _FORGET_AFTER
        return Change(value=msgspec.json.encode(state), seconds=lasts, result=result)


def place_of(kind: str, key: Key, delivery: Delivery) -> tuple[str, str]:
    """Return the queue and the key of the note about what a delivery is limited by.

    Notes of limits lie beside 256 queues of their own, so that a cluster spreads them. Raises
    `InvalidQueueArgument` for a key function that gives anything but a text.
    """
    text = key(delivery) if callable(key) else key
    if text is not None and not isinstance(text, str):
        raise InvalidQueueArgument(f"a limit's key is a text, not {type(text).__name__}")
    name = note_key(kind, delivery.name) if text is None else note_key(kind, "", text)
    return f"limits-{name[-2:]}", name


async def asked(asking: Awaitable[T]) -> T:
    """Return what the store says; where it can't say, put the job off: an outage is no attempt of its."""
    try:
        return await asking
    except StoreError as error:
        log_quietly(logging.WARNING, "a limit could not be asked, so its job is put off: %s", error)
        raise Snooze(_PAUSE_OF_AN_OUTAGE * (1 + random.random())) from error  # noqa: S311 - spreads


def limit_notes(queue: Queue) -> Notes | None:
    """Return the queue's notes, or None for `inline://`, where nothing waits and nothing is shared."""
    if queue.capabilities.lease is LeaseKind.NONE:
        return None
    queue.notes.check_kept()
    return queue.notes


async def no_limit(delivery: Delivery, call_next: CallNext) -> object:
    """Let everything through."""
    return await call_next(delivery)


def check_time(value: float | timedelta, what: str) -> float:
    """Return seconds longer than 0, or raise `InvalidQueueArgument`."""
    seconds = check_seconds(value, what)
    if seconds == 0:
        raise InvalidQueueArgument(f"{what} must be longer than 0 seconds")
    return seconds
