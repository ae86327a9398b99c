"""Counting and clearing: what waits, what is held, and what may be thrown away."""

import asyncio

from aqueue.errors import NotClearable, StaleDelivery
from aqueue.port import Clearable, LeaseKind
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, job_id


@rule("SIZE-1")
async def size_is_waiting_work(harness: Harness) -> None:
    """Ready and delayed jobs count, held ones don't; another queue's never do."""
    queue = await harness.queue()
    await harness.expect_counts(queue)

    await queue.push_many(Note("x") for _ in range(4))
    await queue.push(Note("x"), delay=600)
    await queue.push(Note("x"), queue="another")
    await harness.expect_counts(queue, ready=4, delayed=1)
    acked, released, failed = await harness.take_many(queue, 3)
    await harness.expect_counts(queue, ready=1, delayed=1, leased=3)

    await queue.ack(acked)
    await queue.release(released)
    await queue.fail(failed)
    await harness.expect_counts(queue, ready=2, delayed=1)
    await harness.expect_counts(queue, "another", ready=1)
    await harness.expect_counts(queue, "never-used")


@rule("SIZE-1", "LEASE-2")
async def a_lease_that_ran_out_counts_as_waiting(harness: Harness) -> None:
    """Before anybody takes the job back it is waiting work, and no longer held."""
    holder, queue = await harness.queue(), await harness.queue()
    await holder.push_many(Note("x") for _ in range(3))
    await harness.take_many(holder, 2)
    await harness.expect_counts(queue, ready=1, leased=2)

    await harness.lose(holder)

    await harness.expect_counts(queue, ready=3)


@rule("SIZE-1", "DELAY-1")
async def a_delay_that_is_over_counts_as_ready(harness: Harness) -> None:
    """Whether or not anybody has popped since."""
    queue = await harness.queue()
    await queue.push(Note("x"), delay=harness.lease / 4)
    await queue.push(Note("x"), delay=900)

    await harness.pass_time(harness.lease / 2)

    await harness.expect_counts(queue, ready=1, delayed=1)


@rule("SIZE-1")
async def stats_tell_the_age_of_the_oldest_ready_job(harness: Harness) -> None:
    """In seconds by the store's clock; None where nothing is ready."""
    queue = await harness.queue()
    assert (await queue.stats()).oldest_age is None
    await queue.push(Note("x"), delay=900)
    if not harness.capabilities.exact_size:
        return  # an estimate of the age is no more than that
    assert (await queue.stats()).oldest_age is None
    await queue.push(Note("old"))
    unit = harness.lease / 2

    await harness.pass_time(unit)
    await queue.push(Note("young"))

    age = (await queue.stats()).oldest_age
    assert age is not None
    assert unit * 0.9 <= age <= unit + harness.patience


@rule("SIZE-1")
async def a_delivery_tells_how_long_its_job_was_ready(harness: Harness) -> None:
    """Time in delay does not count, and it is never negative."""
    queue = await harness.queue()
    await queue.push(Note("x"))
    unit = harness.lease / 2

    await harness.pass_time(unit)

    waited = (await harness.take(queue)).waited
    assert 0 <= waited <= unit + harness.patience
    assert waited >= unit * 0.9 or not harness.capabilities.exact_size


@rule("SIZE-1", "FAIL-1")
async def stats_count_the_queues_failed_jobs(harness: Harness) -> None:
    """Each queue's own; `count` sees all of them."""
    queue = await harness.queue()
    await queue.push_many(Note("x") for _ in range(3))
    await queue.push(Note("x"), queue="another")
    for delivery in await harness.take_many(queue, 4, "default", "another"):
        await queue.fail(delivery)

    if harness.keeps_failed:
        assert (await queue.stats()).failed == 3
        assert (await queue.stats("another")).failed == 1
    assert await queue.failed.count() == 4


