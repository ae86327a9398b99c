"""Notes: written by whoever read them last, and there for as long as was said."""

import asyncio
from typing import Any

from aqueue.errors import InvalidQueueArgument
from aqueue.notes import Change
from aqueue.port import Answer, Clearable, Note, NoteKey, Verdict
from aqueue.testing.contract.harness import DEFAULT, Harness
from aqueue.testing.contract.note_samples import (
    KEY,
    always,
    is_absent,
    message,
    note_keeper,
    noting,
    one_more,
    refuses_notes,
    says,
)
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import job_id
from aqueue.testing.eventually import eventually

_CLOCKS_STEP = 0.01
"""A store may measure a lifetime and tell the time by clocks that differ in their last digits, in seconds."""

_BAD_KEYS: tuple[Any, ...] = ("", "x" * 121, "with space", "ünlaut", "line\n", "nul\0", None, 5, b"bytes")
_BAD_SECONDS: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), True, "5", 101 * 365 * 86_400)
_BAD_VALUES: tuple[Any, ...] = ("text", 5, bytearray(b"x"), b"x" * (1024 * 1024 + 1))


@rule("NOTE-1")
async def a_note_says_what_was_written_last(harness: Harness) -> None:
    """Any bytes, on every connection; where nothing was written there is no note."""
    queue, other = await harness.queue(), await harness.queue()
    if await refuses_notes(harness, queue):
        return
    assert await is_absent(queue)

    token = ""
    for value in (b"first", bytes(range(256)) * 40, b"", b"'; DROP TABLE notes; --", b"x" * (1024 * 1024)):
        assert await queue.notes.write(DEFAULT, KEY, value, expected=token)
        note = await other.notes.read(DEFAULT, KEY)
        assert note.value == value, "the note says something else than was written"
        assert note.token not in ("", token), "a written note has a token of its own"
        token = note.token


@rule("NOTE-1")
async def every_key_is_a_note_of_its_own(harness: Harness) -> None:
    """Beside its own queue, and told apart to the last character."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    keys = ["a", "A", "a:", "a:b", "a.b", "a_b", "a-b", "x" * 120, "x" * 119 + "y", "x" * 119]
    places = [(name, key) for name in (DEFAULT, "Default", "q" * 80) for key in keys]

    for name, key in places:
        assert await queue.notes.write(name, key, f"{name} {key}".encode(), expected="")

    for name, key in places:
        assert await says(queue, key, name=name) == f"{name} {key}".encode()


@rule("NOTE-1")
async def only_what_was_read_can_be_replaced(harness: Harness) -> None:
    """A write that expects another token, or none, or one where no note is, changes nothing."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    assert not await queue.notes.write(DEFAULT, KEY, b"of nothing", expected="f" * 32)
    assert await says(queue) is None
    assert await queue.notes.write(DEFAULT, KEY, b"first", expected="")
    first = await queue.notes.read(DEFAULT, KEY)
    assert await queue.notes.write(DEFAULT, KEY, b"second", expected=first.token)

    for expected in ("", first.token, "f" * 32):
        assert not await queue.notes.write(DEFAULT, KEY, b"late", expected=expected)
        assert not await queue.notes.write(DEFAULT, KEY, None, expected=expected)
        assert await says(queue) == b"second"


@rule("NOTE-1")
async def a_removed_note_is_no_note(harness: Harness) -> None:
    """It is removed by who read it, and then it can be written by who expects none."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    assert await queue.notes.write(DEFAULT, KEY, None, expected=""), "what is not there may stay so"
    assert await queue.notes.write(DEFAULT, KEY, b"x", expected="")
    written = await queue.notes.read(DEFAULT, KEY)

    assert await queue.notes.write(DEFAULT, KEY, None, expected=written.token)

    assert await is_absent(queue)
    assert not await queue.notes.write(DEFAULT, KEY, b"y", expected=written.token)
    assert await queue.notes.write(DEFAULT, KEY, b"z", expected="")
    assert await says(queue) == b"z"


@rule("NOTE-1")
async def a_note_ends_when_its_time_is_over(harness: Harness) -> None:
    """By the store's clock, never early and soon after; then it counts as no note."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    lasts = harness.lease
    before = await queue.notes.read(DEFAULT, KEY)
    assert await queue.notes.write(DEFAULT, KEY, b"short", expected="", seconds=lasts)
    assert await queue.notes.write(DEFAULT, "check:long", b"long", expected="", seconds=3600 + lasts)
    written = await queue.notes.read(DEFAULT, KEY)
    assert written.value == b"short" or written.now >= before.now + lasts - _CLOCKS_STEP
    await harness.pass_time(lasts * 1.1)

    await eventually(lambda: is_absent(queue), harness.patience)
    assert (await queue.notes.read(DEFAULT, KEY)).now >= before.now + lasts - _CLOCKS_STEP
    assert not await queue.notes.write(DEFAULT, KEY, b"late", expected=written.token or "f" * 32)
    assert await queue.notes.write(DEFAULT, KEY, b"next", expected="")
    assert (await says(queue), await says(queue, "check:long")) == (b"next", b"long")


