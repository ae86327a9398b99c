"""Unique pushes: one job at a time about one thing, decided by the store."""

import asyncio

from aqueue.contract.unique import Unique
from aqueue.errors import NotesMissing
from aqueue.handlers import Handlers
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, Once
from aqueue.worker import Worker

_BY_TEXT = Unique(by=["text"])


async def _refuses_unique_pushes(harness: Harness) -> None:
    """Where nothing can remember who has a key, nothing is sent."""
    queue = await harness.queue()
    with raises(NotesMissing, "a unique push to a store without notes") as caught:
        await queue.push(Note("x"), unique=_BY_TEXT)
    assert harness.capabilities.system in str(caught.error), "the refusal does not name the backend"
    await harness.expect_counts(queue)


@rule("UNIQUE-1")
async def while_a_key_is_taken_nothing_new_is_stored(harness: Harness) -> None:
    """The push returns the id of the job that has it; other keys and other queues are free."""
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queue, other = await harness.queue(), await harness.queue()

    first = await queue.push(Note("a"), unique=_BY_TEXT)

    assert await other.push(Note("a"), unique=_BY_TEXT) == first
    assert await queue.push(Note("b"), unique=_BY_TEXT) != first
    assert await queue.push(Note("a"), queue="another", unique=_BY_TEXT) != first
    assert await queue.push(Note("a"), unique=False) != first
    await harness.expect_counts(queue, ready=3)
    await harness.expect_counts(queue, "another", ready=1)


@rule("UNIQUE-1")
async def of_pushes_at_once_one_stores_a_job(harness: Harness) -> None:
    """However many, over several connections; each of them returns the id of that job."""
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queues = [await harness.queue() for _ in range(3)]

    ids = await asyncio.gather(
        *(queue.push(Note("a"), unique=_BY_TEXT) for queue in queues for _ in range(15)),
        *(queue.push(Note("b"), unique=_BY_TEXT) for queue in queues for _ in range(15)),
    )

    assert len(set(ids[:45])) == len(set(ids[45:])) == 1
    await harness.expect_counts(queues[0], ready=2)


@rule("UNIQUE-1")
async def a_key_is_free_once_its_job_is_done(harness: Harness) -> None:
    """Not while it runs, not while it waits for a retry; after its ack, and after it was set aside."""
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queue = await harness.queue()
    first = await queue.push(Note("a"), unique=_BY_TEXT)

    held = await harness.take(queue)
    assert await queue.push(Note("a"), unique=_BY_TEXT) == first
    await queue.release(held)
    assert await queue.push(Note("a"), unique=_BY_TEXT) == first
    await queue.ack(await harness.take(queue))

    second = await queue.push(Note("a"), unique=_BY_TEXT)
    assert second != first
    await queue.fail(await harness.take(queue))
    third = await queue.push(Note("a"), unique=_BY_TEXT)
    assert third not in {first, second}
    await harness.expect_counts(queue, ready=1)


@rule("UNIQUE-1", "FAIL-2")
async def a_job_put_back_by_hand_meets_no_key(harness: Harness) -> None:
    """Its return doesn't collide with the job that has the key by now, and its end doesn't free it."""
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queue = await harness.queue()
    failed = await queue.push(Note("a"), unique=_BY_TEXT)
    await queue.fail(await harness.take(queue))
    holder = await queue.push(Note("a"), unique=_BY_TEXT)

    assert await queue.failed.retry(failed)

    taken = {delivery.id: delivery for delivery in await harness.take_many(queue, 2)}
    assert set(taken) == {failed, holder}
    await queue.ack(taken[failed])
    assert await queue.push(Note("a"), unique=_BY_TEXT) == holder
    await queue.ack(taken[holder])
    await harness.expect_counts(queue)


@rule("UNIQUE-1")
async def a_key_until_started_is_free_when_the_first_attempt_begins(harness: Harness) -> None:
    """So that what is pushed while the job runs is not forgotten, and runs once more."""
    unique = Unique(by=["text"], until="started")
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queue = await harness.queue()
    pushed: list[str] = []
    handlers = Handlers()

    async def handle(note: Note) -> None:
        if len(pushed) < 3:
            pushed.extend([await queue.push(note, unique=unique), await queue.push(note, unique=unique)])

    handlers.on(Note, handle)
    pushed.append(await queue.push(Note("a"), unique=unique))

    await Worker(queue, handlers).run_all()

    assert len(pushed) == 3, "the job never ran"
    first, second, third = pushed
    assert second == third != first
    await harness.expect_counts(queue)


@rule("UNIQUE-1")
async def a_window_holds_its_key_whatever_becomes_of_the_job(harness: Harness) -> None:
    """For its time and no longer."""
    unique = Unique(by=["text"], window=harness.lease)
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queue = await harness.queue(lease=60)
    first = await queue.push(Note("a"), unique=unique)
    await queue.ack(await harness.take(queue))

    if harness.clock is not None:
        assert await queue.push(Note("a"), unique=unique) == first
    await harness.pass_time(harness.lease * 1.1)

    assert await queue.push(Note("a"), unique=unique) != first
    await harness.expect_counts(queue, ready=1)


@rule("UNIQUE-1", "CLEAR-1")
async def what_was_cleared_holds_its_key_for_a_bounded_time(harness: Harness) -> None:
    """`clear` knows of no keys, so that the bound is what frees them."""
    unique = Unique(by=["text"], at_most=harness.lease)
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    queue = await harness.queue()
    first = await queue.push(Note("a"), unique=unique)
    assert await queue.clear("default") == 1

    await harness.pass_time(harness.lease * 1.1)

    assert await queue.push(Note("a"), unique=unique) != first


@rule("UNIQUE-1", "PUSH-7")
async def a_list_of_unique_jobs_is_pushed_one_by_one(harness: Harness) -> None:
    """Each position gets the id of the job that has its key."""
    queue = await harness.queue()
    if not harness.keeps_notes:
        await _refuses_unique_pushes(harness)
        return
    holder = await queue.push(Once("a"))

    ids = await _pushed(queue, "a", "b", "b")

    assert ids[0] == holder
    assert ids[1] == ids[2] != holder
    await harness.expect_counts(queue, ready=2)


async def _pushed(queue: Queue, *texts: str) -> list[str]:
    return await queue.push_many(Once(text) for text in texts)
