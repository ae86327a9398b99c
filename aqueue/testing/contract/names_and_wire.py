"""Queue names, the arguments that travel, and the bytes that stay what they are."""

from collections.abc import Awaitable, Callable
from typing import Any

from aqueue.errors import (
    AqueueError,
    InvalidQueueArgument,
    JobReconstructionError,
    MalformedJobSettled,
    UnknownEnvelopeVersion,
    UnserializableJob,
)
from aqueue.port import Message, Reserved
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import NOW, Measure, Note, Renamed, envelope, job_id, store_raw
from aqueue.testing.eventually import eventually

_BAD_NAMES: tuple[Any, ...] = (
    "", " ", "a b", "a.b", "a/b", "a:b", "a{b}", "a\n", "\n", "é", "a\x00", "a" * 81, "*", "%", 7, None, b"a",
)  # fmt: skip
_ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "ünïcødé",
    "🦆" * 50,
    "'; drop table jobs; --",
    '%s {} \\ " \u2028',
    "x" * 50_000,
)


@rule("NAME-1")
async def a_bad_name_is_refused_wherever_a_name_is_taken(harness: Harness) -> None:
    """`[A-Za-z0-9_-]{1,80}` in full, for push, pop, size, stats, clear and the failed jobs."""
    queue = await harness.queue()

    for bad in _BAD_NAMES:
        for number, call in enumerate(_calls_with_a_name(queue, bad)):
            with raises(InvalidQueueArgument, f"queue name {bad!r} (call {number})"):
                await call()


def _calls_with_a_name(queue: Queue, name: Any) -> list[Callable[[], Awaitable[object]]]:
    always: list[Callable[[], Awaitable[object]]] = [
        lambda: queue.pop(timeout=1, queues=[name]),
        lambda: queue.pop_many(3, timeout=1, queues=["fine", name]),
        lambda: queue.pop_now(3, queues=[name]),
        lambda: queue.size(name),
        lambda: queue.stats(name),
        lambda: queue.clear(name),
    ]
    if name is None:  # elsewhere None means that no name is given
        return always
    return [
        *always,
        lambda: queue.push(Note("x"), queue=name),
        lambda: queue.push_many([Note("x")], queue=name),
        lambda: queue.failed.list(queue=name),
        lambda: queue.failed.count(queue=name),
        lambda: queue.failed.retry_all(queue=name),
    ]


@rule("NAME-1", "POP-1")
async def a_list_of_names_is_checked_whole(harness: Harness) -> None:
    """A bad or repeated name anywhere in it refuses the list, and nothing is taken."""
    queue = await harness.queue()
    await queue.push(Note("x"), queue="first")
    twice, unfit = ["first", "second", "first"], ["first", "no good"]
    bad_lists: tuple[Any, ...] = (twice, unfit, "first", {"first"}, None)

    for names in bad_lists:
        with raises(InvalidQueueArgument, f"pop from {names!r}"):
            await queue.pop(timeout=1, queues=names)
        with raises(InvalidQueueArgument, f"pop_now from {names!r}"):
            await queue.pop_now(1, queues=names)

    await harness.expect_counts(queue, "first", ready=1)


@rule("NAME-1", "POP-1")
async def an_empty_list_of_names_finds_nothing_at_once(harness: Harness) -> None:
    """Also with no deadline, where it would otherwise wait for ever."""
    queue = await harness.queue()

    async with harness.promptly():
        assert await queue.pop(timeout=0, queues=[]) is None
        assert await queue.pop_many(5, queues=()) == []


@rule("NAME-1")
async def every_good_name_is_a_queue_of_its_own(harness: Harness) -> None:
    """Case, hyphen, underscore and length tell names apart; nothing in them is a pattern."""
    queue = await harness.queue()
    names = ["a", "A", "a-b", "a_b", "axb", "a-", "-", "_", "0", "A" * 80, "A" * 79, "0123456789-_azAZ"]
    ids = {name: await queue.push(Note(name), queue=name) for name in names}

    for name in names:
        delivery = await harness.take(queue, name)
        assert (delivery.id, delivery.queue, delivery.args) == (ids[name], name, {"text": name})
        await harness.expect_nothing(queue, name)


