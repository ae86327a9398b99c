"""Failing: what is kept of a job that was set aside, and how it gets back at most once."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from aqueue.errors import FailedStoreMissing, InvalidQueueArgument
from aqueue.failed import FailedJob
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Measure, Note, job_id

_LIMIT = 64 * 1024
PATIENT_LEASE = 30.0
"""Seconds: for many jobs held at once by a slow store, where no lease has to run out."""


async def fail_jobs(harness: Harness, queue: Queue, count: int, *, name: str = "default") -> list[str]:
    """Push jobs and set each aside in turn; return their ids, the first to fail first."""
    await queue.push_many((Note(str(number)) for number in range(count)), queue=name)
    failed = []
    for delivery in await harness.take_many(queue, count, name):
        await queue.fail(delivery)
        failed.append(delivery.id)
    return failed


@rule("FAIL-1")
async def a_failed_job_is_kept_whole(harness: Harness) -> None:
    """Out of the queue and into the failed store, with all that is known of it."""
    holder, queue = await harness.queue(), await harness.queue()
    id = await holder.push(Note("hello"), queue="mail")
    await harness.take(holder, "mail")
    await harness.lose(holder)
    delivery = await harness.take(queue, "mail")

    await queue.fail(delivery, "no such user", error=_raised(ValueError("bad address")), worker="host-7")

    await harness.expect_counts(queue, "mail")
    failed = await queue.failed.get(id)
    assert failed is not None
    assert (failed.id, failed.name, failed.queue, failed.args) == (
        id,
        "contract.note",
        "mail",
        {"text": "hello"},
    )
    assert (failed.attempts, failed.lost) == (delivery.attempt, delivery.lost)
    assert (failed.reason, failed.worker) == ("no such user", "host-7")
    assert (failed.error_type, failed.error) == ("ValueError", "bad address")
    assert failed.traceback.startswith("Traceback")
    assert "_throw" in failed.traceback, "the traceback does not show where it was raised"
    assert failed.payload == delivery.reserved.payload
    assert failed.pushed_at == delivery.pushed_at


def _raised(error: Exception) -> Exception:
    with raises(Exception, "raising") as caught:
        _throw(error)
    return caught.error


def _throw(error: Exception) -> None:
    raise error


@rule("FAIL-1")
async def a_failure_is_stamped_with_the_time(harness: Harness) -> None:
    """Aware times: pushed before failed, failed about now."""
    queue = await harness.queue()
    before = datetime.fromtimestamp(harness.clock(), UTC) if harness.clock else datetime.now(UTC)
    [id] = await fail_jobs(harness, queue, 1)

    failed = await queue.failed.get(id)

    assert failed is not None
    assert failed.pushed_at is not None
    slack = timedelta(seconds=harness.patience + 5)  # the store's clock need not be ours
    assert before - slack <= failed.failed_at <= before + slack
    assert failed.pushed_at <= failed.failed_at + slack


@rule("FAIL-1")
async def failing_without_words_is_enough(harness: Harness) -> None:
    """No reason, no error, no worker: the record says `error` and leaves the rest empty."""
    queue = await harness.queue()
    [id] = await fail_jobs(harness, queue, 1)

    failed = await queue.failed.get(id)

    assert failed is not None
    texts = (failed.reason, failed.error_type, failed.error, failed.traceback, failed.worker)
    assert texts == ("error", "", "", "", "")
    assert (failed.attempts, failed.lost) == (1, 0)


@rule("FAIL-1")
async def a_failed_job_outlives_its_connection(harness: Harness) -> None:
    """It is in the store when `fail` returns, for every connection to see."""
    queue, other = await harness.queue(), await harness.queue()
    [id] = await fail_jobs(harness, queue, 1)
    await queue.aclose()

    failed = await other.failed.get(id)

    assert failed is not None
    assert failed.args == {"text": "0"}
    await harness.expect_nothing(other)


@rule("FAIL-1", "PUSH-10")
async def failing_again_replaces_the_earlier_failure(harness: Harness) -> None:
    """One job has one record, that of its last failure, also where its id was pushed anew meanwhile."""
    queue = await harness.queue()
    if not harness.capabilities.idempotent_push:
        return  # no id can be pushed a second time
    id = job_id(1)
    for reason in ("first", "second"):
        await queue.push(Note(reason), id=id)
        await queue.fail(await harness.take(queue), reason)

    failed = await queue.failed.list()
    assert [(job.id, job.reason) for job in failed] == [(id, "second")]


@rule("FAIL-1")
async def a_store_without_failed_jobs_says_so(harness: Harness) -> None:
    """A store that keeps none itself, and was given no other, refuses to list what it doesn't have."""
    backend = await harness.backend()
    if harness.keeps_failed:
        assert await (await harness.queue(backend=backend)).failed.count() == 0
        return
    queue = Queue(backend)
    await queue.open()
    with raises(FailedStoreMissing, "listing failed jobs where none are kept") as caught:
        await queue.failed.list()
    assert harness.capabilities.system in str(caught.error)
    await queue.aclose()


