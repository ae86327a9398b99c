"""Limits over a store's notes: starts in a time, jobs at once, a dependency left alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from aqueue.circuit import CircuitBreaker
from aqueue.contract.limits import Slots, state_of, take_slot
from aqueue.delivery import Delivery
from aqueue.errors import NotesMissing
from aqueue.handlers import Handlers
from aqueue.limits import ConcurrencyLimit, RateLimit, place_of
from aqueue.middleware import Bindable
from aqueue.notes import Change, Decision
from aqueue.notes import Note as NoteSays
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note
from aqueue.testing.eventually import eventually
from aqueue.worker import Worker


def _worker(queue: Queue, handle: Callable[[Note], Awaitable[None]], limit: Bindable) -> Worker:
    handlers = Handlers()
    handlers.on(Note, handle)
    return Worker(queue, handlers, concurrency=20, middleware=[limit], poll_timeout=0.05)


async def _refuses_limits(harness: Harness, limit: Bindable) -> None:
    """What can't be kept is refused when the worker is built, not when a job comes."""
    queue = await harness.queue()
    with raises(NotesMissing, "a limit on a store without notes") as caught:
        _worker(queue, _nothing, limit)
    assert harness.capabilities.system in str(caught.error), "the refusal does not name the backend"


async def _nothing(_: Note) -> None:
    """A handler for workers that are never run."""


@rule("LIMIT-1")
async def no_more_start_in_a_window_than_the_limit(harness: Harness) -> None:
    """Over two workers; the others are put off with no attempt counted, and all run in the end."""
    per = harness.lease
    limit = RateLimit(3, per=per, key="everything")
    if not harness.keeps_notes:
        await _refuses_limits(harness, limit)
        return
    one, other = await harness.queue(), await harness.queue()
    started: list[str] = []
    began = time.monotonic()
    passed = 0.0

    async def handle(note: Note) -> None:
        started.append(note.text)

    await one.push_many(Note(str(number)) for number in range(8))
    workers = [_worker(one, handle, limit), _worker(other, handle, limit)]
    await asyncio.gather(*(worker.run_all() for worker in workers))
    most = 3 * (2 + int((time.monotonic() - began) / per))
    assert 3 <= len(started) <= most, f"{len(started)} jobs started, not {most} at most"

    while len(started) < 8:
        await harness.pass_time(per / 4)
        passed += per / 4 if harness.clock is not None else 0.0
        await asyncio.gather(*(worker.run_all() for worker in workers))
        most = 3 * (1 + int((time.monotonic() - began + passed) / per + 1))
        assert len(started) <= most, f"{len(started)} jobs started, not {most} at most"
        assert passed + time.monotonic() - began < 20 * per + harness.patience, "the jobs never came to run"

    assert sorted(started) == [str(number) for number in range(8)]


@rule("LIMIT-1", "ATT-1")
async def a_job_that_comes_too_early_is_put_off_without_an_attempt(harness: Harness) -> None:
    """It is delayed, not leased, and still at its first attempt."""
    limit = RateLimit(1, per=harness.lease * 10)
    if not harness.keeps_notes:
        await _refuses_limits(harness, limit)
        return
    queue = await harness.queue()
    attempts: list[int] = []

    async def watch(delivery: Delivery, call_next: Callable[[Delivery], Awaitable[object]]) -> object:
        attempts.append(delivery.attempt)
        return await call_next(delivery)

    handlers = Handlers()
    handlers.on(Note, _nothing)
    worker = Worker(queue, handlers, middleware=[watch, limit])
    await queue.push_many(Note("x") for _ in range(3))

    await worker.run_all()

    assert attempts == [1, 1, 1]
    await harness.expect_counts(queue, delayed=2)


