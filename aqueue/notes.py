"""Notes: small values a queue keeps beside its jobs, changed by compare-and-set (NOTE-1, NOTE-2).

A note is read, decided upon by a pure function, and written in one step with the jobs that the decision
pushes; or not at all, because somebody else was faster, and then all of it begins anew. Limits, unique
pushes, schedules, results and batches are such functions.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from aqueue.coalesce import Coalescer
from aqueue.contract.names import check_queue_name
from aqueue.contract.notes import check_note_key, check_note_seconds, check_note_value, note_key
from aqueue.errors import (
    InvalidQueueArgument,
    NoteContended,
    NotesMissing,
    OutcomeUnknown,
    StoreError,
)
from aqueue.port import Answer, Capabilities, KeepsNotes, Message, Note, NoteKey, Noting, Verdict
from aqueue.store import Store

__all__ = ["Change", "Decide", "Decision", "Leave", "Note", "Notes", "note_key"]

R = TypeVar("R")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.1
_LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[R]):
    """The decision that the note now says `value`, for `seconds`, and that these jobs are pushed.

    `value` None means no note, `seconds` None for ever. The messages are for the note's own queue. `result`
    is what the caller of `Notes.change` gets once note and jobs are in the store.
    """

    value: bytes | None
    seconds: float | None = None
    messages: tuple[Message, ...] = ()
    result: R


@dataclass(frozen=True, slots=True)
class Leave(Generic[R]):
    """The decision to leave the note as it is, and to give the caller this result."""

    result: R


Decision: TypeAlias = Change[R] | Leave[R]
Decide: TypeAlias = Callable[[Note], Decision[R]]


class Notes:
    """The notes of a queue's store; `queue.notes` is one.

    Every method raises `NotesMissing` on a store that keeps none, and a `StoreError` where the store can't do
    it. A cancelled caller abandons only its waiting: what it asked for is done whole or not at all.
    `patience` is how many seconds `change` goes on while others are faster.
    """

    def __init__(self, store: Store, *, patience: float = 10.0) -> None:
        self._store = store
        self._patience = patience
        self._lines: dict[NoteKey, list[_Ask]] = {}
        limits = store.capabilities
        self._reads = Coalescer[NoteKey, Note](
            self._send_reads, max_items=limits.max_batch, max_weight=limits.max_batch, weigh=lambda _: 1
        )
        self._writes = Coalescer[Noting, Verdict](
            self._send_writes, max_items=limits.max_batch, max_weight=limits.max_batch_bytes, weigh=_weight
        )

    def check_kept(self) -> None:
        """Raise `NotesMissing` where every other method would, before anything depends on them."""
        self._keeper()

    async def read(self, queue: str, key: str) -> Note:
        """Return what the note says: `value` None and `token` "" where there is none."""
        keeper, at = self._keeper(), _place(queue, key)
        [note] = await self._store.run("read a note", lambda: keeper.read_notes([at]))
        if isinstance(note, Exception):
            raise self._store.translated(note, "read a note")
        return note

    async def write(
        self,
        queue: str,
        key: str,
        value: bytes | None,
        *,
        expected: str,
        seconds: float | None = None,
        messages: Sequence[Message] = (),
    ) -> bool:
        """Write the note and push the messages in one step, if the note still has the token `expected`.

        "" expects no note, a `value` of None removes it. False says that the note has another token by now,
        and that nothing was done. `change` is the same with the reading, and the trying again.
        """
        keeper, at = self._keeper(), _place(queue, key)
        change = Change(value=value, seconds=seconds, messages=tuple(messages), result=None)
        _check_change(at, change, self._store.capabilities)
        noting = _noting(at, change, token=_new_token(), expected=expected)
        [answer] = await self._store.run("write a note", lambda: keeper.write_notes([noting]))
        return _is_settled(self._translated(answer))

    async def change(self, queue: str, key: str, decide: Decide[R]) -> R:
        """Do what `decide` says about the note, in one atomic step, and return its result.

        `decide` must be pure: it is asked again whenever somebody else was faster. Those of one process who
        change a note at the same time are decided upon in turn and written together, so that each sees what
        the ones before it decided. Raises what `decide` raises, `NoteContended` when others were faster for
        too long, and `OutcomeUnknown` only where a look at the note doesn't tell whether it was written.
        """
        self._keeper()
        self._store.check_open()
        at = _place(queue, key)
        ask = _Ask(decide, asyncio.get_running_loop().create_future())
        line = self._lines.get(at)
        if line is not None:
            line.append(ask)
        else:
            line = self._lines[at] = [ask]
            serving = self._serve(at, line)
            if self._store.capabilities.immediate:
                await serving
            else:
                self._store.spawn(serving)
        result: R = await ask.answer
        return result

    async def _serve(self, at: NoteKey, line: "list[_Ask]") -> None:
        """Decide for those in line until nobody is left."""
        try:
            while line:
                await self._serve_together(at, line)
        finally:
            del self._lines[at]
            for ask in line:  # only a loop that is shutting down leaves anybody here
                ask.answer.cancel()

    async def _serve_together(self, at: NoteKey, line: "list[_Ask]") -> None:
        """Decide for as many as fit into one write, once it is written answer them, and let them leave."""
        give_up_at = asyncio.get_running_loop().time() + self._patience
        asked = list(line)
        outcomes: Sequence[Leave[Any] | Exception] = ()
        try:
            for pause in _pauses():
                note = await self._read(at)
                asked = [ask for ask in line if not ask.answer.done()]
                decided = _decided(at, note, asked, _new_token(), self._store.capabilities)
                asked, outcomes = asked[: len(decided.outcomes)], decided.outcomes
                if decided.noting is None or await self._is_written(decided.noting):
                    break
                self._check_patience(at, give_up_at)
                await asyncio.sleep(pause)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait for it
            outcomes = [error] * len(asked)
        for ask, outcome in zip(asked, outcomes, strict=True):
            ask.tell(outcome)
        line[:] = [ask for ask in line if not ask.answer.done()]

    def _check_patience(self, at: NoteKey, give_up_at: float) -> None:
        if asyncio.get_running_loop().time() > give_up_at:
            raise NoteContended(
                f"note {at.key} on {at.queue!r} was changed by others each time for {self._patience:g} s; "
                "nothing was written"
            )

    async def _is_written(self, noting: Noting) -> bool:
        """Write the note; False if somebody was faster. Where the reply is lost, look whether it is ours."""
        try:
            return _is_settled(await self._write(noting))
        except OutcomeUnknown:
            if noting.value is not None and await self._is_ours(noting):
                return True
            raise

    async def _is_ours(self, noting: Noting) -> bool:
        """Say whether the note has our token by now; False where that can't be told.

        Where the note is as it was, the lost write came to nothing or is still to come. The same write again
        is safe then, since only one of the two can find the note as expected.
        """
        give_up_at = asyncio.get_running_loop().time() + self._patience
        for pause in _pauses(_LOOKS):
            with suppress(StoreError):
                note = await self._read(noting.at)
                if note.token == noting.token:
                    return True
                if note.token != noting.expected:  # somebody changed it since, perhaps after us
                    return False
                if _is_settled(await self._write(noting)):
                    return True
            if asyncio.get_running_loop().time() > give_up_at:
                break
            await asyncio.sleep(pause)
        return False

    async def _read(self, at: NoteKey) -> Note:
        if self._store.capabilities.immediate:
            return await self.read(*at)
        return await self._reads.submit(at)

    async def _write(self, noting: Noting) -> Answer:
        if self._store.capabilities.immediate:
            return (await self._keeper().write_notes([noting]))[0]
        return await self._writes.submit(noting)

    async def _send_reads(self, batch: Sequence[NoteKey]) -> Sequence[Note | Exception]:
        notes = await self._store.call("read a note", lambda: self._keeper().read_notes(batch))
        return [
            self._store.translated(note, "read a note") if isinstance(note, Exception) else note
            for note in notes
        ]

    async def _send_writes(self, batch: Sequence[Noting]) -> Sequence[Verdict | Exception]:
        answers = await self._store.call("write a note", lambda: self._keeper().write_notes(batch))
        return [self._translated(answer) for answer in answers]

    def _translated(self, answer: Answer) -> Answer:
        return self._store.translated(answer, "write a note") if isinstance(answer, Exception) else answer

    def _keeper(self) -> KeepsNotes:
        backend = self._store.backend
        if not isinstance(backend, KeepsNotes):
            raise NotesMissing(
                f"{self._store.capabilities.system} keeps no notes: limits, unique pushes, schedules and "
                "results need a store that does"
            )
        return backend


class _Ask(NamedTuple):
    """One caller of `Notes.change`: what decides, and who waits for the result."""

    decide: Callable[[Note], Decision[Any]]
    answer: "asyncio.Future[Any]"

    def tell(self, outcome: "Leave[Any] | Exception") -> None:
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome.result)


class _Decided(NamedTuple):
    """What became of the first of those who asked, and what has to be written for it, if anything."""

    outcomes: "list[Leave[Any] | Exception]"
    noting: Noting | None


def _decided(at: NoteKey, note: Note, asked: Sequence[_Ask], token: str, limits: Capabilities) -> _Decided:
    """Let each decide on what the ones before it left, for as long as their jobs fit into one write."""
    outcomes: list[Leave[Any] | Exception] = []
    last: Change[Any] | None = None
    messages: list[Message] = []
    says = note
    for ask in asked:
        try:
            decision = ask.decide(says)
            if isinstance(decision, Change):
                _check_change(at, decision, limits)
        except Exception as error:  # noqa: BLE001 - it reaches the caller who brought the function
            outcomes.append(error)
            continue
        if isinstance(decision, Change):
            if messages and not _fits([*messages, *decision.messages], limits):
                break
            last = decision
            messages += decision.messages
            says = Note(last.value, token if last.value is not None else "", note.now)
        outcomes.append(Leave(decision.result))
    if last is None:
        return _Decided(outcomes, None)
    change = Change(value=last.value, seconds=last.seconds, messages=tuple(messages), result=None)
    return _Decided(outcomes, _noting(at, change, token=token, expected=note.token))


def _noting(at: NoteKey, change: Change[Any], *, token: str, expected: str) -> Noting:
    return Noting(
        at=at,
        value=change.value,
        token=token,
        expected=expected,
        seconds=change.seconds,
        messages=change.messages,
    )


def _check_change(at: NoteKey, change: Change[Any], limits: Capabilities) -> None:
    check_note_value(change.value)
    check_note_seconds(change.seconds)
    if any(message.queue != at.queue for message in change.messages):
        raise InvalidQueueArgument(f"note {at.key} is beside {at.queue!r}: it can push to no other queue")
    if not _fits(change.messages, limits):
        raise InvalidQueueArgument(
            f"a note is written with at most {limits.max_batch} jobs, which together have at most "
            f"{limits.max_message_bytes} bytes"
        )


def _fits(messages: Sequence[Message], limits: Capabilities) -> bool:
    size = sum(len(message.payload) for message in messages)
    return len(messages) <= limits.max_batch and size <= limits.max_message_bytes


def _place(queue: str, key: str) -> NoteKey:
    return NoteKey(check_queue_name(queue), check_note_key(key))


def _is_settled(answer: Answer) -> bool:
    if isinstance(answer, Exception):
        raise answer
    if answer is Verdict.UNKNOWN:
        raise OutcomeUnknown("the store did not say whether the note was written")
    return answer is Verdict.SETTLED


def _pauses(times: int | None = None) -> Iterator[float]:
    """Yield random pauses, in seconds, of which the longest possible one doubles up to a tenth."""
    longest = _FIRST_PAUSE
    while times is None or times > 0:
        yield random.uniform(0, longest)  # noqa: S311 - it keeps processes apart and nothing secret
        longest = min(2 * longest, _LONGEST_PAUSE)
        times = None if times is None else times - 1


def _new_token() -> str:
    return os.urandom(16).hex()


def _weight(noting: Noting) -> int:
    return 256 + len(noting.value or b"") + sum(len(message.payload) + 128 for message in noting.messages)
