"""Stored bytes that nobody can read: set aside whole, by the same fenced step, and in nobody's way."""

import asyncio
from typing import Any

import msgspec

from aqueue.delivery import Delivery
from aqueue.errors import JobReconstructionError, MalformedJobSettled
from aqueue.port import FailedRecord, Failing, Reserved, Verdict
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id, store_raw


def _changed(number: int, **fields: Any) -> bytes:
    """Return a good envelope with some fields replaced, or dropped where None stands for them."""
    good = msgspec.json.decode(envelope(job_id(number)))
    changed = {**good, **fields}
    return msgspec.json.encode({name: value for name, value in changed.items() if value is not ...})


def _unreadable() -> list[bytes]:
    """Return payloads that break in one way each; the first is stored under `job_id(1)`, and so on."""
    return [
        b"", b"{", b"null", b"[]", b'"text"', b"7", b"\x00", b"\xff\xfe\xfd", b"not json at all", b'{"v":1}',
        _changed(11, v="1"), _changed(12, v=0), _changed(13, v=None), _changed(14, id=7),
        _changed(15, id="short"),
        _changed(16, id=job_id(999)), _changed(17, name=""), _changed(18, name=None), _changed(19, name=...),
        _changed(20, args=[1, 2]), _changed(21, args=None), _changed(22, args=...), _changed(23, args="{}"),
        _changed(24, pushed_at="yesterday"), _changed(25, pushed_at=...), _changed(26, max_attempts=-1),
        _changed(27, max_attempts=2**40), _changed(28, max_attempts="3"), _changed(29, metadata=[]),
        _changed(30, metadata={"traceparent": 7}), _changed(31, metadata=7),
        envelope(job_id(32), args=b'{"text":"\xff"}'), envelope(job_id(33))[:-1], envelope(job_id(34)) + b"}",
        _changed(35, pushed_at=1e300), _changed(36, pushed_at=-1e18), b"[" * 100_000, b"aq1.key.damaged",
    ]  # fmt: skip


async def _set_aside(harness: Harness, queue: Queue, *names: str) -> MalformedJobSettled:
    with raises(MalformedJobSettled, "popping unreadable bytes") as caught:
        await queue.pop_many(1_000, timeout=harness.patience, queues=names or ("default",))
    return caught.error


@rule("MAL-1")
async def every_unreadable_job_is_set_aside_with_its_bytes(harness: Harness) -> None:
    """Bad JSON, wrong shapes, a wrong id, numbers out of range: out of the queue and kept raw."""
    queue, backend = await harness.queue(), await harness.backend()
    payloads = _unreadable()
    ids = await store_raw(backend, *payloads)
    settled: list[str] = []

    while len(settled) < len(ids):
        error = await _set_aside(harness, queue)
        assert set(error.reasons) == {"malformed"}
        assert error.queue == "default"
        settled += error.job_ids

    assert sorted(settled) == sorted(ids)
    await harness.expect_counts(queue)
    failed = {job.id: job for job in await queue.failed.list()}
    assert set(failed) == set(ids), "not everything that left the queue is in the failed store"
    for id, payload in zip(ids, payloads, strict=True):
        job = failed[id]
        assert (job.payload, job.reason, job.queue) == (payload, "malformed", "default")
        assert (job.attempts, job.lost) == (0, 0)


@rule("MAL-1", "POP-4")
async def good_jobs_of_the_same_batch_come_next(harness: Harness) -> None:
    """Whatever was reserved beside the unreadable is there at once, no attempt counted, in its order."""
    queue, backend = await harness.queue(), await harness.backend()
    good = [await queue.push(Note(str(number))) for number in range(2)]
    await store_raw(backend, b"garbage", first=50)
    good += [await queue.push(Note(str(number))) for number in range(2)]
    await store_raw(backend, b"more garbage", first=60)
    taken: list[Delivery] = []
    settled: list[str] = []

    async with harness.promptly():
        while len(taken) < 4 or len(settled) < 2:
            try:
                taken += await queue.pop_many(10, timeout=harness.patience)
            except MalformedJobSettled as error:
                settled += error.job_ids

    assert sorted(settled) == [job_id(50), job_id(60)]
    harness.expect_order(taken, good)
    for delivery in taken:
        harness.expect_attempt(delivery, 1, given_back=None)


@rule("MAL-1")
async def the_other_queues_of_a_sweep_lose_nothing(harness: Harness) -> None:
    """An unreadable job on one queue costs a neighbour's job neither its place nor an attempt."""
    queue, backend = await harness.queue(), await harness.backend()
    good = await queue.push(Note("good"), queue="good")
    await store_raw(backend, b"garbage", queue="bad")

    taken: list[Delivery] = []
    blamed: set[str] = set()
    async with harness.promptly():
        while not taken or await queue.failed.count() == 0:
            try:
                taken += await queue.pop_many(5, timeout=harness.patience, queues=["good", "bad"])
            except MalformedJobSettled as error:
                blamed.add(error.queue)

    assert blamed == {"bad"}
    assert [delivery.id for delivery in taken] == [good]
    harness.expect_attempt(taken[0], 1, given_back=None)
    await harness.expect_counts(queue, "bad")