@rule("LIMIT-1")
async def each_key_has_its_own_limit(harness: Harness) -> None:
    """One tenant's rush puts off nobody else's jobs."""
    limit = RateLimit(1, per=harness.lease * 10, key=lambda delivery: str(delivery.args["text"]))
    if not harness.keeps_notes:
        await _refuses_limits(harness, limit)
        return
    queue = await harness.queue()
    started: list[str] = []

    async def handle(note: Note) -> None:
        started.append(note.text)

    await queue.push_many(Note(text) for text in ("a", "a", "a", "b", "c"))
    await _worker(queue, handle, limit).run_all()

    assert sorted(started) == ["a", "b", "c"]
    await harness.expect_counts(queue, delayed=2)


@rule("LIMIT-2")
async def no_more_run_at_once_than_the_limit(harness: Harness) -> None:
    """Over two workers; a slot that is given back is taken by the next, until all have run."""
    limit = ConcurrencyLimit(2, key="everything", lease=60)
    if not harness.keeps_notes:
        await _refuses_limits(harness, limit)
        return
    one, other = await harness.queue(), await harness.queue()
    running, most, done = 0, 0, 0
    go_on = asyncio.Event()

    async def handle(_: Note) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        done += 1

    await one.push_many(Note("x") for _ in range(6))
    workers = [_worker(one, handle, limit), _worker(other, handle, limit)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await eventually(lambda: running == 2, harness.patience)

        async def the_others_are_put_off() -> None:
            stats = await one.stats()
            assert stats.leased == 2, f"{stats}: two hold a slot and nobody else a lease"

        await eventually(the_others_are_put_off, harness.patience)
        go_on.set()
        while done < 6:
            async with harness.promptly():
                await harness.pass_time(0.2)
                await asyncio.sleep(0.01)
    finally:
        for worker in workers:
            worker.stop(at_once=True)
        await asyncio.gather(*tasks)

    assert most == 2


@rule("LIMIT-2")
async def a_slot_whose_holder_died_is_free_after_its_lease(harness: Harness) -> None:
    """Until then it is taken: nobody else decides that a worker is dead."""
    lease = harness.lease
    limit = ConcurrencyLimit(1, key="everything", lease=lease)
    if not harness.keeps_notes:
        await _refuses_limits(harness, limit)
        return
    queue = await harness.queue()
    started: list[str] = []

    async def handle(note: Note) -> None:
        started.append(note.text)

    await queue.push(Note("x"))
    held = await queue.pop(timeout=harness.patience)
    assert held is not None
    await queue.release(held)
    await queue.notes.change(*place_of("slots", limit.key, held), _taken_by_the_dead(lease))
    worker = _worker(queue, handle, limit)

    await worker.run_all()
    assert not started

    await harness.pass_time(lease * 1.1)
    async with harness.promptly():
        while not started:
            await harness.pass_time(lease / 4)
            await worker.run_all()


def _taken_by_the_dead(lease: float) -> Callable[[NoteSays], Decision[None]]:
    def decide(note: NoteSays) -> Decision[None]:
        state, wait = take_slot(state_of(Slots, note.value), note.now, "dead", limit=1, lease=lease)
        assert wait == 0
        return Change(value=msgspec.json.encode(state), result=None)

    return decide


@rule("LIMIT-3")
async def a_failing_dependency_is_left_alone_and_tried_by_one(harness: Harness) -> None:
    """Its jobs are put off with no attempt counted; once one of them gets through, all do."""
    cool = harness.lease
    breaker = CircuitBreaker(key="payments", failures=3, per=600, cool=cool, on=(ConnectionError,))
    if not harness.keeps_notes:
        await _refuses_limits(harness, breaker)
        return
    queue = await harness.queue()
    calls: list[str] = []
    is_down = True

    async def handle(note: Note) -> None:
        calls.append(note.text)
        if is_down:
            raise ConnectionError

    handlers = Handlers()
    handlers.on(Note, handle)
    worker = Worker(queue, handlers, concurrency=1, max_attempts=50, middleware=[breaker])
    await queue.push_many(Note(str(number)) for number in range(5))

    for _ in range(5):
        await worker.run_one()
    assert len(calls) == 3, "the circuit did not open after three failures"

    is_down = False
    async with harness.promptly():
        while len(set(calls[3:])) < 5:
            await harness.pass_time(cool / 2)
            await worker.run_all()
    await harness.expect_counts(queue)