@rule("FAIL-2")
async def a_retry_puts_the_job_back_fresh(harness: Harness) -> None:
    """Its id and arguments stay, its counters start anew, and the record is gone."""
    holder, queue = await harness.queue(), await harness.queue()
    id = await holder.push(Note("hello"), queue="mail", max_attempts=4)
    await harness.take(holder, "mail")
    await harness.lose(holder)
    await queue.release(await harness.take(queue, "mail"))
    await queue.fail(await harness.take(queue, "mail"))

    assert await queue.failed.retry(id)

    assert await queue.failed.get(id) is None
    assert await queue.failed.count() == 0
    await harness.expect_counts(queue, "mail", ready=1)
    delivery = await harness.take(queue, "mail")
    assert (delivery.id, delivery.job(Note)) == (id, Note("hello"))
    assert (delivery.attempt, delivery.lost, delivery.max_attempts) == (1, 0, 4)


@rule("FAIL-2")
async def two_retries_put_the_job_back_once(harness: Harness) -> None:
    """Concurrent retries, on one connection and on two: one answers True, and one job waits."""
    queue, other = await harness.queue(), await harness.queue()
    [id] = await fail_jobs(harness, queue, 1)

    answers = await asyncio.gather(*(one.failed.retry(id) for one in [queue, other] * 4))

    if harness.keeps_failed:
        assert answers.count(True) == 1, f"{answers.count(True)} of {len(answers)} retries put it back"
    assert await queue.failed.count() == 0
    await harness.take(queue)
    await harness.expect_nothing(queue)


@rule("FAIL-2")
async def retrying_or_discarding_the_unknown_does_nothing(harness: Harness) -> None:
    """An id that is not there, or not there any more, is answered False."""
    queue = await harness.queue()
    [id] = await fail_jobs(harness, queue, 1)

    assert await queue.failed.discard(id) is True
    for gone in (id, job_id(7), "no id at all", ""):
        assert await queue.failed.get(gone) is None
        assert await queue.failed.retry(gone) is False
        assert await queue.failed.discard(gone) is False

    assert await queue.failed.count() == 0
    await harness.expect_counts(queue)


@rule("FAIL-2")
async def a_discard_and_a_retry_at_once_have_one_winner(harness: Harness) -> None:
    """Either the job is back or it is gone; never both, and never neither."""
    queue, other = await harness.queue(), await harness.queue()
    ids = await fail_jobs(harness, queue, 6)
    if not harness.keeps_failed:
        return  # two stores can't promise more than that nothing is lost

    for id in ids:
        put_back, discarded = await asyncio.gather(queue.failed.retry(id), other.failed.discard(id))
        assert put_back is not discarded
        assert len(await queue.pop_now(2)) == (1 if put_back else 0)

    assert await queue.failed.count() == 0


@rule("FAIL-2")
async def retry_all_puts_back_what_was_chosen(harness: Harness) -> None:
    """By queue, by job, or all of them; it tells how many."""
    queue = await harness.queue()
    await fail_jobs(harness, queue, 3)
    await fail_jobs(harness, queue, 2, name="another")
    await queue.push(Measure(1.5), queue="another")
    await queue.fail(await harness.take(queue, "another"))

    assert await queue.failed.retry_all(queue="another", job="contract.measure") == 1
    assert await queue.failed.retry_all(queue="default") == 3
    await harness.expect_counts(queue, ready=3)
    await harness.expect_counts(queue, "another", ready=1)
    assert await queue.failed.retry_all(job="contract.unheard-of") == 0
    assert await queue.failed.retry_all() == 2

    await harness.expect_counts(queue, "another", ready=3)
    assert await queue.failed.count() == 0


@rule("FAIL-2")
async def failed_jobs_are_listed_page_by_page(harness: Harness) -> None:
    """Oldest first, each once, whatever the page's size; filters hold on every page."""
    queue = await harness.queue()
    ids = [id for name in ("a", "b", "a") for id in await fail_jobs(harness, queue, 4, name=name)]

    for limit in (1, 5, 12, 100):
        assert await _listed(queue, limit) == ids
    assert await _listed(queue, 3, queue="a") == ids[:4] + ids[8:]
    assert await _listed(queue, 2, queue="b", job="contract.note") == ids[4:8]
    assert await _listed(queue, 5, job="contract.unheard-of") == []
    assert await queue.failed.list(after=ids[-1]) == []
    assert await queue.failed.count(queue="a") == 8
    assert await queue.failed.count(queue="b", job="contract.note") == 4
    assert await queue.failed.count(job="contract.unheard-of") == 0


