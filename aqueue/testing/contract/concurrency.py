"""Many at once: no job taken twice, none lost, and the books balance."""

import asyncio
import random
from contextlib import suppress

from aqueue.delivery import Delivery
from aqueue.errors import StaleDelivery
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note
from aqueue.testing.eventually import eventually


@rule("POP-5")
async def concurrent_pops_never_share_a_delivery(harness: Harness) -> None:
    """Many poppers on several connections drain one queue: each job comes to exactly one of them."""
    queues = [await harness.queue() for _ in range(3)]
    ids = await queues[0].push_many(Note("x") for _ in range(200))
    taken: list[str] = []

    async def drain(queue: Queue, limit: int) -> None:
        while batch := await queue.pop_many(limit, timeout=0.3):
            taken.extend(delivery.id for delivery in batch)
            await asyncio.gather(*(queue.ack(delivery) for delivery in batch))

    await asyncio.gather(*(drain(queue, limit) for queue in queues for limit in (1, 2, 7)))

    assert sorted(taken) == sorted(ids)
    await harness.expect_counts(queues[0])


@rule("POP-5")
async def pops_at_the_same_instant_get_different_jobs(harness: Harness) -> None:
    """One job, many who ask at once: one gets it."""
    queues = [await harness.queue() for _ in range(3)]
    for _ in range(10):
        await queues[0].push(Note("x"))

        results = await asyncio.gather(*(queue.pop_now(1) for queue in queues * 3))

        taken = [delivery for result in results for delivery in result]
        assert len(taken) <= 1, f"{len(taken)} poppers hold one job"
        if not taken:
            taken = [await harness.take(queues[0])]
        await queues[0].ack(taken[0])
    await harness.expect_counts(queues[0])


@rule("POP-5", "LEASE-2")
async def a_lost_job_is_taken_back_by_one(harness: Harness) -> None:
    """Sweeps that race for expired leases produce one winner for each."""
    dead = await harness.queue()
    queues = [await harness.queue() for _ in range(3)]
    ids = await dead.push_many(Note("x") for _ in range(20))
    await harness.take_many(dead, 20)
    await harness.lose(dead)
    taken: list[Delivery] = []

    async def all_back() -> bool:
        for batch in await asyncio.gather(*(queue.pop_now(5) for queue in queues * 3)):
            taken.extend(batch)
        return len(taken) >= 20

    await eventually(all_back, harness.patience)
    assert sorted(delivery.id for delivery in taken) == sorted(ids)
    if harness.capabilities.counts_lost:
        assert {(delivery.attempt, delivery.lost) for delivery in taken} == {(2, 1)}


@rule("POP-5", "REL-1", "FAIL-1", "FENCE-2")
async def the_books_balance(harness: Harness) -> None:
    """Whatever many workers do at once, each job ends up waiting, done or failed, and never two of them."""
    queues = [await harness.queue() for _ in range(3)]
    await queues[0].push_many(Note("x") for _ in range(90))
    dice = random.Random(7)  # noqa: S311 - the same mix of endings each time
    acked: list[str] = []
    failed: list[str] = []

    async def work(queue: Queue) -> None:
        for _ in range(8):
            for delivery in await queue.pop_now(3):
                match dice.randrange(4):
                    case 0:
                        await queue.ack(delivery)
                        acked.append(delivery.id)
                    case 1:
                        await queue.fail(delivery)
                        failed.append(delivery.id)
                    case _:
                        await queue.release(delivery, counted=dice.random() < 0.5)

    await asyncio.gather(*(work(queue) for queue in queues * 2))

    waiting = 90 - len(acked) - len(failed)
    await harness.expect_counts(queues[0], ready=waiting)
    assert await queues[0].failed.count() == len(failed)
    rest = [delivery.id for delivery in await harness.take_many(queues[0], waiting)] if waiting else []
    assert len({*rest, *acked, *failed}) == 90


@rule("FENCE-1", "PUSH-11")
async def cancelled_settlements_settle_or_dont(harness: Harness) -> None:
    """A caller that is cancelled while it acks leaves the job done or held, and the connection whole."""
    queue = await harness.queue()
    for turns in range(8):
        await queue.push(Note("x"))
        delivery = await harness.take(queue)
        acking = asyncio.create_task(queue.ack(delivery))
        for _ in range(turns):
            await asyncio.sleep(0)
        acking.cancel()
        await asyncio.gather(acking, return_exceptions=True)

        async with harness.promptly():
            with suppress(StaleDelivery):  # the cancelled call had settled it
                await queue.ack(delivery)
        await harness.expect_counts(queue)