@rule("MAL-1", "FAIL-2")
async def what_was_set_aside_can_be_seen_but_not_retried(harness: Harness) -> None:
    """A retry verifies first: it refuses, and the record stays. Discarding is still possible."""
    queue, backend = await harness.queue(), await harness.backend()
    good_bytes_of_another = envelope(job_id(99))
    ids = await store_raw(backend, b"garbage", good_bytes_of_another)
    while await queue.failed.count() < 2:
        await _set_aside(harness, queue)

    for id in ids:
        with raises(JobReconstructionError, "putting an unreadable job back") as caught:
            await queue.failed.retry(id)
        assert id in str(caught.error)
        assert "garbage" not in str(caught.error), "the message quotes the payload"

    assert await queue.failed.retry_all() == 0
    assert await queue.failed.count() == 2
    await harness.expect_counts(queue)
    assert await queue.failed.discard(ids[0])
    assert await queue.failed.count() == 1


@rule("MAL-1", "FENCE-1")
async def a_lost_fence_removes_nothing(harness: Harness) -> None:
    """The step that sets bytes aside is fenced: whoever holds the job by then decides."""
    holder, other = await harness.queue(), await harness.queue()
    old_backend, backend = await harness.backend(), await harness.backend()
    if not harness.capabilities.fenced:
        return  # the step is as unfenced as the store
    await store_raw(backend, b"garbage")
    [old] = await old_backend.pop(["default"], 1)
    await harness.lose(holder)
    [new] = await backend.pop(["default"], 1)

    record = _record_of(old)
    assert list(await old_backend.fail([Failing(old, record)])) == [Verdict.STALE]

    assert await other.failed.count() == 0
    await harness.expect_counts(other, leased=1)
    assert list(await backend.fail([Failing(new, _record_of(new))])) == [Verdict.SETTLED]
    await harness.expect_counts(other)


def _record_of(reserved: Reserved) -> FailedRecord:
    return FailedRecord(
        id=reserved.id, name="", queue=reserved.queue, payload=reserved.payload, attempts=0, lost=0,
        reason="malformed", delivery=str(reserved.receipt),
    )  # fmt: skip


@rule("MAL-1", "LEASE-2")
async def an_unreadable_job_whose_holder_died_is_set_aside_too(harness: Harness) -> None:
    """It comes back like any other, and then goes to the failed store with its counters."""
    queue, backend = await harness.queue(), await harness.backend()
    dead = await harness.backend()
    await store_raw(backend, b"garbage")
    [reserved] = await dead.pop(["default"], 1)
    await harness.lose(dead)

    settled = await _set_aside(harness, queue)

    failed = await queue.failed.get(reserved.id)
    assert settled.job_ids == (reserved.id,)
    assert failed is not None
    assert failed.lost == (1 if harness.capabilities.counts_lost else 0)


@rule("MAL-1", "POP-6")
async def a_pop_cancelled_while_it_sets_aside_strands_nothing(harness: Harness) -> None:
    """Whenever it is cancelled, each job is in the queue or set aside right after, none held by nobody."""
    queue, backend = await harness.queue(), await harness.backend()
    for step in range(15):
        name = f"step-{step}"
        await store_raw(backend, b"garbage", envelope(job_id(2)), queue=name)
        popping = asyncio.create_task(queue.pop_many(2, timeout=harness.patience, queues=[name]))
        for _ in range(step):
            await asyncio.sleep(0)
        popping.cancel()
        await asyncio.gather(popping, return_exceptions=True)

        good: list[str] = []
        async with harness.promptly():
            while not good or await queue.failed.count(queue=name) == 0:
                try:
                    good += [d.id for d in await queue.pop_many(2, timeout=0.05, queues=[name])]
                except MalformedJobSettled:
                    continue
        assert good == [job_id(2)]


@rule("FAIL-3", "MAL-1")
async def an_odd_wire_name_never_loops(harness: Harness) -> None:
    """A job whose name holds a NUL or is very long is failed or set aside, and the queue is empty after."""
    queue, backend = await harness.queue(), await harness.backend()
    names = ("a\x00b", "n" * 100_000, "ünïcødé\n")
    await store_raw(backend, *(envelope(job_id(n), name=name) for n, name in enumerate(names, 1)))

    async with harness.promptly():
        while await queue.failed.count() < len(names):
            try:
                for delivery in await queue.pop_many(5, timeout=harness.patience):
                    await queue.fail(delivery, "odd")
            except MalformedJobSettled:
                continue

    await harness.expect_counts(queue)
    assert len(await queue.failed.list()) == len(names)