@rule("ARG-1", "WIRE-1")
async def odd_texts_travel_unchanged(harness: Harness) -> None:
    """Whatever is valid UTF-8 comes back as it was pushed, NUL and quotes included."""
    queue = await harness.queue()
    for text in _ODD_TEXTS:
        await queue.push(Note(text))

    taken = await harness.take_many(queue, len(_ODD_TEXTS))

    assert sorted(delivery.job(Note).text for delivery in taken) == sorted(_ODD_TEXTS)


@rule("ARG-3")
async def a_value_with_no_exact_form_is_refused_with_nothing_sent(harness: Harness) -> None:
    """NaN, infinities, lone surrogates and values of another type; the message never quotes the value."""
    queue = await harness.queue()
    not_text: tuple[Any, ...] = (b"secret", 7, None, ["secret"], "secret \ud800")
    not_numbers: tuple[Any, ...] = (float("nan"), float("inf"), "1.0", None, True)

    for field, unfit in [("text", Note(value)) for value in not_text] + [
        ("value", Measure(value)) for value in not_numbers
    ]:
        with raises(UnserializableJob, f"{unfit!r}") as caught:
            await queue.push(unfit)
        assert field in str(caught.error), "the message does not name the field"
        assert "secret" not in str(caught.error), "the message quotes the value"

    await harness.expect_counts(queue)


@rule("ARG-4", "ARG-5")
async def restoring_is_strict(harness: Harness) -> None:
    """No value is bent into another type, no argument invented or dropped; the message quotes none."""
    queue, backend = await harness.queue(), await harness.backend()
    wrong = (b'{"text":7}', b'{"text":null}', b'{"text":["secret"]}', b"{}", b'{"text":"a","more":"secret"}')
    await store_raw(backend, *(envelope(job_id(n), args=args) for n, args in enumerate(wrong, 1)))

    for delivery in await harness.take_many(queue, len(wrong)):
        with raises(JobReconstructionError, f"restoring {delivery.args}") as caught:
            delivery.job(Note)
        assert "secret" not in str(caught.error), "the message quotes a value"


@rule("ARG-4", "MAL-1")
async def nesting_is_bounded_before_it_is_parsed(harness: Harness) -> None:
    """Arguments nested beyond all measure are refused: as unreadable bytes, or when they are restored."""
    queue, backend = await harness.queue(), await harness.backend()
    for number, depth in enumerate((40, 500, 100_000), 1):
        args = b'{"text":' + b"[" * depth + b"]" * depth + b"}"
        await store_raw(backend, envelope(job_id(number), args=args), first=number)

        with raises(AqueueError, f"arguments {depth} levels deep") as caught:
            (await harness.take(queue)).job(Note)
        assert isinstance(caught.error, JobReconstructionError | MalformedJobSettled)


@rule("ARG-4")
async def a_payload_never_chooses_the_code(harness: Harness) -> None:
    """A delivery is restored only as the class its reader names, and only if the names agree."""
    queue, backend = await harness.queue(), await harness.backend()
    await store_raw(backend, envelope(job_id(1), name="os.system", args=b'{"text":"true"}'))

    delivery = await harness.take(queue)

    assert delivery.name == "os.system"
    with raises(JobReconstructionError, "restoring another job as a Note"):
        delivery.job(Note)


@rule("ARG-4")
async def an_older_name_stays_readable(harness: Harness) -> None:
    """A job stored under an alias is restored as the class that claims it."""
    queue, backend = await harness.queue(), await harness.backend()
    await store_raw(backend, envelope(job_id(1), name="contract.once-called"))

    assert (await harness.take(queue)).job(Renamed) == Renamed("hand-made")


