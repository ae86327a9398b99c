"""Changing notes: who is decided upon together, what is tried again, and what a lost reply leaves known."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

import pytest
from support.stores import CutOff, Unreachable, WholeBackend, Wrapper

from aqueue import Queue, connect
from aqueue.connection import open_backend
from aqueue.contract.notes import check_note_key
from aqueue.errors import (
    ConnectionFailed,
    InvalidQueueArgument,
    NoteContended,
    NotesMissing,
    OutcomeUnknown,
    QueueClosed,
    StoreError,
)
from aqueue.notes import Change, Decision, Leave, Note, Notes, note_key
from aqueue.port import Answer, Message, NoteKey, Noting, StoreOptions

KEY = "test:note"


@pytest.fixture
def store() -> Wrapper:
    """Memory that suspends, counts and fails on command."""
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    return Wrapper(cast("WholeBackend", backend))


@pytest.fixture
async def queue(store: Wrapper) -> AsyncIterator[Queue]:
    async with Queue(store) as queue:
        yield queue


def one_more(note: Note) -> Decision[int]:
    number = int(note.value or b"0") + 1
    return Change(value=b"%d" % number, messages=(message(number),), result=number)


def message(number: int, size: int = 10) -> Message:
    return Message(f"{number:032x}", "default", b"x" * size)


async def count(queue: Queue, key: str = KEY) -> int:
    note = await queue.notes.read("default", key)
    return int(note.value or b"0")


# -- together -------------------------------------------------------------------------------------------


@pytest.mark.rule("NOTE-1")
async def test_those_who_change_a_note_at_once_are_written_together(queue: Queue, store: Wrapper) -> None:
    numbers = await asyncio.gather(*(queue.notes.change("default", KEY, one_more) for _ in range(400)))

    assert numbers == list(range(1, 401)), "each sees what those before it decided"
    assert store.calls["write_notes"] <= 3
    assert (await count(queue), await queue.size()) == (400, 400)


@pytest.mark.rule("NOTE-1")
async def test_changes_of_many_notes_share_round_trips(queue: Queue, store: Wrapper) -> None:
    await asyncio.gather(*(queue.notes.change("default", f"n:{n}", one_more) for n in range(200)))

    assert store.calls["write_notes"] <= 3
    assert {await count(queue, f"n:{n}") for n in range(200)} == {1}


@pytest.mark.rule("NOTE-2")
async def test_jobs_beyond_one_batch_go_in_the_next_write(queue: Queue, store: Wrapper) -> None:
    most = store.capabilities.max_message_bytes // 3

    def with_a_large_job(number: int) -> Callable[[Note], Decision[None]]:
        return lambda _: Change(value=b"x", messages=(message(number, most),), result=None)

    await asyncio.gather(*(queue.notes.change("default", KEY, with_a_large_job(n)) for n in range(7)))

    assert await queue.size() == 7
    assert store.calls["write_notes"] == 3
    with pytest.raises(InvalidQueueArgument, match="at most"):
        await queue.notes.write(
            "default", KEY, b"x", expected="", messages=[message(n, most) for n in range(4)]
        )


@pytest.mark.rule("NOTE-1")
async def test_what_one_decision_raises_concerns_nobody_else(queue: Queue) -> None:
    def refuses(note: Note) -> Decision[int]:
        raise LookupError("not today")

    outcomes = await asyncio.gather(
        *(queue.notes.change("default", KEY, decide) for decide in (one_more, refuses, one_more)),
        return_exceptions=True,
    )

    assert outcomes[::2] == [1, 2]
    assert isinstance(outcomes[1], LookupError)


@pytest.mark.rule("NOTE-1")
async def test_leaving_a_note_as_it_is_writes_nothing(queue: Queue, store: Wrapper) -> None:
    await queue.notes.change("default", KEY, one_more)

    assert await queue.notes.change("default", KEY, lambda note: Leave(note.value)) == b"1"

    assert store.calls["write_notes"] == 1


@pytest.mark.rule("NOTE-1")
async def test_a_caller_cancelled_before_it_is_decided_upon_changes_nothing(
    queue: Queue, store: Wrapper
) -> None:
    store.hang("read_notes")
    first, second = (asyncio.ensure_future(queue.notes.change("default", KEY, one_more)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    store.recover()

    assert await second == 1
    assert first.cancelled()
    assert await count(queue) == 1


@pytest.mark.rule("NOTE-1")
async def test_notes_that_nobody_changes_take_no_memory(queue: Queue, store: Wrapper) -> None:
    await asyncio.gather(*(queue.notes.change("default", f"n:{n}", one_more) for n in range(1000)))
    store.break_down("read_notes")
    with pytest.raises(ConnectionFailed):
        await queue.notes.change("default", KEY, one_more)

    assert not queue.notes._lines


@pytest.mark.rule("NOTE-1")
async def test_closing_lets_a_change_under_way_end(store: Wrapper) -> None:
    queue = Queue(store)
    await queue.open()
    changing = asyncio.ensure_future(queue.notes.change("default", KEY, one_more))
    await asyncio.sleep(0)

    await queue.aclose()

    assert await changing == 1
    with pytest.raises(QueueClosed):
        await queue.notes.change("default", KEY, one_more)


# -- others are faster ----------------------------------------------------------------------------------


class FasterOthers(Wrapper):
    """A store in which somebody else always changes the note first."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        for noting in batch:
            token = f"{time.time_ns():032x}"
            theirs = Noting(at=noting.at, value=b"7", token=token, expected=noting.expected)
            await self._inner.write_notes([theirs])
        return await super().write_notes(batch)


