"""A circuit breaker that a whole fleet shares: a failing dependency is left alone for a while (LIMIT-3)."""

import logging
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import NamedTuple, TypeVar

import msgspec

from aqueue.contract.limits import Circuit, after_failure, may_try, state_of
from aqueue.contract.names import check_limit
from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument, JobSignal, Snooze, StoreError
from aqueue.events import log_quietly
from aqueue.limits import Key, asked, check_time, limit_notes, no_limit, place_of
from aqueue.middleware import CallNext, Middleware
from aqueue.notes import Change, Decision, Leave, Note, Notes
from aqueue.queue import Queue

T = TypeVar("T")

_FORGET_AFTER = 60.0
_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Put jobs off while what they need keeps failing, over all workers (LIMIT-3).

    After `failures` failures within `per` seconds the circuit of a key is open for `cool` seconds: its jobs
    go back with that delay, no attempt counted. Then one job tries for at most `patience` seconds; if it
    returns the circuit is closed, if it fails it is open again. `on` says which errors are the dependency's;
    `Retry`, `Snooze` and `Discard` never are, and a cancelled handler tells nothing. A worker learns of a
    circuit that another one opened within `glance` seconds. Durations are seconds or timedeltas.
    """

    key: Key = None
    failures: int = 5
    per: float | timedelta = 60.0
    cool: float | timedelta = 30.0
    patience: float | timedelta = 30.0
    glance: float | timedelta = 1.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        check_limit(self.failures)
        for what in ("per", "cool", "patience", "glance"):
            check_time(getattr(self, what), what)
        kinds = self.on if isinstance(self.on, tuple) else ()
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise InvalidQueueArgument("on must be a tuple of the exception classes that count as failures")

    def bind(self, queue: Queue) -> Middleware:
        """Return this breaker over the notes of a queue's store; raises `NotesMissing` where it has none."""
        notes = limit_notes(queue)
        if notes is None:
            return no_limit
        board = _Board(self, notes)

        async def guarded(delivery: Delivery, call_next: CallNext) -> object:
            place = place_of("circuit", self.key, delivery)
            turn = await asked(board.turn(place))
            if turn.wait > 0:
                raise Snooze(turn.wait * (1 + _SPREAD * random.random()))  # noqa: S311 - spreads, hides nothing
            try:
                result = await call_next(delivery)
            except self.on as error:
                if not isinstance(error, JobSignal):
                    await board.failed(place)
                raise
            if turn.is_trial:
                await board.close(place)
            return result

        return guarded


class _Board:
    """What one worker knows of its circuits; the notes know best, and are looked at once in a while."""

    def __init__(self, breaker: CircuitBreaker, notes: Notes) -> None:
        self._notes = notes
        self._failures = breaker.failures
        self._per = check_time(breaker.per, "per")
        self._cool = check_time(breaker.cool, "cool")
        self._patience = check_time(breaker.patience, "patience")
        self._glance = check_time(breaker.glance, "glance")
        self._closed_at: dict[tuple[str, str], float] = {}

    async def turn(self, place: tuple[str, str]) -> "_Turn":
        """Say whether a job may go on, and whether it is the one that tries an open circuit."""
        if monotonic() - self._closed_at.get(place, float("-inf")) < self._glance:
            return _GO
        note = await self._notes.read(*place)
        if state_of(Circuit, note.value).open_until > 0:
            return await self._notes.change(*place, self._ask)
        self._remember_closed(place)
        return _GO

    async def failed(self, place: tuple[str, str]) -> None:
        """Note a failure."""
        self._closed_at.pop(place, None)
        await _told(self._notes.change(*place, self._fail))

    async def close(self, place: tuple[str, str]) -> None:
        """Forget the failures: the dependency works again."""
        await _told(self._notes.change(*place, lambda _: Change(value=None, result=None)))

    def _remember_closed(self, place: tuple[str, str]) -> None:
        if len(self._closed_at) > 10_000:  # keys are made of data, so there may be any number of them
            self._closed_at.clear()
        self._closed_at[place] = monotonic()

    def _ask(self, note: Note) -> "Decision[_Turn]":
        circuit = state_of(Circuit, note.value)
        tried, wait = may_try(circuit, note.now, patience=self._patience)
        turn = _Turn(wait, is_trial=tried != circuit)
        return self._says(tried, turn) if turn.is_trial else Leave(turn)

    def _fail(self, note: Note) -> Decision[None]:
        circuit = state_of(Circuit, note.value)
        return self._says(
            after_failure(circuit, note.now, failures=self._failures, per=self._per, cool=self._cool), None
        )

    def _says(self, circuit: Circuit, result: T) -> Change[T]:
        lasts = self._per + self._cool + self._patience + _FORGET_AFTER
        return Change(value=msgspec.json.encode(circuit), seconds=lasts, result=result)


async def _told(telling: Awaitable[None]) -> None:
    """What a breaker could not note down is lost, and the job's own ending is not touched by it."""
    try:
        await telling
    except StoreError as error:
        log_quietly(logging.WARNING, "a circuit breaker could not note what happened: %s", error)


class _Turn(NamedTuple):
    """The seconds to wait, 0 for go on."""

    wait: float
    is_trial: bool


_GO = _Turn(0.0, is_trial=False)
