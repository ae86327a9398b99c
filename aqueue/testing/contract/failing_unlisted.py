"""What a store does about failed jobs by itself: keeps them, sets them aside in a queue, or only says so."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from aqueue.contract.signing import Keyring
from aqueue.errors import FailedStoreMissing, InvalidQueueArgument
from aqueue.failed import Fate, Redriven
from aqueue.port import DeadLetters, KeepsFailed
from aqueue.queue import Queue
from aqueue.testing.contract.failing import fail_jobs
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import job_id
from aqueue.testing.eventually import eventually

_KEYS = Keyring(active="k", keys={"k": b"a secret of thirty-two bytes or so.."})


async def _own(harness: Harness) -> tuple[Queue, bool]:
    """Return a queue without another store for failed jobs, and whether it keeps any."""
    backend = await harness.backend()
    queue = await harness.queue(own_failed=True)
    return queue, isinstance(backend, KeepsFailed | DeadLetters)


async def _expect_failed(harness: Harness, queue: Queue, count: int, name: str = "default") -> None:
    async def agree() -> None:
        found = await queue.failed.count(queue=name)
        assert found == count, f"{found} failed jobs on {name!r}, not {count}"

    await eventually(agree, 0 if harness.capabilities.exact_size else harness.patience)


@rule("FAIL-1", "FAIL-6")
async def a_stores_own_failed_jobs_are_counted_and_go_back_whole(harness: Harness) -> None:
    """By queue: with their ids and arguments, fresh counters, and no other queue's; as often as they fail."""
    queue, keeps = await _own(harness)
    if not keeps:
        return
    others = await fail_jobs(harness, queue, 2, name="another")
    ids = await fail_jobs(harness, queue, 6)
    await _expect_failed(harness, queue, 6)
    await _expect_failed(harness, queue, 2, "another")
    told: list[Redriven] = []

    assert await queue.failed.retry_all(queue="default", dry_run=True) == 6
    assert await queue.failed.retry_all(queue="default", limit=2, watch=told.append) == 2
    assert await queue.failed.retry_all(queue="default", rate=1000, watch=told.append) == 4
    assert await queue.failed.retry_all(queue="default") == 0

    assert [(one.id, one.fate) for one in told] == [(id, Fate.PUT_BACK) for id in ids]
    back = await harness.take_many(queue, 6)
    assert {(one.id, one.attempt, one.args["text"]) for one in back} == {
        (id, 1, str(number)) for number, id in enumerate(ids)
    }
    await harness.expect_nothing(queue)
    await _expect_failed(harness, queue, 0)
    await queue.fail(back[0])
    assert await queue.failed.retry_all(queue="default") == 1
    assert (await harness.take(queue)).id == back[0].id
    await _expect_failed(harness, queue, len(others), "another")


@rule("FAIL-6", "SIGN-2")
async def a_stores_own_failed_jobs_are_proved_before_they_go_back(harness: Harness) -> None:
    """What can't be verified is told of and stays where it is, behind nobody and in nobody's way."""
    sealed = await harness.queue(own_failed=True, keyring=_KEYS)
    unsealed, keeps = await _own(harness)
    if not keeps:
        return
    bad = await fail_jobs(harness, unsealed, 2)
    good = await fail_jobs(harness, sealed, 3)
    told: list[Redriven] = []

    assert await sealed.failed.retry_all(queue="default", watch=told.append) == 3

    assert {one.id for one in told if one.fate is Fate.PUT_BACK} == set(good)
    assert {one.id for one in told if one.fate is Fate.UNREADABLE} == set(bad)
    assert {delivery.id for delivery in await harness.take_many(sealed, 3)} == set(good)
    await _expect_failed(harness, sealed, 2)
    assert await unsealed.failed.retry_all(queue="default") == 2


@rule("FAIL-2")
async def a_stores_own_failed_jobs_can_be_purged(harness: Harness) -> None:
    """By queue and age; what is younger stays, and can still go back."""
    queue, keeps = await _own(harness)
    if not keeps:
        return
    await fail_jobs(harness, queue, 1, name="another")
    await fail_jobs(harness, queue, 3)

    assert await queue.failed.purge(queue="default", older_than=timedelta(days=1)) == 0
    await _expect_failed(harness, queue, 3)
    if harness.clock is not None:
        await harness.pass_time(harness.lease)
        [young] = await fail_jobs(harness, queue, 1)
        assert await queue.failed.purge(queue="default", older_than=harness.lease / 2) == 3
        assert await queue.failed.retry_all(queue="default") == 1
        assert (await harness.take(queue)).id == young
    else:
        assert await queue.failed.purge(queue="default") == 3

    await _expect_failed(harness, queue, 0)
    await _expect_failed(harness, queue, 1, "another")
    await harness.expect_nothing(queue)


@rule("FAIL-6", "PUSH-11")
async def a_cancelled_redrive_strands_nothing(harness: Harness) -> None:
    """Each job is back on its queue, or still failed and there for the next run."""
    queue, keeps = await _own(harness)
    if not keeps:
        return
    ids = await fail_jobs(harness, queue, 8)

    for turns in range(0, 12, 3):
        redriving = asyncio.create_task(queue.failed.retry_all(queue="default", limit=2))
        for _ in range(turns):
            await asyncio.sleep(0)
        redriving.cancel()
        await asyncio.wait({redriving})
    back: list[str] = []

    async def all_back() -> None:
        await queue.failed.retry_all(queue="default")
        back.extend(delivery.id for delivery in await queue.pop_now(10))
        assert set(back) == set(ids)

    await eventually(all_back, harness.patience)


@rule("FAIL-1")
async def what_a_store_cannot_do_for_failed_jobs_it_says(harness: Harness) -> None:
    """A dead-letter queue is asked for by name and can't be looked at; without one nothing can be done."""
    queue, keeps = await _own(harness)
    if harness.keeps_failed:
        return
    failed = queue.failed
    listing: tuple[Callable[[], Awaitable[Any]], ...] = (
        failed.list,
        failed.groups,
        lambda: failed.get(job_id(1)),
        lambda: failed.retry(job_id(1)),
        lambda: failed.discard(job_id(1)),
        lambda: failed.count(queue="default", job="contract.note"),
        lambda: failed.retry_all(queue="default", job="contract.note"),
        lambda: failed.retry_all(queue="default", group="0" * 16),
    )
    for call in listing:
        with raises(FailedStoreMissing, "looking at failed jobs") as caught:
            await call()
        assert "failed=" in str(caught.error)
        assert harness.capabilities.system in str(caught.error)

    unnamed: tuple[Callable[[], Awaitable[Any]], ...] = (failed.count, failed.retry_all, failed.purge)
    for call in unnamed:
        with raises(InvalidQueueArgument if keeps else FailedStoreMissing, "failed jobs of no queue"):
            await call()
    with raises(FailedStoreMissing, "bounding failed jobs that are not kept"):
        await harness.queue(own_failed=True, keep_failed=10)


@rule("FAIL-1")
async def a_failure_that_nobody_keeps_is_logged(harness: Harness) -> None:
    """A store without any place for failed jobs removes them, and the log is what stays."""
    queue, keeps = await _own(harness)
    if keeps:
        return
    heard = _Heard()
    logger = logging.getLogger("aqueue.queue")
    logger.addHandler(heard)
    try:
        [id] = await fail_jobs(harness, queue, 1)
    finally:
        logger.removeHandler(heard)

    await harness.expect_counts(queue)
    assert any(id in line for line in heard.lines), "nothing tells which job was removed"


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.lines.append(record.getMessage())
