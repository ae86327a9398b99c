"""Failing into another store: the record first, the settlement after, and nothing lost in between."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from aqueue.errors import ConnectionFailed, MalformedJobSettled, OutcomeUnknown, Settlement, StaleDelivery
from aqueue.port import Answer, Backend, FailedRecord, KeepsFailed, NotDispatched, Reserved
from aqueue.testing.contract.failing import fail_jobs
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, job_id, store_raw
from aqueue.testing.eventually import eventually

_KEEPING = ("failed_page", "failed_get", "failed_count", "failed_retry", "failed_discard", "failed_purge")
_TRIM = 2.0
"""Seconds within which retention has certainly looked at the failed store once: it does so once a second."""


def _elsewhere() -> str:
    return f"memory://{uuid4().hex}"


@rule("FAIL-1")
async def failed_jobs_can_live_in_another_store(harness: Harness) -> None:
    """With `failed=` they are listed from there, and nothing of them is left here."""
    url = _elsewhere()
    queue, reader = await harness.queue(failed=url), await harness.queue(failed=url)
    ids = await fail_jobs(harness, queue, 3)

    assert [job.id for job in await reader.failed.list()] == ids
    assert {job.name for job in await reader.failed.list()} == {"contract.note"}

    await harness.expect_counts(queue)
    if harness.keeps_failed:
        assert (await queue.stats()).failed == 0
        assert await (await harness.queue()).failed.count() == 0


@rule("FAIL-2")
async def a_retry_from_another_store_puts_the_job_back(harness: Harness) -> None:
    """The same bytes, the same id, fresh counters; and the record is gone."""
    queue = await harness.queue(failed=_elsewhere())
    [id, other] = await fail_jobs(harness, queue, 2)
    record = await queue.failed.get(id)
    assert record is not None

    assert await queue.failed.retry(id)
    assert await queue.failed.retry(id) is False
    assert await queue.failed.discard(other)

    delivery = await harness.take(queue)
    assert (delivery.id, delivery.attempt, delivery.lost) == (id, 1, 0)
    assert delivery.reserved.payload == record.payload
    assert await queue.failed.count() == 0


@rule("FAIL-1")
async def a_failed_store_that_is_down_keeps_the_delivery_leased(harness: Harness) -> None:
    """No record, no settlement: the delivery still holds and can be failed later."""
    keeper = _Interrupted(harness.failed_backend(_elsewhere()))
    queue = await harness.queue(failed=keeper)
    await queue.push(Note("x"))
    delivery = await harness.take(queue)

    keeper.is_down = True
    with raises(ConnectionFailed, "failing without a record"):
        await queue.fail(delivery)
    await harness.expect_counts(queue, leased=1)
    keeper.is_down = False
    await queue.fail(delivery)

    await harness.expect_counts(queue)
    assert [job.id for job in await queue.failed.list()] == [delivery.id]


@rule("FAIL-1")
async def the_record_is_written_before_the_job_is_settled(harness: Harness) -> None:
    """A crash between the two leaves a job that is failed again, with one record in the end."""
    url = _elsewhere()
    keeper = _Interrupted(harness.failed_backend(url))
    holder, queue = await harness.queue(failed=keeper), await harness.queue(failed=url)
    id = await holder.push(Note("x"))
    keeper.crash_after_keeping = True
    with raises(Exception, "failing, although the process ends between record and settlement"):
        await holder.fail(await harness.take(holder), "first")
    assert await queue.failed.count() == 1

    await harness.lose(holder)
    await queue.fail(await harness.take(queue), "second")

    assert [(job.id, job.reason) for job in await queue.failed.list()] == [(id, "second")]
    await harness.expect_counts(queue)


@rule("FAIL-1", "FENCE-1")
async def a_stale_failure_leaves_no_record(harness: Harness) -> None:
    """A job that another worker holds has not failed, so the failed store must not say it did."""
    url = _elsewhere()
    slow, other = await harness.queue(failed=url), await harness.queue(failed=url)
    await slow.push(Note("x"))
    old = await harness.take(slow)
    await harness.lose(slow)
    new = await harness.take(other)
    if not harness.capabilities.fenced:
        return  # there nobody can tell that it is stale

    with raises(StaleDelivery, "failing a stale delivery"):
        await slow.fail(old)

    assert await other.failed.count() == 0, "the failed store lists a job that is still being worked on"
    await other.ack(new)


@rule("FAIL-1", "FENCE-2")
async def a_failure_told_twice_keeps_its_record(harness: Harness) -> None:
    """Where the answer to a failure is lost, failing once more leaves the record: nothing else is left."""
    forgetful = _Forgetful(await harness.backend())
    queue = await harness.queue(backend=forgetful, failed=_elsewhere())
    id = await queue.push(Note("x"))
    delivery = await harness.take(queue)

    forgetful.loses_answers = True
    with raises(OutcomeUnknown, "failing without an answer"):
        await queue.fail(delivery, "first")
    forgetful.loses_answers = False
    await harness.expect_stale(Settlement.FAIL, queue.fail(delivery, "again"), of=delivery)

    assert [(job.id, job.reason) for job in await queue.failed.list()] == [(id, "first")]
    await harness.expect_counts(queue)
    await queue.push(Note("y"))
    both = await harness.take(queue)
    await asyncio.gather(queue.fail(both), queue.fail(both), return_exceptions=True)
    assert await queue.failed.count() == 2, "two failures of one delivery at once left no record"


@rule("FAIL-1")
async def keeping_one_failure_twice_keeps_one_record(harness: Harness) -> None:
    """A keeper stores a record once per queue, job and delivery; a later delivery's takes its place."""
    backend = await harness.backend()
    keeper = backend if isinstance(backend, KeepsFailed) else harness.failed_backend(_elsewhere())
    assert isinstance(keeper, KeepsFailed)

    def record(delivery: str, *, queue: str = "here", number: int = 1) -> FailedRecord:
        return FailedRecord(
            id=job_id(number), name="n", queue=queue, payload=b"{}", attempts=1, lost=0,
            reason=f"r{delivery}", delivery=delivery,
        )  # fmt: skip

    await keeper.keep([record("a")])
    await keeper.keep([record("a"), record("a", queue="there"), record("a", number=2)])
    assert await keeper.failed_count(queue=None, job=None) == 3
    await keeper.keep([record("b")])

    assert await keeper.failed_count(queue=None, job=None) == 3
    page = await keeper.failed_page(queue="here", job=None, after=None, limit=10)
    assert sorted((kept.id, kept.reason) for kept in page) == [(job_id(1), "rb"), (job_id(2), "ra")]
    assert all(kept.failed_at > 0 for kept in page), "the store does not stamp the time of the failure"


