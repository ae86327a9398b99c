"""Leases: how long a delivery is held, who gets the job afterwards, and what a renewal can't do."""

from aqueue.errors import InvalidQueueArgument, Settlement
from aqueue.port import LeaseKind, Message, Verdict
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id


@rule("LEASE-1")
async def a_leased_job_is_nobody_elses(harness: Harness) -> None:
    """While the lease holds, no pop on any connection finds the job."""
    queue, other = await harness.queue(), await harness.queue()
    await queue.push(Note("x"))

    delivery = await harness.take(queue)

    await harness.expect_nothing(queue)
    await harness.expect_nothing(other)
    await harness.expect_counts(queue, leased=1)
    await queue.ack(delivery)


@rule("LEASE-1", "LEASE-2")
async def a_lost_lease_hands_the_job_to_the_next_pop(harness: Harness) -> None:
    """A dead worker's job comes back by itself: to any connection, with the next pop, and complete."""
    dead, other = await harness.queue(), await harness.queue()
    id = await dead.push(Note("hello"))
    first = await harness.take(dead)

    await harness.lose(dead)

    second = await harness.take(other)
    assert (second.id, second.job(Note)) == (id, Note("hello"))
    assert second.receipt != first.receipt
    await other.ack(second)
    await harness.expect_counts(other)


@rule("LEASE-1")
async def each_queue_name_keeps_its_own_leases(harness: Harness) -> None:
    """Leases that ran out on one queue come back on that queue alone."""
    dead, other = await harness.queue(), await harness.queue()
    names = ["one", "two", "three"]
    ids = {name: await dead.push(Note(name), queue=name) for name in names}
    for name in names:
        await harness.take(dead, name)

    await harness.lose(dead)

    for name in names:
        assert (await harness.take(other, name)).id == ids[name]
        await harness.expect_nothing(other, name)


@rule("LEASE-2")
async def many_lost_leases_all_come_back(harness: Harness) -> None:
    """However many a worker held and however the store moves them, the next pops find each of them once."""
    dead, other = await harness.queue(), await harness.queue(lease=harness.lease * 20)
    count = 250
    ids = await dead.push_many(Note("x") for _ in range(count))
    await harness.take_many(dead, count)

    await harness.lose(dead)

    taken = await harness.take_many(other, count)
    assert sorted(delivery.id for delivery in taken) == sorted(ids)
    await harness.expect_nothing(other)


@rule("LEASE-2")
async def a_lost_lease_is_taken_back_beside_fresh_jobs(harness: Harness) -> None:
    """A queue that never runs dry still gives back what was lost on it."""
    dead, other = await harness.queue(), await harness.queue()
    lost = await dead.push(Note("lost"))
    await harness.take(dead)
    await harness.lose(dead)
    fresh = await other.push_many(Note("fresh") for _ in range(3))

    taken = await harness.take_many(other, 4)

    assert {delivery.id for delivery in taken} == {lost, *fresh}


@rule("LEASE-3")
async def extending_starts_the_lease_anew(harness: Harness) -> None:
    """After a renewal the full length holds again, time after time."""
    queue, other = await harness.queue(), await harness.queue()
    id = await queue.push(Note("x"))
    delivery = await harness.take(queue)

    for _ in range(3):
        await harness.pass_time(harness.lease * 0.6)
        await queue.extend(delivery)
    await harness.pass_time(harness.lease * 0.6)

    await harness.expect_nothing(other)
    await queue.ack(delivery)
    await harness.expect_counts(queue)
    assert delivery.id == id


@rule("LEASE-3")
async def an_extended_lease_still_ends(harness: Harness) -> None:
    """A renewal is for one lease, not for ever."""
    holder, other = await harness.queue(), await harness.queue()
    id = await holder.push(Note("x"))
    delivery = await harness.take(holder)
    await holder.extend(delivery)

    await harness.lose(holder)

    assert (await harness.take(other)).id == id


@rule("LEASE-3", "FENCE-1")
async def extending_never_revives_a_lease_that_passed_on(harness: Harness) -> None:
    """Once another worker holds the job, the old delivery's renewal is refused and changes nothing."""
    slow, other = await harness.queue(), await harness.queue()
    id = await slow.push(Note("x"))
    old = await harness.take(slow)
    await harness.lose(slow)
    new = await harness.take(other)

    await harness.expect_stale(Settlement.EXTEND, slow.extend(old), of=old)

    await other.extend(new)
    await other.ack(new)
    await harness.expect_counts(other)
    assert new.id == id


