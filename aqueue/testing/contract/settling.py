"""Settling: one ending for one delivery, and what each ending leaves in the store."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from aqueue.delivery import Delivery
from aqueue.errors import AqueueError, InvalidQueueArgument, Settlement
from aqueue.port import LeaseKind
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note

Ending = Callable[[Queue, Delivery], Awaitable[None]]


def _operations(queue: Queue, delivery: Delivery) -> dict[Settlement, Callable[[], Awaitable[None]]]:
    return {
        Settlement.ACK: lambda: queue.ack(delivery),
        Settlement.RELEASE: lambda: queue.release(delivery),
        Settlement.FAIL: lambda: queue.fail(delivery),
        Settlement.EXTEND: lambda: queue.extend(delivery),
    }


async def _refused_after(
    harness: Harness, ending: Ending, *, ready: int = 0, delayed: int = 0, failed: int = 0
) -> None:
    """End a delivery, try every operation on it again, and see that none of them wrote anything."""
    for operation in Settlement:
        name = f"after-{operation}"
        queue = await harness.queue()
        await queue.push(Note("x"), queue=name)
        delivery = await harness.take(queue, name)
        await ending(queue, delivery)

        await harness.expect_stale(operation, _operations(queue, delivery)[operation](), of=delivery)

        if harness.capabilities.fenced:
            await harness.expect_counts(queue, name, ready=ready, delayed=delayed)
            assert await queue.failed.count(queue=name) == failed
        await queue.aclose()


@rule("FENCE-2")
async def nothing_settles_after_an_ack(harness: Harness) -> None:
    """A job that is done can't be acked again, put back, set aside or renewed."""
    await _refused_after(harness, lambda queue, delivery: queue.ack(delivery))


@rule("FENCE-2")
async def nothing_settles_after_a_release(harness: Harness) -> None:
    """A job that waits again is not this delivery's any more, delayed or not."""
    await _refused_after(harness, lambda queue, delivery: queue.release(delivery), ready=1)


@rule("FENCE-2")
async def nothing_settles_after_a_delayed_release(harness: Harness) -> None:
    """A job that waits for its time is not this delivery's any more."""
    await _refused_after(harness, lambda queue, delivery: queue.release(delivery, delay=600), delayed=1)


@rule("FENCE-2")
async def nothing_settles_after_a_failure(harness: Harness) -> None:
    """A job that was set aside stays set aside, once."""
    await _refused_after(harness, lambda queue, delivery: queue.fail(delivery), failed=1)


@rule("FENCE-2")
async def nothing_settles_after_an_uncounted_give_back(harness: Harness) -> None:
    """A give-back counts no attempt, and ends the delivery all the same."""
    await _refused_after(harness, lambda queue, delivery: queue.release(delivery, counted=False), ready=1)


@rule("FENCE-1")
async def a_lost_delivery_settles_nothing(harness: Harness) -> None:
    """Once another worker has the job, the old delivery's settlements write nothing and say so."""
    slow, other = await harness.queue(), await harness.queue()
    await slow.push_many(Note("x") for _ in Settlement)
    old = await harness.take_many(slow, len(Settlement))
    await harness.lose(slow)
    new = await harness.take_many(other, len(Settlement))

    for operation, delivery in zip(Settlement, old, strict=True):
        await harness.expect_stale(operation, _operations(slow, delivery)[operation](), of=delivery)

    if harness.capabilities.fenced:
        await harness.expect_counts(other, leased=len(new))
        assert await other.failed.count() == 0
        for delivery in new:
            await other.ack(delivery)
        await harness.expect_counts(other)


@rule("FENCE-1")
async def a_delivery_given_back_and_taken_again_is_another(harness: Harness) -> None:
    """The old receipt is worthless while the same worker holds the same job under a new one."""
    queue = await harness.queue()
    await queue.push(Note("x"))
    for operation in Settlement:
        old = await harness.take(queue)
        await queue.release(old, counted=False)
        new = await harness.take(queue)
        assert new.receipt != old.receipt

        await harness.expect_stale(operation, _operations(queue, old)[operation](), of=old)

        if not harness.capabilities.fenced:
            return
        await harness.expect_counts(queue, leased=1)
        await queue.release(new, counted=False)
    await harness.expect_counts(queue, ready=1)


