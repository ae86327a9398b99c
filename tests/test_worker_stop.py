"""How a worker stops: within its grace, with nothing lost and nothing counted (STOP-1, STOP-2)."""

import asyncio
import threading

import anyio
import pytest
from support import fixtures
from support.busy import Busy, Note
from support.fixtures import Place
from support.stores import Wrapper
from support.working import STOPPED_WITHIN, all_settled, counts, ended, logged, running

from aqueue import Handlers, InvalidQueueArgument, JobEvent, JobReleased, JobSucceeded, Worker
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place


@pytest.mark.rule("STOP-1")
async def test_a_stop_wakes_a_paced_wait_at_once(any_place: Place) -> None:
    queue = await any_place.queue()
    worker = Worker(queue, Busy().handlers, poll_timeout=60, grace=60)

    async with running(worker) as task:
        await eventually(lambda: worker.health().running)
        await asyncio.sleep(0.05)  # into the pause; whether it got there changes nothing but the test's worth
        worker.stop()
        await ended(task)
    assert not worker.health().running


@pytest.mark.rule("STOP-1")
async def test_a_stop_before_the_first_claim_is_a_stop_too(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers)
    await queue.push(Note())

    task = asyncio.create_task(worker.run())
    while not worker.health().running:
        await asyncio.sleep(0)
    worker.stop()
    busy.gate.set()
    await ended(task)

    ready, delayed, leased, failed = await counts(queue)
    assert (delayed, leased, failed) == (0, 0, 0)
    assert ready + len(busy.ended) == 1


@pytest.mark.rule("STOP-1")
async def test_what_runs_ends_within_the_grace_and_nothing_new_is_taken(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers, concurrency=2, grace=30)
    await queue.push_many([Note(), Note(), Note()])

    async with running(worker) as task:
        await eventually(lambda: busy.running == 2)
        worker.stop()
        await queue.push(Note())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        busy.gate.set()
        await ended(task)

    assert busy.ended == ["returned", "returned"]
    assert await counts(queue) == (2, 0, 0, 0)


@pytest.mark.rule("STOP-1", "ATT-1")
async def test_what_outlives_the_grace_is_cancelled_and_given_back_uncounted(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers, concurrency=2, grace=0.1, max_attempts=3, timeout=50)
    events: list[JobReleased] = []
    worker.listen(JobReleased, events.append)
    await queue.push_many([Note(), Note(), Note()])

    async with running(worker) as task:
        await eventually(lambda: busy.running == 2)
        worker.stop()
        await ended(task, within=0.1 + STOPPED_WITHIN)

    assert busy.ended == ["cancelled", "cancelled"]
    assert [(event.counted, event.attempt) for event in events] == [(False, 1)] * 2
    assert await counts(queue) == (3, 0, 0, 0)
    again = await queue.pop_now(3)
    assert [(delivery.attempt, delivery.lost) for delivery in again] == [(1, 0)] * 3


@pytest.mark.rule("STOP-1", "ATT-1")
async def test_five_deploys_do_not_eat_the_retry_budget(place: Place) -> None:
    """Case O-03."""
    queue, busy = await place.queue(), Busy()
    await queue.push(Note(), max_attempts=3)

    for interruption in range(1, 6):
        worker = Worker(queue, busy.handlers, grace=0, max_lost=2)
        async with running(worker) as task:
            await eventually(lambda: busy.running == 1)
            worker.stop()
            await ended(task)
        assert busy.ended == ["cancelled"] * interruption

    busy.gate.set()
    async with running(Worker(queue, busy.handlers)):
        await all_settled(queue)
    assert busy.ended[5:] == ["returned"]
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("STOP-1", "WORK-10")
async def test_a_stop_is_never_booked_as_a_timeout(memory: Place) -> None:
    queue, handlers = await memory.queue(), Handlers()
    started = asyncio.Event()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise TimeoutError("looks like one") from None

    await queue.push(Note())
    worker = Worker(queue, handlers, grace=0, timeout=50)
    async with running(worker) as task:
        await started.wait()
        worker.stop()
        await ended(task)
    assert await counts(queue) == (1, 0, 0, 0)


@pytest.mark.rule("STOP-1")
async def test_a_handler_that_answers_its_cancellation_by_returning_has_done_its_job(
    any_place: Place,
) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    started = asyncio.Event()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        started.set()
        with anyio.CancelScope():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return

    await queue.push(Note())
    worker = Worker(queue, handlers, grace=0)
    async with running(worker) as task:
        await started.wait()
        worker.stop()
        await ended(task)
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("STOP-1")
async def test_a_handler_that_ignores_its_cancellation_is_left_behind_named_and_its_job_given_back(
    any_place: Place,
) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    started, free = asyncio.Event(), asyncio.Event()
    ignored = 0

    @handlers.on(Note)
    async def stubborn(_: Note) -> None:
        nonlocal ignored
        started.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                ignored += 1

    job_id = await queue.push(Note())
    worker = Worker(queue, handlers, grace=0.2)
    with logged() as log:
        async with running(worker) as task:
            await started.wait()
            worker.stop()
            await ended(task, within=0.2 + STOPPED_WITHIN)

    assert ignored >= 1
    assert any(job_id in message for message in log.messages(level=40))
    (again,) = await queue.pop_now(1)
    assert (again.id, again.attempt, again.lost) == (job_id, 1, 0)

    others = asyncio.all_tasks()
    free.set()
    await eventually(lambda: not (others - {asyncio.current_task()}) & asyncio.all_tasks())
    await queue.ack(again)  # what the stubborn one did in the end settled nothing of the next delivery