@pytest.mark.rule("NOTE-1")
async def test_a_note_that_others_keep_changing_is_given_up_in_time() -> None:
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    async with Queue(FasterOthers(cast("WholeBackend", backend))) as queue:
        notes = Notes(queue._store, patience=0.2)

        with pytest.raises(NoteContended, match=r"note test:note on 'default'.*0\.2 s.*nothing was written"):
            await notes.change(
                "default", KEY, lambda _: Change(value=b"ours", messages=(message(1),), result=0)
            )

        assert await count(queue) == 7
        assert await queue.size() == 0
        assert issubclass(NoteContended, StoreError), "a worker treats it as a store that is busy"


# -- lost replies ---------------------------------------------------------------------------------------


@pytest.mark.rule("NOTE-2", "PUSH-4")
async def test_a_change_whose_reply_was_lost_is_found_in_the_note(queue: Queue, store: Wrapper) -> None:
    store.lose_reply("write_notes", times=1)

    assert await queue.notes.change("default", KEY, one_more) == 1

    assert (await count(queue), await queue.size()) == (1, 1)
    assert store.calls["write_notes"] == 1


@pytest.mark.rule("NOTE-2", "PUSH-4")
async def test_a_change_that_may_not_have_been_applied_is_written_again_under_the_same_token(
    queue: Queue, store: Wrapper
) -> None:
    store.break_down("write_notes", error=CutOff, times=2)

    assert await queue.notes.change("default", KEY, one_more) == 1

    assert (await count(queue), await queue.size()) == (1, 1)


class LateWrites(Wrapper):
    """A store whose first write takes longer than its caller waits, and comes in with the second."""

    late: Sequence[Noting] = ()

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        if not self.late:
            self.late = batch
            raise CutOff("no answer in time")
        await self._inner.write_notes(self.late)
        return await super().write_notes(batch)


@pytest.mark.rule("NOTE-2", "PUSH-4")
async def test_a_write_that_comes_in_late_is_not_applied_twice() -> None:
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    async with Queue(LateWrites(cast("WholeBackend", backend))) as queue:
        assert await queue.notes.change("default", KEY, one_more) == 1

        assert (await count(queue), await queue.size()) == (1, 1)