@rule("LEASE-3", "FENCE-1")
async def many_leases_are_renewed_in_one_call(harness: Harness) -> None:
    """Each is answered for itself: renewed, or stale beside its neighbours."""
    queue, other = await harness.queue(), await harness.queue()
    await queue.push_many(Note("x") for _ in range(5))
    deliveries = await harness.take_many(queue, 5)
    await queue.ack(deliveries[1])
    await queue.release(deliveries[3], delay=600)

    await harness.pass_time(harness.lease * 0.6)
    answers = await queue.extend_many(deliveries)
    await harness.pass_time(harness.lease * 0.6)

    if harness.capabilities.fenced:
        stale, settled = Verdict.STALE, Verdict.SETTLED
        assert list(answers) == [settled, stale, settled, stale, settled]
    assert len(answers) == 5
    await harness.expect_nothing(other)
    await harness.expect_counts(queue, paused=1, leased=3)
    assert await queue.extend_many([]) == []


@rule("LEASE-3", "FENCE-1")
async def a_lease_that_ran_out_unnoticed_still_settles(harness: Harness) -> None:
    """Until somebody takes the job back, its delivery can be renewed and settled."""
    queue = await harness.queue()
    if harness.capabilities.lease is not LeaseKind.TIMED or not harness.capabilities.fenced:
        return  # a channel's deliveries end with it, and a store without a fence gives its own answer
    ids = await queue.push_many(Note("x") for _ in range(4))
    renewed, acked, released, failed = await harness.take_many(queue, 4)

    await harness.pass_time(harness.lease * 1.2)
    await queue.extend(renewed)
    await queue.ack(acked)
    await queue.release(released, delay=600)
    await queue.fail(failed)

    await harness.expect_nothing(queue)
    await harness.expect_counts(queue, delayed=1, leased=1)
    assert [job.id for job in await queue.failed.list()] == [failed.id]
    assert set(ids) == {delivery.id for delivery in (renewed, acked, released, failed)}


@rule("LEASE-1")
async def the_lease_is_the_queues_own_length(harness: Harness) -> None:
    """A connection's `lease` holds for what it pops, whatever other connections use."""
    capabilities = harness.capabilities
    long, short = await harness.queue(lease=harness.lease * 4), await harness.queue()
    if capabilities.lease is not LeaseKind.TIMED:
        return  # there the channel is the lease, and it has no length
    patient = await long.push(Note("patient"))
    await harness.take(long)
    hasty = await long.push(Note("hasty"))
    await harness.take(short)

    await harness.pass_time(harness.lease * 1.5)

    assert (await harness.take(short)).id == hasty
    await harness.expect_nothing(short)
    assert patient != hasty


@rule("LEASE-1")
async def a_lease_the_store_cant_keep_is_refused(harness: Harness) -> None:
    """No length at all, no end, or one outside the store's range is a mistake in the set-up."""
    longest = harness.capabilities.longest_lease
    bad = [0, -1, float("nan"), float("inf")]
    if harness.capabilities.lease is LeaseKind.TIMED:
        bad += [harness.capabilities.shortest_lease / 2] + ([longest + 1] if longest is not None else [])

    for lease in bad:
        with raises(InvalidQueueArgument, f"a lease of {lease} s"):
            await harness.queue(lease=lease)


@rule("LEASE-2", "ATT-1", "ATT-3")
async def the_port_counts_lost_leases(harness: Harness) -> None:
    """`lost` grows with each lease that ran out; a counted release starts it anew, a give-back does not."""
    holder, queue = await harness.queue(), await harness.queue()
    backend = await harness.backend()
    await backend.push([Message(job_id(1), "default", envelope(job_id(1)))])
    counts = harness.capabilities.counts_lost

    await harness.take(holder)
    await harness.lose(holder)
    first = await harness.take(queue)
    await queue.release(first, counted=False)
    second = await harness.take(queue)
    await queue.release(second)
    third = await harness.take(queue)

    assert [delivery.lost for delivery in (first, second, third)] == ([1, 1, 0] if counts else [0, 0, 0])