async def _listed(queue: Queue, limit: int, /, **filters: Any) -> list[str]:
    found: list[str] = []
    page: Sequence[FailedJob] = await queue.failed.list(limit=limit, **filters)
    while page:
        assert len(page) <= limit
        found += [job.id for job in page]
        page = await queue.failed.list(limit=limit, after=page[-1].id, **filters)
    return found


@rule("FAIL-2")
async def a_listing_goes_on_while_its_jobs_are_retried(harness: Harness) -> None:
    """Taking a page's jobs away does not make the next page skip or repeat any."""
    queue = await harness.queue()
    ids = await fail_jobs(harness, queue, 10)
    seen: list[str] = []

    page = await queue.failed.list(limit=3)
    while page:
        for job in page:
            seen.append(job.id)
            assert await queue.failed.retry(job.id)
        page = await queue.failed.list(limit=3, after=page[-1].id)

    assert seen == ids
    await harness.expect_counts(queue, ready=10)


@rule("FAIL-2")
async def a_page_after_the_unknown_is_refused(harness: Harness) -> None:
    """Rather than starting from the beginning in silence; a page has at least one place."""
    queue = await harness.queue()
    await fail_jobs(harness, queue, 2)

    bad: tuple[dict[str, Any], ...] = ({"after": job_id(77)}, {"limit": 0}, {"limit": -1}, {"limit": 1.5})
    for options in bad:
        with raises(InvalidQueueArgument, f"list({options})"):
            await queue.failed.list(**options)


@rule("FAIL-2")
async def purge_removes_what_is_older(harness: Harness) -> None:
    """Seconds or a timedelta; what is younger stays, and it tells how many went."""
    queue = await harness.queue()
    unit = harness.lease
    await fail_jobs(harness, queue, 3)
    await harness.pass_time(unit)
    young = await fail_jobs(harness, queue, 2)

    assert await queue.failed.purge(older_than=timedelta(days=1)) == 0
    if harness.clock is not None:
        assert await queue.failed.purge(older_than=unit / 2) == 3
        assert [job.id for job in await queue.failed.list()] == young
    assert await queue.failed.purge() == (2 if harness.clock is not None else 5)
    assert await queue.failed.count() == 0
    assert await queue.failed.purge() == 0


@rule("FAIL-2")
async def purge_is_complete_beyond_one_batch(harness: Harness) -> None:
    """Bounded steps in the store, all of it for the caller; a bad age removes nothing."""
    queue = await harness.queue(lease=max(harness.lease, PATIENT_LEASE))
    ids = await queue.push_many(Note("x") for _ in range(450))
    deliveries = await harness.take_many(queue, len(ids))
    await asyncio.gather(*(queue.fail(delivery) for delivery in deliveries))

    ages: tuple[Any, ...] = (-1, float("nan"), "1", None)
    for age in ages:
        with raises(InvalidQueueArgument, f"purge(older_than={age!r})"):
            await queue.failed.purge(older_than=age)

    assert await queue.failed.count() == len(ids)
    assert await queue.failed.purge() == len(ids)
    assert await queue.failed.count() == 0


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@rule("FAIL-3")
async def whatever_a_failure_says_is_kept(harness: Harness) -> None:
    """NULs, lone surrogates, megabytes, errors that can't be printed: cleaned and cut, never a loop."""
    queue = await harness.queue()
    texts = (
        "",
        "\x00",
        "a\x00b",
        "\ud800",
        "x\udfff\x00" * 100,
        "é" * 1_000_000,
        "🦆" * 300_000,
        "' \" \\ %s",
    )
    errors = [ValueError(text) for text in texts] + [_Unprintable()]
    await queue.push_many(Note("x") for _ in errors)

    for delivery, error in zip(await harness.take_many(queue, len(errors)), errors, strict=True):
        reason = error.args[0] if error.args else "unprintable"
        await queue.fail(delivery, reason, error=_raised(error), worker=reason)

    failed = await queue.failed.list()
    assert len(failed) == len(errors)
    for job in failed:
        for text in (job.reason, job.error_type, job.error, job.traceback, job.worker):
            assert "\x00" not in text
            assert len(text.encode()) <= _LIMIT
    assert any("ééé" in job.error for job in failed), "a long text was dropped, not cut"
    assert all(job.traceback for job in failed)
    await harness.expect_counts(queue)