@rule("WIRE-1")
async def the_envelope_stays_the_same_through_every_turn(harness: Harness) -> None:
    """Release, give-back, a lost lease, failing and retrying keep the pushed bytes; counters live outside."""
    holder, queue = await harness.queue(), await harness.queue()
    id = await queue.push(Note("sealed"), max_attempts=9)
    delivery = await harness.take(queue)
    pushed = delivery.reserved.payload

    await queue.release(delivery)
    await queue.release(await _same(harness, queue, pushed), counted=False)
    await _same(harness, holder, pushed)
    await harness.lose(holder)
    await queue.fail(await _same(harness, queue, pushed), "no reason")
    failed = await queue.failed.get(id)
    assert failed is not None
    assert failed.payload == pushed
    assert await queue.failed.retry(id)

    await _same(harness, queue, pushed)


async def _same(harness: Harness, queue: Queue, payload: bytes) -> Any:
    delivery = await harness.take(queue)
    assert delivery.reserved.payload == payload, "the stored envelope was rewritten"
    return delivery


@rule("WIRE-1")
async def a_newer_envelope_is_refused_and_given_back(harness: Harness) -> None:
    """A version nobody here knows is left for those who do: not run, not failed, no attempt counted."""
    queue, backend = await harness.queue(), await harness.backend()
    newer = b'{"v":2,"something":"quite different"}'
    await store_raw(backend, newer)

    for _ in range(3):
        with raises(UnknownEnvelopeVersion, "reading an envelope of version 2"):
            await queue.pop(timeout=harness.patience)

    await harness.expect_counts(queue, ready=1)
    assert await queue.failed.count() == 0
    reserved: list[Reserved] = []

    async def comes_back() -> bool:
        reserved.extend(await backend.pop(["default"], 1))
        return bool(reserved)

    await eventually(comes_back, harness.patience)
    attempt = 4 if harness.capabilities.counts_give_backs else 1
    assert [(item.payload, item.attempt, item.lost) for item in reserved] == [(newer, attempt, 0)]


@rule("WIRE-1")
async def a_newer_envelope_takes_no_good_job_with_it(harness: Harness) -> None:
    """A good job of the same batch is given back with it and can be taken from its own queue."""
    queue, backend = await harness.queue(), await harness.backend()
    await store_raw(backend, envelope(job_id(7)), queue="good", first=7)
    await store_raw(backend, b'{"v":99}', queue="newer")

    try:
        await queue.pop_many(10, timeout=harness.patience, queues=["good", "newer"])
    except UnknownEnvelopeVersion:
        pass
    else:
        # A sweep may take one queue at a time: then the good job came alone, and that is as good.
        await harness.expect_counts(queue, "good", leased=1)
        return

    delivery = await harness.take(queue, "good")
    assert delivery.id == job_id(7)
    harness.expect_attempt(delivery, 1, given_back=1)


@rule("WIRE-1")
async def a_delivery_tells_what_was_pushed(harness: Harness) -> None:
    """Name, arguments, time, metadata and queue are those of the push."""
    queue, backend = await harness.queue(), await harness.backend()
    await backend.push([Message(job_id(1), "here", envelope(job_id(1)))])

    delivery = await harness.take(queue, "here")

    assert (delivery.name, delivery.args, delivery.queue) == ("contract.note", {"text": "hand-made"}, "here")
    assert delivery.pushed_at.timestamp() == NOW
    assert delivery.metadata == {}
    assert delivery.max_attempts is None
    assert job_id(1) in repr(delivery)
    assert "hand-made" not in repr(delivery), "a repr shows arguments"


@rule("CLEAR-1", "NAME-1")
async def asking_to_clear_checks_the_name_first(harness: Harness) -> None:
    """A bad name is the caller's mistake before it is the store's lack."""
    queue = await harness.queue()

    with raises(InvalidQueueArgument, "clearing a bad name"):
        await queue.clear("no good")