@rule("CLEAR-1")
async def clear_discards_what_nobody_holds(harness: Harness) -> None:
    """Ready and delayed jobs of this queue, and it tells how many; no copy is kept."""
    queue = await harness.queue()
    await queue.push_many(Note("x") for _ in range(4))
    await queue.push_many([Note("x")] * 3, delay=600)
    await queue.push(Note("x"), queue="another")
    held = await harness.take(queue)
    if not isinstance(await harness.backend(), Clearable):
        await _refuses_to_clear(harness)
        return

    assert await queue.clear("default") == 6
    assert await queue.clear("default") == 0

    await harness.expect_counts(queue, leased=1)
    await harness.expect_counts(queue, "another", ready=1)
    assert await queue.failed.count() == 0
    await queue.ack(held)
    await harness.expect_counts(queue)


async def _refuses_to_clear(harness: Harness) -> None:
    queue = await harness.queue()
    with raises(NotClearable, "clearing a store that can't clear") as caught:
        await queue.clear("default")
    assert harness.capabilities.system in str(caught.error), "the refusal does not name the backend"


@rule("CLEAR-1")
async def clear_spares_what_was_held_past_its_lease(harness: Harness) -> None:
    """A lease that ran out is not a waiting job to `clear`: its worker may still settle it."""
    queue = await harness.queue()
    if not isinstance(await harness.backend(), Clearable):
        await _refuses_to_clear(harness)
        return
    await queue.push_many([Note("held"), Note("waiting")])
    held = await harness.take(queue)
    if harness.capabilities.lease is LeaseKind.TIMED:
        await harness.pass_time(harness.lease * 1.2)

    assert await queue.clear("default") == 1

    await queue.ack(held)
    await harness.expect_counts(queue)


@rule("CLEAR-1", "LEASE-2")
async def a_job_spared_by_clear_comes_back(harness: Harness) -> None:
    """If its worker is gone, the next pop finds it."""
    holder, queue = await harness.queue(), await harness.queue()
    if not isinstance(await harness.backend(), Clearable):
        await _refuses_to_clear(harness)
        return
    id = await holder.push(Note("x"))
    await harness.take(holder)
    assert await queue.clear("default") == 0

    await harness.lose(holder)

    assert (await harness.take(queue)).id == id


@rule("CLEAR-1")
async def clears_and_pops_at_once_share_the_jobs(harness: Harness) -> None:
    """Each job is either cleared, and counted once, or handed out and still settles."""
    queue, other = await harness.queue(), await harness.queue()
    if not isinstance(await harness.backend(), Clearable):
        await _refuses_to_clear(harness)
        return
    count = 60
    await queue.push_many(Note("x") for _ in range(count))
    await harness.take(queue)

    results = await asyncio.gather(
        *(queue.pop_now(4) for _ in range(4)),
        *(one.clear("default") for one in (other, queue)),
        *(other.pop_now(4) for _ in range(4)),
    )

    cleared = sum(result for result in results if isinstance(result, int))
    taken = [delivery for result in results if isinstance(result, list) for delivery in result]
    await harness.expect_counts(queue, leased=len(taken) + 1)
    assert cleared + len(taken) == count - 1
    try:
        await asyncio.gather(*(queue.ack(delivery) for delivery in taken))
    except StaleDelivery:
        raise AssertionError("clear took a job that was handed out") from None


@rule("CLEAR-1", "PUSH-10")
async def what_was_cleared_is_forgotten(harness: Harness) -> None:
    """No record of it is kept: neither among the failed jobs nor to refuse its id."""
    queue = await harness.queue()
    if not isinstance(await harness.backend(), Clearable):
        await _refuses_to_clear(harness)
        return
    chosen = {"id": job_id(1)} if harness.capabilities.idempotent_push else {}
    await queue.push(Note("x"), **chosen)  # type: ignore[arg-type]  # either an id or nothing
    await queue.clear("default")

    await queue.push(Note("y"), **chosen)  # type: ignore[arg-type]  # as above

    assert (await harness.take(queue)).args == {"text": "y"}
    assert await queue.failed.count() == 0
