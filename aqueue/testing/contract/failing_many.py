"""Many failed jobs at once: what is chosen, how many, how fast; and room made, a bounded piece at a time."""

import asyncio
from typing import Any

from aqueue.errors import InvalidQueueArgument
from aqueue.failed import Fate, Redriven
from aqueue.port import KeepsFailed
from aqueue.queue import Queue
from aqueue.testing.contract.failing import PATIENT_LEASE, fail_jobs
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import store_raw


@rule("FAIL-6")
async def a_dry_run_changes_nothing(harness: Harness) -> None:
    """It tells how many would go back, and what would become of each."""
    queue = await harness.queue()
    ids = await fail_jobs(harness, queue, 5)
    told: list[Redriven] = []

    assert await queue.failed.retry_all(dry_run=True, watch=told.append) == 5
    assert await queue.failed.retry_all(dry_run=True, limit=2) == 2

    assert [(one.id, one.name, one.queue, one.fate) for one in told] == [
        (id, "contract.note", "default", Fate.PUT_BACK) for id in ids
    ]
    assert await queue.failed.count() == 5
    await harness.expect_counts(queue)


@rule("FAIL-6")
async def no_more_go_back_than_the_limit(harness: Harness) -> None:
    """The oldest of those that were chosen; each call goes on where the one before ended."""
    queue = await harness.queue()
    await fail_jobs(harness, queue, 2, name="another")
    ids = await fail_jobs(harness, queue, 5)

    assert await queue.failed.retry_all(queue="default", limit=3) == 3
    assert [job.id for job in await queue.failed.list(queue="default")] == ids[3:]
    assert {delivery.id for delivery in await harness.take_many(queue, 3)} == set(ids[:3])
    assert await queue.failed.retry_all(queue="default", limit=30) == 2
    assert await queue.failed.count() == 2


@rule("FAIL-6", "MAL-1")
async def what_cannot_be_read_is_told_of_and_stays(harness: Harness) -> None:
    """An unreadable job among the readable ones stops nobody, and doesn't count."""
    queue, backend = await harness.queue(), await harness.backend()
    good = await fail_jobs(harness, queue, 2)
    [bad] = await store_raw(backend, b"not an envelope")
    with raises(Exception, "popping unreadable bytes"):
        await queue.pop(timeout=harness.patience)
    good += await fail_jobs(harness, queue, 1)
    told: list[Redriven] = []

    assert await queue.failed.retry_all(dry_run=True) == 3
    assert await queue.failed.retry_all(watch=told.append) == 3

    assert {one.id for one in told if one.fate is Fate.PUT_BACK} == set(good)
    assert [one.id for one in told if one.fate is Fate.UNREADABLE] == [bad]
    assert [job.id for job in await queue.failed.list()] == [bad]


@rule("FAIL-6")
async def a_pace_leaves_no_job_out(harness: Harness) -> None:
    """However fast or slowly they go back; what is no pace is refused, and nothing goes."""
    queue = await harness.queue(lease=max(harness.lease, PATIENT_LEASE))
    ids = await fail_jobs(harness, queue, 30)

    bad: tuple[dict[str, Any], ...] = (
        {"rate": 0}, {"rate": -1}, {"rate": float("nan")}, {"rate": float("inf")}, {"rate": "10/s"},
        {"rate": True}, {"limit": 0}, {"limit": 1.5}, {"queue": "not a name"},
    )  # fmt: skip
    for options in bad:
        with raises(InvalidQueueArgument, f"retry_all({options})"):
            await queue.failed.retry_all(**options)
        with raises(InvalidQueueArgument, f"retry_all({options}, dry_run=True)"):
            await queue.failed.retry_all(**options, dry_run=True)
    assert await queue.failed.count() == len(ids)

    assert await queue.failed.retry_all(rate=2000, limit=20) == 20
    assert await queue.failed.retry_all(rate=100.5) == 10
    assert {delivery.id for delivery in await harness.take_many(queue, 30)} == set(ids)


@rule("FAIL-2")
async def purge_can_keep_to_one_queue(harness: Harness) -> None:
    """The others keep theirs, whatever their age."""
    queue = await harness.queue()
    old = await fail_jobs(harness, queue, 3, name="mail")
    kept = await fail_jobs(harness, queue, 2)
    await harness.pass_time(harness.lease)
    young = await fail_jobs(harness, queue, 1, name="mail")

    with raises(InvalidQueueArgument, "purging a queue that can't be"):
        await queue.failed.purge(queue="not a name")
    assert await queue.failed.purge(queue="empty") == 0
    if harness.clock is not None:
        assert await queue.failed.purge(queue="mail", older_than=harness.lease / 2) == len(old)
        assert [job.id for job in await queue.failed.list()] == [*kept, *young]
    assert await queue.failed.purge(queue="mail") == (1 if harness.clock is not None else 4)

    assert [job.id for job in await queue.failed.list()] == kept


@rule("FAIL-2")
async def making_room_is_bounded_and_takes_the_oldest(harness: Harness) -> None:
    """One step removes no more than its limit, and never what is within the bound."""
    queue, backend = await harness.queue(), await harness.backend()
    keeper: Any = backend
    if not isinstance(backend, KeepsFailed):
        return  # another store does it, which has this check of its own
    other = await fail_jobs(harness, queue, 2, name="other")
    ids = await fail_jobs(harness, queue, 10)

    async def step(**bound: Any) -> int:
        wanted = {"queue": "default", "older_than": None, "keep": None, **bound}
        purged: int = await keeper.failed_purge(**wanted)
        return purged

    assert await step(limit=5) == 0, "without a bound nothing has to go"
    assert await step(older_than=3600.0, limit=5) == 0
    assert await step(keep=10, limit=5) == 0
    assert await step(keep=7, limit=2) == 2
    assert [job.id for job in await queue.failed.list(queue="default")] == ids[2:]
    assert await step(keep=7, limit=5) == 1
    assert await step(older_than=0.0, limit=3) == 3
    assert await step(older_than=3600.0, keep=3, limit=5) == 1
    assert [job.id for job in await queue.failed.list()] == [*other, *ids[7:]]
    assert await step(queue=None, keep=1, limit=5) == 4
    assert [job.id for job in await queue.failed.list()] == ids[9:]
    assert await step(queue=None, keep=0, limit=5) == 1


@rule("FAIL-6")
async def what_fails_again_meanwhile_waits_for_the_next_run(harness: Harness) -> None:
    """A run deals with the failed jobs there are when it begins, so that it ends."""
    queue = await harness.queue(lease=max(harness.lease, PATIENT_LEASE))
    ids = await fail_jobs(harness, queue, 60)
    failing = asyncio.create_task(_fail_all(queue))

    async with harness.promptly():
        put_back = await queue.failed.retry_all()

    failing.cancel()
    await asyncio.wait({failing})
    assert put_back == len(ids)


async def _fail_all(queue: Queue) -> None:
    """Let every job fail that comes."""
    while True:
        deliveries = await queue.pop_now(10)
        await asyncio.gather(*(queue.fail(delivery) for delivery in deliveries))
        await asyncio.sleep(0)