@pytest.mark.rule("STOP-1", "WORK-11")
async def test_a_stop_does_not_wait_for_a_thread_that_nothing_can_end(any_place: Place) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    started, free = threading.Event(), threading.Event()

    @handlers.on(Note)
    def handle(_: Note) -> None:
        started.set()
        free.wait(60)

    await queue.push(Note())
    worker = Worker(queue, handlers, grace=0.1)
    try:
        async with running(worker) as task:
            await eventually(started.is_set)
            worker.stop()
            await ended(task, within=0.1 + STOPPED_WITHIN)
        assert await counts(queue) == (1, 0, 0, 0)
    finally:
        free.set()


@pytest.mark.rule("STOP-1", "CALL-1")
@pytest.mark.parametrize("verb", ["pop", "wait", "ack", "release", "extend"])
async def test_a_store_that_hangs_does_not_keep_a_worker_from_stopping(memory: Place, verb: str) -> None:
    queue, store = await memory.broken(lease=0.3 if verb == "extend" else 60)
    busy = Busy()
    worker = Worker(queue, busy.handlers, grace=0.1)
    if verb in {"ack", "release", "extend"}:
        await queue.push(Note())
    if verb == "ack":
        busy.gate.set()
    store.hang(verb)

    async with running(worker) as task:
        ready = eventually(lambda: busy.running == 1) if verb == "release" else reached(store, verb)
        await ready
        worker.stop()
        await ended(task, within=0.1 + STOPPED_WITHIN)
    store.recover()


@pytest.mark.rule("STOP-1")
async def test_a_store_that_fails_during_a_stop_does_not_keep_a_worker_either(memory: Place) -> None:
    queue, store = await memory.broken()
    busy = Busy()
    worker = Worker(queue, busy.handlers, grace=0.1)
    await queue.push(Note())

    async with running(worker) as task:
        await eventually(lambda: busy.running == 1)
        store.break_down("pop", "release", "ack", "wait")
        worker.stop()
        await ended(task, within=0.1 + STOPPED_WITHIN)


@pytest.mark.rule("STOP-1")
async def test_a_handler_may_stop_its_own_worker(any_place: Place) -> None:
    queue, handlers = await any_place.queue(), Handlers()
    await queue.push_many([Note("a"), Note("b")])

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        worker.stop()

    worker = Worker(queue, handlers, concurrency=1)
    async with running(worker) as task:
        await ended(task)
    assert await counts(queue) == (1, 0, 0, 0)


@pytest.mark.rule("STOP-1")
async def test_a_listener_may_stop_its_worker_and_a_repeated_stop_changes_nothing(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    busy.gate.set()
    worker = Worker(queue, busy.handlers, concurrency=1)

    def stop(_: JobEvent) -> None:
        worker.stop()
        worker.stop()

    worker.listen(JobSucceeded, stop)
    worker.stop()
    await queue.push_many([Note(), Note()])
    async with running(worker) as task:
        await ended(task)
        worker.stop()
    assert await counts(queue) == (1, 0, 0, 0)


@pytest.mark.rule("STOP-1")
async def test_a_stop_at_once_cuts_a_grace_short(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    worker = Worker(queue, busy.handlers, grace=600)
    await queue.push(Note())

    async with running(worker) as task:
        await eventually(lambda: busy.running == 1)
        worker.stop()
        await asyncio.sleep(0)
        worker.stop(at_once=True)
        await ended(task)
    assert busy.ended == ["cancelled"]
    assert await counts(queue) == (1, 0, 0, 0)


async def test_a_worker_that_was_stopped_runs_again(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    busy.gate.set()
    worker = Worker(queue, busy.handlers)

    for round_number in range(1, 4):
        await queue.push(Note())
        async with running(worker) as task:
            await eventually(lambda number=round_number: len(busy.ended) == number)
            worker.stop()
            await ended(task)
    assert await counts(queue) == (0, 0, 0, 0)


async def test_one_worker_does_not_run_twice_at_a_time(memory: Place) -> None:
    queue = await memory.queue()
    worker = Worker(queue, Busy().handlers)

    async with running(worker) as task:
        with pytest.raises(InvalidQueueArgument, match="running"):
            await worker.run()
        assert worker.health().running
        assert not task.done()


@pytest.mark.rule("STOP-1")
async def test_a_stopped_worker_leaves_no_task_and_no_thread_behind(any_place: Place) -> None:
    queue, busy = await any_place.queue(), Busy()
    busy.gate.set()
    worker = Worker(queue, busy.handlers, concurrency=20)
    await queue.push_many([Note()] * 50)
    await queue.size()
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())

    async with running(worker) as task:
        await all_settled(queue)
        worker.stop()
        await ended(task)
    assert asyncio.all_tasks() <= tasks
    await eventually(lambda: set(threading.enumerate()) <= threads)


async def reached(store: Wrapper, verb: str) -> None:
    await eventually(lambda: store.calls[verb] > 0)