@rule("MAL-1", "FAIL-1")
async def what_cant_be_read_goes_to_the_other_store_too(harness: Harness) -> None:
    """Quarantine takes the same way as any failure."""
    queue, backend = await harness.queue(failed=_elsewhere()), await harness.backend()
    [id] = await store_raw(backend, b"not an envelope")

    with raises(MalformedJobSettled, "popping unreadable bytes") as caught:
        await queue.pop(timeout=harness.patience)

    assert caught.error.job_ids == (id,)
    failed = await queue.failed.get(id)
    assert failed is not None
    assert (failed.reason, failed.payload, failed.args) == ("malformed", b"not an envelope", None)
    await harness.expect_counts(queue)


@rule("FAIL-2")
async def keep_failed_bounds_the_count(harness: Harness) -> None:
    """With a number, the oldest records make room, in bounded steps as more jobs fail."""
    queue = await harness.queue(keep_failed=3)
    newest: list[str] = []

    async def within_bound() -> bool:
        return await queue.failed.count() <= 3

    async def trimmed() -> bool:
        newest.extend(await fail_jobs(harness, queue, 1))
        with suppress(AssertionError):  # the trim runs by itself, and the next one is a second away
            await eventually(within_bound, 0.2)
        return await within_bound() and len(newest) > 5

    await eventually(trimmed, _TRIM + harness.patience)
    kept = [job.id for job in await queue.failed.list()]
    assert kept == newest[-len(kept) :], "it was not the oldest that made room"
    assert kept, "a bound of 3 removed everything"


@rule("FAIL-2")
async def keep_failed_bounds_the_age(harness: Harness) -> None:
    """With a timedelta, older records make room as more jobs fail; younger ones stay."""
    queue = await harness.queue(keep_failed=timedelta(seconds=harness.lease * 2))
    old = await fail_jobs(harness, queue, 3)
    await harness.pass_time(harness.lease * 2.5)
    young: list[str] = []

    async def trimmed() -> bool:
        young.extend(await fail_jobs(harness, queue, 1))
        await asyncio.sleep(0)  # the trim is a task of its own
        kept = {job.id for job in await queue.failed.list()}
        return not kept & set(old)

    await eventually(trimmed, _TRIM + harness.patience)
    if harness.clock is not None:
        assert [job.id for job in await queue.failed.list()] == young


class _Crash(Exception):
    """Stands for the end of a process."""


class _Interrupted:
    """A store of failed jobs that can be down, or can be the last thing its caller reached."""

    def __init__(self, backend: Backend) -> None:
        assert isinstance(backend, KeepsFailed)
        self.is_down = False
        self.crash_after_keeping = False
        self._backend: Any = backend
        for name in _KEEPING:  # isinstance() looks for a protocol's methods without asking __getattr__
            setattr(self, name, getattr(backend, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        if self.is_down:
            raise NotDispatched
        await self._backend.keep(batch)
        if self.crash_after_keeping:
            raise _Crash


class _Forgetful:
    """A store whose answer to one ack is lost on its way."""

    def __init__(self, backend: Backend) -> None:
        self.loses_answers = False
        self.capabilities = replace(backend.capabilities, immediate=False)  # as one that can lose them
        self._backend: Any = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        answers: Sequence[Answer] = await self._backend.ack(batch)
        if self.loses_answers:
            raise TimeoutError
        return answers