@rule("FENCE-1")
async def a_receipt_is_new_for_each_hand_out(harness: Harness) -> None:
    """After a release, a give-back and a lost lease; for each job of a batch as well."""
    holder, queue = await harness.queue(), await harness.queue()
    await queue.push_many([Note("a"), Note("b")])
    receipts: list[object] = []

    for counted in (True, False):
        deliveries = await harness.take_many(queue, 2)
        receipts += [delivery.receipt for delivery in deliveries]
        for delivery in deliveries:
            await queue.release(delivery, counted=counted)
    receipts += [delivery.receipt for delivery in await harness.take_many(holder, 2)]
    await harness.lose(holder)
    receipts += [delivery.receipt for delivery in await harness.take_many(queue, 2)]

    assert len({str(receipt) for receipt in receipts}) == len(receipts) == 8


@rule("FENCE-1", "FENCE-2")
async def of_two_settlements_at_once_one_wins(harness: Harness) -> None:
    """Racing endings of one delivery, on two connections: one is accepted, the others are refused."""
    queue = await harness.queue()
    other = await harness.queue() if _is_portable(harness) else queue
    await queue.push_many(Note("x") for _ in range(5))

    for delivery in await harness.take_many(queue, 5):
        outcomes = await asyncio.gather(
            queue.ack(delivery),
            other.release(delivery, delay=600),
            queue.fail(delivery),
            queue.ack(delivery),
            return_exceptions=True,
        )
        unexpected = [o for o in outcomes if o is not None and not isinstance(o, AqueueError)]
        assert not unexpected, f"a race ended in {unexpected[0]!r}"
        if harness.capabilities.fenced:
            assert outcomes.count(None) == 1, f"{outcomes.count(None)} of 4 settlements were accepted"


def _is_portable(harness: Harness) -> bool:
    """Say whether a receipt means something beyond the connection that got it."""
    return harness.capabilities.lease is not LeaseKind.CHANNEL


@rule("FENCE-1")
async def any_connection_settles_a_live_delivery(harness: Harness) -> None:
    """Where a lease is a time and not a channel, its receipt is enough."""
    if not _is_portable(harness):
        return
    queue, other = await harness.queue(), await harness.queue()
    await queue.push_many(Note("x") for _ in range(4))
    deliveries = await harness.take_many(queue, 4)

    for operation, delivery in zip(Settlement, deliveries, strict=True):
        await _operations(other, delivery)[operation]()

    await harness.expect_counts(queue, ready=1, leased=1)
    assert await queue.failed.count() == 1


@rule("FENCE-1")
async def many_settlements_at_once_each_find_their_own(harness: Harness) -> None:
    """Coalesced settlements, stale ones among them, answer each caller for its own delivery."""
    queue = await harness.queue()
    await queue.push_many(Note("x") for _ in range(60))
    deliveries = await harness.take_many(queue, 60)
    done, stale = deliveries[::3], deliveries[1::3]
    await asyncio.gather(*(queue.ack(delivery) for delivery in stale))

    results = await asyncio.gather(*(queue.ack(d) for d in [*done, *stale]), return_exceptions=True)

    assert results[: len(done)] == [None] * len(done)
    if harness.capabilities.fenced:
        assert all(isinstance(result, AqueueError) for result in results[len(done) :])
    await harness.expect_counts(queue, leased=20)


@rule("REL-1")
async def a_released_job_waits_again_and_nowhere_twice(harness: Harness) -> None:
    """The swap leaves exactly one waiting job: not none, not two."""
    queue, other = await harness.queue(), await harness.queue()
    id = await queue.push(Note("hello"))
    await queue.release(await harness.take(queue))

    await harness.expect_counts(queue, ready=1)
    delivery = await harness.take(other)
    assert (delivery.id, delivery.job(Note)) == (id, Note("hello"))
    await harness.expect_nothing(other)
    await harness.expect_counts(queue, leased=1)


@rule("REL-1", "DELAY-1")
async def a_release_may_ask_for_a_pause(harness: Harness) -> None:
    """Seconds or a timedelta: the job is counted as delayed and comes when the pause is over."""
    queue = await harness.queue()
    pause = harness.lease / 2
    ids = await queue.push_many([Note("a"), Note("b")])
    first, second = await harness.take_many(queue, 2)

    await queue.release(first, delay=timedelta(seconds=600))
    await queue.release(second, delay=pause)

    if harness.clock is not None:
        await harness.expect_counts(queue, paused=2)
        await harness.expect_nothing(queue)
    await harness.pass_time(pause * 1.2)
    assert (await harness.take(queue)).id == second.id
    await harness.expect_counts(queue, paused=1, leased=1)
    assert set(ids) == {first.id, second.id}


