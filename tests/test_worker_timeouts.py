"""A handler that runs too long is cancelled, and that is a failure like another (WORK-10, case O-17)."""

import asyncio
import itertools
import time
from datetime import timedelta

import pytest
from support import fixtures
from support.busy import Note
from support.fixtures import Place
from support.working import all_settled, running

from aqueue import Backoff, Handlers, Outcome, Worker, job
from aqueue.testing import eventually

memory, place = fixtures.memory, fixtures.place


@job(name="timeouts.short", timeout=0.05)
class Short:
    text: str = ""


@pytest.mark.rule("WORK-10", "ATT-4")
async def test_a_timeout_is_a_failure_like_another_with_a_pause_between_attempts(place: Place) -> None:
    queue = await place.queue()
    cleaned, started = [], []
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        started.append(time.monotonic())
        try:
            await asyncio.sleep(60)
        except Exception as error:
            raise AssertionError("a timeout is no Exception inside the handler") from error
        finally:
            cleaned.append(len(started))

    await queue.push(Note())
    worker = Worker(queue, handlers, timeout=0.1, max_attempts=3, backoff=Backoff.fixed(0.3))
    async with running(worker):
        await eventually(lambda: len(cleaned) == 3)
        await all_settled(queue)

    assert cleaned == [1, 2, 3]
    assert all(later - earlier >= 0.3 for earlier, later in itertools.pairwise(started))
    (failed,) = await queue.failed.list()
    assert (failed.error_type, failed.attempts, failed.reason) == ("TimeoutError", 3, "error")
    assert "0.1 s" in failed.error


@pytest.mark.rule("WORK-10")
@pytest.mark.parametrize("job_wins", [True, False])
async def test_the_jobs_own_timeout_wins_over_the_workers(memory: Place, job_wins: bool) -> None:
    queue, handlers = await memory.queue(), Handlers()
    limit = timedelta(seconds=60) if job_wins else timedelta(seconds=0.05)

    async def handle(_: object) -> None:
        await asyncio.sleep(60)

    handlers.on(Short, handle)
    handlers.on(Note, handle)
    await queue.push(Short() if job_wins else Note())

    assert await Worker(queue, handlers, timeout=limit).run_one() is Outcome.FAILED
    (failed,) = await queue.failed.list()
    assert "0.05 s" in failed.error


@pytest.mark.rule("WORK-10")
async def test_a_handlers_own_inner_timeout_is_its_own_error(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    await queue.push(Note())

    assert await Worker(queue, handlers, timeout=30).run_one() is Outcome.FAILED
    (failed,) = await queue.failed.list()
    assert failed.error_type == "TimeoutError"
    assert "30" not in failed.error


@pytest.mark.rule("WORK-10")
async def test_a_handler_cleans_up_after_its_timeout_as_long_as_it_needs(memory: Place) -> None:
    queue, handlers, cleaned = await memory.queue(), Handlers(), []

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    await queue.push(Note())

    assert await Worker(queue, handlers, timeout=0.05).run_one() is Outcome.FAILED
    assert cleaned == [True]