@rule("NOTE-1")
async def the_last_write_says_how_long_a_note_lasts(harness: Harness) -> None:
    """Shorter than before, longer, or for ever."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    lasts = harness.lease
    for key, first, then in (("kept", 3600, None), ("longer", 3600, 7200), ("shorter", None, lasts)):
        assert await queue.notes.write(DEFAULT, key, b"1", expected="", seconds=first)
        token = (await queue.notes.read(DEFAULT, key)).token
        assert await queue.notes.write(DEFAULT, key, b"2", expected=token, seconds=then)

    if harness.clock is not None:
        await harness.pass_time(5400)
    else:
        await harness.pass_time(lasts * 1.1)

    async def is_gone() -> None:
        assert await says(queue, "shorter") is None

    await eventually(is_gone, harness.patience)
    assert (await says(queue, "kept"), await says(queue, "longer")) == (b"2", b"2")


@rule("NOTE-1")
async def a_note_tells_the_stores_time(harness: Harness) -> None:
    """In seconds that pass as the store's clock does, whether there is a note or not."""
    queue, other = await harness.queue(), await harness.queue()
    if await refuses_notes(harness, queue):
        return
    first = (await queue.notes.read(DEFAULT, KEY)).now
    await harness.pass_time(harness.lease / 2)
    assert await queue.notes.write(DEFAULT, KEY, b"x", expected="")

    second = (await other.notes.read(DEFAULT, KEY)).now

    assert harness.lease / 2 - _CLOCKS_STEP <= second - first <= harness.lease / 2 + harness.patience


@rule("NOTE-1")
async def of_many_writers_one_wins(harness: Harness) -> None:
    """Who all read the same, on two connections, round after round, removals included."""
    queue, other = await harness.queue(), await harness.queue()
    if await refuses_notes(harness, queue):
        return
    token = ""
    for number in range(8):
        is_last = number % 4 == 3
        value = None if is_last else b"%d" % number

        won = await asyncio.gather(
            *(
                each.notes.write(DEFAULT, KEY, value, expected=token)
                for each in (queue, other) for _ in range(6)
            )
        )  # fmt: skip

        assert won.count(True) == 1, f"{won.count(True)} writers replaced the same note"
        note = await queue.notes.read(DEFAULT, KEY)
        assert note.value == value
        token = note.token


@rule("NOTE-1")
async def counting_together_loses_nothing(harness: Harness) -> None:
    """Fifty tasks on two connections each add one to a note: it ends at fifty, each saw another number."""
    queue, other = await harness.queue(), await harness.queue()
    if await refuses_notes(harness, queue):
        return

    numbers = await asyncio.gather(
        *((queue, other)[turn % 2].notes.change(DEFAULT, KEY, one_more) for turn in range(50))
    )

    assert sorted(numbers) == list(range(1, 51))
    assert await says(queue) == b"50"


@rule("NOTE-1")
async def each_note_of_a_batch_is_answered_for_itself(harness: Harness) -> None:
    """Some are written and some not, and each answer is in its note's place."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    keeper = await note_keeper(harness)
    keys = [f"check:{number}" for number in range(12)]
    for key in keys[::3]:
        assert await queue.notes.write(DEFAULT, key, b"there", expected="")
    at = [NoteKey(DEFAULT, key) for key in keys]

    answers = await keeper.write_notes(
        [noting(key, key.encode(), messages=(message(n),)) for n, key in enumerate(keys)][::-1]
    )
    notes = await keeper.read_notes(at)

    expected: list[Answer] = [Verdict.SETTLED if n % 3 else Verdict.STALE for n in range(12)]
    assert list(answers)[::-1] == expected
    assert [note.value for note in notes if isinstance(note, Note)] == [
        key.encode() if n % 3 else b"there" for n, key in enumerate(keys)
    ]
    taken = await harness.take_many(queue, 8)
    assert {delivery.id for delivery in taken} == {job_id(n) for n in range(12) if n % 3}


@rule("NOTE-1")
async def notes_are_no_jobs(harness: Harness) -> None:
    """Nothing that counts, pops or clears the jobs of a queue sees its notes."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    assert await queue.notes.write(DEFAULT, KEY, b"x", expected="")

    await harness.expect_counts(queue)
    await harness.expect_nothing(queue)
    if isinstance(await harness.backend(), Clearable):
        assert await queue.clear(DEFAULT) == 0

    assert await says(queue) == b"x"
    assert await queue.failed.count() == 0


@rule("NOTE-1", "PUSH-1")
async def unfit_notes_are_refused_with_nothing_done(harness: Harness) -> None:
    """A key of 1 to 120 letters, digits and `_ . : -`, bytes up to 1 MiB, a time, jobs of the same queue."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    for key in _BAD_KEYS:
        with raises(InvalidQueueArgument, f"the key {key!r}"):
            await queue.notes.change(DEFAULT, key, one_more)
        with raises(InvalidQueueArgument, f"the key {key!r}"):
            await queue.notes.read(DEFAULT, key)
    unfit: list[dict[str, Any]] = [
        *({"value": b"x", "seconds": seconds} for seconds in _BAD_SECONDS),
        *({"value": value} for value in _BAD_VALUES),
        {"value": b"x", "messages": (message(1), message(2, name="another"))},
    ]

    for options in unfit:
        with raises(InvalidQueueArgument, f"a note with {list(options)}"):
            await queue.notes.write(DEFAULT, KEY, expected="", **options)
        with raises(InvalidQueueArgument, f"a note with {list(options)}"):
            await queue.notes.change(DEFAULT, KEY, always(Change(result=None, **options)))

    assert await says(queue) is None
    await harness.expect_counts(queue)