@rule("REL-1")
async def a_bad_pause_is_refused_and_the_delivery_kept(harness: Harness) -> None:
    """A refused release settles nothing."""
    queue = await harness.queue()
    await queue.push(Note("x"))
    delivery = await harness.take(queue)
    pauses: tuple[Any, ...] = (-1, float("nan"), float("inf"), "1", None, True)

    for pause in pauses:
        with raises(InvalidQueueArgument, f"a pause of {pause!r}"):
            await queue.release(delivery, delay=pause)

    await queue.ack(delivery)
    await harness.expect_counts(queue)


@rule("ATT-1")
async def attempts_count_failures_and_lost_leases_alone(harness: Harness) -> None:
    """From 1; a counted release and a lost lease add one each, a give-back none."""
    holder, queue = await harness.queue(), await harness.queue()
    await queue.push(Note("x"))
    expected = [1]

    async def take(where: Queue, adds: int) -> Delivery:
        delivery = await harness.take(where)
        if harness.capabilities.counts_give_backs and len(expected) > 1:
            adds = 1  # there each hand-out after the first does
        expected.append(expected[-1] + adds)
        assert delivery.attempt == expected[-1], f"attempt {delivery.attempt}, not {expected[-1]}"
        return delivery

    await queue.release(await take(queue, 0), counted=False)
    await queue.release(await take(queue, 0))
    await queue.release(await take(queue, 1), delay=0, counted=True)
    await queue.release(await take(queue, 1), counted=False)
    await take(holder, 0)
    await harness.lose(holder)
    await queue.release(await take(queue, 1 if harness.capabilities.counts_lost else 0))
    await queue.ack(await take(queue, 1))
    await harness.expect_counts(queue)


@rule("ATT-1")
async def a_delayed_give_back_counts_nothing(harness: Harness) -> None:
    """A snoozed job comes back later with the attempt it had."""
    queue = await harness.queue()
    await queue.push(Note("x"))
    pause = harness.lease / 4
    await queue.release(await harness.take(queue))

    await queue.release(await harness.take(queue), delay=pause, counted=False)
    await harness.pass_time(pause * 1.2)

    harness.expect_attempt(await harness.take(queue), 2, given_back=1)


@rule("DELAY-1")
async def a_delayed_job_is_never_early_and_soon_there(harness: Harness) -> None:
    """The delay is a floor kept by the store: it outlives the connection that asked for it."""
    pusher, queue = await harness.queue(), await harness.queue()
    delay = harness.lease
    id = await pusher.push(Note("later"), delay=timedelta(seconds=delay))
    await pusher.aclose()

    if harness.clock is not None:
        await harness.pass_time(delay * 0.9)
        await harness.expect_nothing(queue)
        await harness.expect_counts(queue, delayed=1)
        await harness.pass_time(delay * 0.1)
    else:
        await harness.pass_time(delay)

    assert (await harness.take(queue)).id == id


@rule("DELAY-1")
async def delayed_jobs_come_in_the_order_they_are_due(harness: Harness) -> None:
    """Whatever the order of their pushes, nothing waits behind a longer delay."""
    queue = await harness.queue()
    unit = max(harness.lease / 4, harness.capabilities.delay_step)
    late = await queue.push(Note("late"), delay=3 * unit)
    early = await queue.push(Note("early"), delay=unit)
    now = await queue.push(Note("now"))

    assert (await harness.take(queue)).id == now
    await harness.pass_time(unit * 1.1)
    assert (await harness.take(queue)).id == early
    await harness.pass_time(unit * 2.2)
    assert (await harness.take(queue)).id == late


@rule("ATT-1", "LEASE-2")
async def a_given_back_job_goes_first(harness: Harness) -> None:
    """A job that was only handed out in vain does not lose its place in the queue."""
    queue = await harness.queue()
    ids = [await queue.push(Note(str(number))) for number in range(3)]

    await queue.release(await harness.take(queue), counted=False)

    harness.expect_order(await harness.take_many(queue, 3), ids)