@pytest.mark.rule("NOTE-2", "PUSH-4")
async def test_what_a_look_can_not_tell_stays_unknown(queue: Queue, store: Wrapper) -> None:
    """The note was removed, or changed since by somebody else, or can't be looked at."""
    await queue.notes.change("default", KEY, one_more)
    store.lose_reply("write_notes", times=1)
    with pytest.raises(OutcomeUnknown):
        await queue.notes.change("default", KEY, lambda _: Change(value=None, result=None))

    store.lose_reply("write_notes", times=1)
    changing = asyncio.ensure_future(queue.notes.change("default", KEY, one_more))
    while not store.calls["write_notes"] >= 3:
        await asyncio.sleep(0)
    store.break_down("read_notes")

    with pytest.raises(OutcomeUnknown):
        await changing


class OvertakenWrites(Wrapper):
    """A store that loses the reply of a write, after which somebody else changes the note."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        [noting] = batch
        await self._inner.write_notes(batch)
        theirs = Noting(at=noting.at, value=b"theirs", token="f" * 32, expected=noting.token)
        await self._inner.write_notes([theirs])
        raise CutOff("the reply was lost")


@pytest.mark.rule("NOTE-2", "PUSH-4")
async def test_a_note_changed_since_by_another_tells_nothing() -> None:
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    async with Queue(OvertakenWrites(cast("WholeBackend", backend))) as queue:
        with pytest.raises(OutcomeUnknown):
            await queue.notes.change("default", KEY, one_more)


@pytest.mark.rule("NOTE-1", "PUSH-4")
async def test_an_outage_reaches_everybody_who_waits_and_nobody_after(queue: Queue, store: Wrapper) -> None:
    store.break_down("write_notes", error=Unreachable, times=1)

    outcomes = await asyncio.gather(
        *(queue.notes.change("default", KEY, one_more) for _ in range(3)), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * 3
    assert await queue.notes.change("default", KEY, one_more) == 1


# -- where there are none, and keys ---------------------------------------------------------------------


@pytest.mark.rule("NOTE-1")
async def test_inline_keeps_no_notes_and_says_so() -> None:
    async with connect("inline://", handlers=[]) as queue:
        with pytest.raises(NotesMissing, match="inline keeps no notes"):
            await queue.notes.change("default", KEY, one_more)


@pytest.mark.rule("NOTE-1")
async def test_a_closed_queue_refuses() -> None:
    with pytest.raises(QueueClosed):
        await connect("memory://").notes.read("default", KEY)


@pytest.mark.rule("NOTE-1")
def test_any_text_makes_a_key_that_does_not_show_it() -> None:
    key = note_key("unique", "Ünlaut \0 \ud800", "x" * 10_000)

    assert check_note_key(key) == key
    assert key.startswith("unique:")
    assert len(key) == len("unique:") + 40
    assert note_key("unique", "a") == "unique:4162fddd39a3e4225e8e2392eced237fbeb34e6e", (
        "keys outlive releases"
    )


@pytest.mark.rule("NOTE-1")
def test_other_parts_make_another_key() -> None:
    keys = {
        note_key("k", *parts)
        for parts in ((), ("",), ("", ""), ("a", "bc"), ("ab", "c"), ("abc",), ("1:a",), ("a1:", ""))
    }

    assert len(keys) == 8
    assert note_key("k", "a") != note_key("l", "a")


@pytest.mark.rule("NOTE-1")
@pytest.mark.parametrize("kind", ["", "with space", "a:b", "x" * 41, "ü"])
def test_a_kind_is_a_plain_word(kind: str) -> None:
    with pytest.raises(InvalidQueueArgument, match="kind of note"):
        note_key(kind, "x")


@pytest.mark.rule("NOTE-1")
def test_memory_forgets_what_is_over() -> None:
    from aqueue.backends._shelf_notes import NoteShelf

    shelf = NoteShelf()
    for now in range(20_000):
        at = NoteKey("default", f"n:{now}")
        assert shelf.write(Noting(at=at, value=b"x", token="f" * 32, seconds=10), float(now))
        assert shelf.write(
            Noting(at=at, value=b"y", token="e" * 32, expected="f" * 32, seconds=5), float(now)
        )

    assert len(shelf) < 20
    assert len(shelf._endings) < 200
