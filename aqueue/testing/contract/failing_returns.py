"""Going back: a failed job is put back once, however many ask for it, from one store and from two."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from aqueue.errors import ConnectionFailed
from aqueue.port import Backend, FailedRecord, KeepsNotes, Message, NotDispatched
from aqueue.queue import Queue
from aqueue.testing.contract.failing import fail_jobs
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.eventually import eventually

_CROWD = 200
_KEEPING = ("keep", "failed_page", "failed_get", "failed_count", "failed_retry", "failed_purge")


def _elsewhere() -> str:
    return f"memory://{uuid4().hex}"


@rule("FAIL-2")
async def two_hundred_retries_put_the_job_back_once(harness: Harness) -> None:
    """On several connections at once; one answers True, and one job waits."""
    queues = [await harness.queue() for _ in range(3)]
    [id] = await fail_jobs(harness, queues[0], 1)

    answers = await asyncio.gather(*(queues[n % 3].failed.retry(id) for n in range(_CROWD)))

    assert answers.count(True) == 1, f"{answers.count(True)} of {_CROWD} retries say that they put it back"
    assert await queues[0].failed.count() == 0
    await harness.take(queues[0])
    await harness.expect_nothing(queues[0])


@rule("FAIL-2")
async def retries_from_another_store_put_the_job_back_once(harness: Harness) -> None:
    """Even if a worker has run the job before the last of them comes to it, where a store keeps notes."""
    keeper = _Gathering(harness.failed_backend(_elsewhere()), _CROWD)
    queues = [await harness.queue(failed=keeper) for _ in range(3)]
    [id] = await fail_jobs(harness, queues[0], 1)
    ran: list[str] = []
    working = asyncio.create_task(_work(queues[0], ran))

    answers = await asyncio.gather(*(queues[n % 3].failed.retry(id) for n in range(_CROWD)))

    while not ran or await queues[0].size():
        async with harness.promptly():
            await asyncio.sleep(0.01)
    working.cancel()
    await asyncio.wait({working})
    assert answers.count(True) >= 1
    assert await queues[0].failed.count() == 0
    if harness.keeps_notes or keeper.keeps_notes:
        assert answers.count(True) == 1, f"{answers.count(True)} retries say that they put it back"
        assert ran == [id], f"the job ran {len(ran)} times"


async def _work(queue: Queue, ran: list[str]) -> None:
    """Run what comes, and remove it, as a worker would."""
    while True:
        for delivery in await queue.pop_now(10):
            ran.append(delivery.id)
            await queue.ack(delivery)
        await asyncio.sleep(0)


@rule("FAIL-2")
async def a_crash_between_two_stores_loses_no_job(harness: Harness) -> None:
    """The job is back before its record goes; putting it back again finishes what was begun."""
    url = _elsewhere()
    crashing = _Crashing(harness.failed_backend(url))
    first, second = await harness.queue(failed=crashing), await harness.queue(failed=url)
    [id] = await fail_jobs(harness, first, 1)

    with raises(_Crash, "retrying, although the process ends before the record is removed"):
        await first.failed.retry(id)
    assert await second.failed.count() == 1
    delivery = await harness.take(second)
    assert delivery.id == id
    await second.ack(delivery)
    await second.failed.retry(id)

    assert await second.failed.count() == 0
    if harness.keeps_notes:
        await harness.expect_nothing(second)


@rule("FAIL-2")
async def a_job_that_cannot_be_pushed_stays_failed(harness: Harness) -> None:
    """Its own store is away: the record stays, and the next retry works."""
    url = _elsewhere()
    away = _Away(await harness.backend())
    queue = await harness.queue(failed=url, backend=away)
    [id] = await fail_jobs(harness, queue, 1)

    away.is_away = True
    with raises(ConnectionFailed, "putting a job back into a store that is away"):
        await queue.failed.retry(id)
    away.is_away = False
    assert await queue.failed.count() == 1

    assert await queue.failed.retry(id)
    assert (await harness.take(queue)).id == id
    assert await queue.failed.count() == 0


@rule("FAIL-2")
async def the_same_job_can_fail_and_go_back_again(harness: Harness) -> None:
    """What is remembered of one failure says nothing about the next."""
    queue = await harness.queue(failed=_elsewhere())
    [id] = await fail_jobs(harness, queue, 1)

    for _ in range(3):
        assert await queue.failed.retry(id)
        await queue.fail(await harness.take(queue))

    assert [job.id for job in await queue.failed.list()] == [id]
    await harness.expect_counts(queue)


@rule("FAIL-2", "PUSH-11")
async def a_cancelled_retry_ends_whole(harness: Harness) -> None:
    """Cancelling whoever asked leaves the job in one place: failed as before, or waiting."""
    queue = await harness.queue(failed=_elsewhere())
    ids = await fail_jobs(harness, queue, 12)

    for turns, id in enumerate(ids):
        retrying = asyncio.create_task(queue.failed.retry(id))
        for _ in range(turns):
            await asyncio.sleep(0)
        retrying.cancel()
        with suppress(asyncio.CancelledError):
            await retrying

    back: set[str] = set()

    async def settled() -> None:
        back.update(delivery.id for delivery in await queue.pop_now(20))
        failed = {job.id for job in await queue.failed.list()}
        assert failed | back == set(ids)
        assert not failed & back

    await eventually(settled, harness.patience)


class _Gathering:
    """A store of failed jobs that shows a record only once so many have asked for it."""

    def __init__(self, backend: Backend, crowd: int) -> None:
        self.capabilities = replace(backend.capabilities, immediate=False)
        self.keeps_notes = isinstance(backend, KeepsNotes)
        self._backend: Any = backend
        self._missing = crowd
        self._all_asked = asyncio.Event()
        names = (*_KEEPING, "failed_discard", *(("read_notes", "write_notes") if self.keeps_notes else ()))
        for name in names:
            if name != "failed_get":
                setattr(self, name, getattr(backend, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def failed_get(self, id: str) -> FailedRecord | None:
        found: FailedRecord | None = await self._backend.failed_get(id)
        self._missing -= 1
        if self._missing <= 0:
            self._all_asked.set()
        await self._all_asked.wait()
        return found


class _Crash(Exception):
    """Stands for the end of a process."""


class _Crashing:
    """A store of failed jobs whose caller ends before it removes a record."""

    def __init__(self, backend: Backend) -> None:
        self._backend: Any = backend
        for name in _KEEPING:  # isinstance() looks for a protocol's methods without asking __getattr__
            setattr(self, name, getattr(backend, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def failed_discard(self, record: FailedRecord) -> bool:
        raise _Crash


class _Away:
    """A store that can't be pushed to while it is away."""

    def __init__(self, backend: Backend) -> None:
        self.is_away = False
        self.capabilities = replace(backend.capabilities, immediate=False)  # as one that can be away
        self._backend: Any = backend
        if isinstance(backend, KeepsNotes):
            for name in ("read_notes", "write_notes"):
                setattr(self, name, self._unless_away(getattr(backend, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def push(self, batch: Sequence[Message]) -> Any:
        return await self._unless_away(self._backend.push)(batch)

    def _unless_away(self, call: Any) -> Any:
        async def called(*args: Any) -> Any:
            if self.is_away:
                raise NotDispatched
            return await call(*args)

        return called
