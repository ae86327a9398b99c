"""A worker inside somebody else's program: it ends with its host, and touches nothing of it (STOP-2)."""

import asyncio
import signal
from collections.abc import AsyncIterator

import anyio
import pytest
from support import fixtures
from support.busy import Busy, Note
from support.fixtures import Place
from support.working import counts, ended, logged, running

from aqueue import Depends, Handlers, JobSucceeded, Worker
from aqueue.testing import eventually

any_place, memory = fixtures.any_place, fixtures.memory


@pytest.mark.rule("STOP-2")
async def test_cancelling_its_task_is_a_stop_without_grace_and_the_cancellation_goes_on(
    any_place: Place,
) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers, concurrency=3, grace=600)
    await queue.push_many([Note()] * 5)

    task = asyncio.create_task(worker.run())
    await eventually(lambda: busy.running == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)

    assert busy.ended == ["cancelled"] * 3
    assert await counts(queue) == (5, 0, 0, 0)
    assert all(delivery.attempt == 1 for delivery in await queue.pop_now(5))


@pytest.mark.rule("STOP-2")
async def test_a_worker_lives_in_its_hosts_task_group_and_leaves_with_it(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers, concurrency=3, grace=600)
    await queue.push_many([Note()] * 3)

    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await eventually(lambda: busy.running == 3)
        group.cancel_scope.cancel()

    assert group.cancel_scope.cancelled_caught or busy.ended == ["cancelled"] * 3
    assert await counts(queue) == (3, 0, 0, 0)
    assert not worker.health().running


@pytest.mark.rule("STOP-2")
async def test_a_host_that_fails_takes_its_worker_along_and_hears_its_own_error(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers)
    await queue.push(Note())

    async def host() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            await eventually(lambda: busy.running == 1)
            raise LookupError("the host's own trouble")

    with pytest.RaisesGroup(LookupError):
        await host()
    assert busy.ended == ["cancelled"]
    assert await counts(queue) == (1, 0, 0, 0)


@pytest.mark.rule("STOP-2")
async def test_a_host_that_cancels_again_and_again_still_gets_its_jobs_back(any_place: Place) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    started = asyncio.Event()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)

    await queue.push(Note())
    task = asyncio.create_task(Worker(queue, handlers).run())
    await started.wait()
    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await ended(task)

    async def given_back() -> bool:
        return await counts(queue) == (1, 0, 0, 0)

    await eventually(given_back)


@pytest.mark.rule("STOP-2")
@pytest.mark.parametrize("call", ["run_one", "run_all"])
async def test_cancelling_a_single_run_gives_its_jobs_back(any_place: Place, call: str) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers, concurrency=1)
    await queue.push(Note())

    task = asyncio.create_task(worker.run_one() if call == "run_one" else worker.run_all())
    await eventually(lambda: busy.running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert busy.ended == ["cancelled"]
    assert await counts(queue) == (1, 0, 0, 0)
    assert (await queue.pop_now(1))[0].attempt == 1


@pytest.mark.rule("STOP-2")
async def test_the_library_installs_no_signal_handlers(memory: Place) -> None:
    signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    before = [signal.getsignal(each) for each in signals]

    def hosts_own(*_: object) -> None: ...

    signal.signal(signal.SIGTERM, hosts_own)
    try:
        queue = await memory.queue()
        async with running(Worker(queue, Busy().handlers)):
            assert signal.getsignal(signal.SIGTERM) is hosts_own
        assert signal.getsignal(signal.SIGTERM) is hosts_own
    finally:
        signal.signal(signal.SIGTERM, before[0])
    assert [signal.getsignal(each) for each in signals] == before


@pytest.mark.rule("STOP-1", "WORK-9")
async def test_a_job_that_ends_in_the_very_moment_of_the_last_call_is_a_success_in_every_respect(
    any_place: Place,
) -> None:
    queue, handlers, gate = await any_place.queue(), Handlers(), asyncio.Event()
    log: list[str] = []

    async def transaction() -> AsyncIterator[None]:
        log.append("begun")
        try:
            yield
        except BaseException:
            log.append("rolled back")
            raise
        log.append("committed")

    @handlers.on(Note)
    async def handle(_: Note, __: None = Depends(transaction)) -> None:
        await gate.wait()

    worker = Worker(queue, handlers, grace=60)
    worker.listen(JobSucceeded, lambda _: log.append("told"))
    await queue.push(Note())
    with logged() as messages:
        async with running(worker) as task:
            await eventually(lambda: log == ["begun"])
            worker.stop()
            for _ in range(5):
                await asyncio.sleep(0)
            gate.set()
            worker.stop(at_once=True)
            await ended(task)
    assert log == ["begun", "told", "committed"]
    assert messages.messages() == []
    assert await counts(queue) == (0, 0, 0, 0)
