"""Handlers that block: on threads where they are plain functions, and noticed where not (WORK-11)."""

import asyncio
import contextvars
import logging
import threading
import time

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, logged, running

from aqueue import Delivery, Handlers, Outcome, Worker, job
from aqueue.testing import eventually
from aqueue.threads import Threads

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@job(name="threads.note")
class Note:
    text: str = ""

    def handle(self, delivery: Delivery) -> None:
        assert delivery.args == {"text": self.text}
        _ran_on.append(threading.current_thread())


_ran_on: list[threading.Thread] = []


@job
def plain(text: str) -> str:
    _ran_on.append(threading.current_thread())
    return text


@job(name="threads.blocks")
class Blocks:
    seconds: float = 1.5


@pytest.mark.rule("WORK-11")
async def test_plain_handlers_run_on_threads_and_the_loop_goes_on(place: Place) -> None:
    queue = await place.queue()
    _ran_on.clear()
    await queue.push(Note("a"))
    await queue.push(plain.job("b"))

    assert await Worker(queue, [Note, plain]).run_all() == 2
    assert len(_ran_on) == 2
    assert threading.main_thread() not in _ran_on


@pytest.mark.rule("WORK-11")
async def test_no_more_threads_are_used_than_jobs_run_at_once(memory: Place) -> None:
    queue, handlers = await memory.queue(), Handlers()
    lock, gate = threading.Lock(), threading.Event()
    now = most = 0

    @handlers.on(Blocks)
    def handle(_: Blocks) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait(30)
        with lock:
            now -= 1

    await queue.push_many([Blocks()] * 9)
    async with running(Worker(queue, handlers, concurrency=3)):
        await eventually(lambda: now == 3)
        gate.set()
        await all_settled(queue)
    assert most == 3


@pytest.mark.rule("WORK-11", "WORK-10")
async def test_a_thread_abandoned_by_a_timeout_keeps_its_place_until_it_ends(memory: Place) -> None:
    queue, handlers = await memory.queue(), Handlers()
    gates = {"first": threading.Event(), "second": threading.Event()}
    started: list[str] = []

    @handlers.on(Note)
    def handle(note: Note) -> None:
        started.append(note.text)
        gates[note.text].wait(30)

    worker = Worker(queue, handlers, concurrency=1, timeout=0.1)
    gates["second"].set()
    try:
        await queue.push(Note("first"))
        assert await worker.run_one() is Outcome.FAILED
        await queue.push(Note("second"))
        assert await worker.run_one() is Outcome.FAILED  # it waited for a place until its own timeout
        assert started == ["first"]
    finally:
        gates["first"].set()

    async def handled() -> bool:
        await queue.push(Note("second"))
        return await worker.run_one() is Outcome.ACKED

    await eventually(handled)
    assert started[1:] == ["second"]


@pytest.mark.rule("WORK-11")
@pytest.mark.parametrize("turns", range(8))
async def test_no_cancellation_however_timed_loses_a_threads_place(turns: int) -> None:
    threads, ran = Threads(1), threading.Event()

    task = asyncio.create_task(threads.run(lambda: None))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

    async with asyncio.timeout(5):
        await threads.run(ran.set)
    assert ran.is_set()


@pytest.mark.rule("WORK-11", "WORK-2")
async def test_a_thread_sees_its_deliverys_context_and_leaves_nothing_in_it(memory: Place) -> None:
    queue, handlers, seen = await memory.queue(), Handlers(), []

    async def around(delivery: Delivery, call_next: object) -> object:
        tenant.set(delivery.args["text"])
        answer = await call_next(delivery)  # type: ignore[operator]  # what middleware is given
        seen.append(tenant.get())
        return answer

    @handlers.on(Note)
    def handle(note: Note) -> None:
        seen.append(tenant.get())
        tenant.set("changed on the thread")

    await queue.push_many([Note("a"), Note("b")])
    async with running(Worker(queue, handlers, concurrency=1, middleware=[around])):
        await all_settled(queue)
    assert seen == ["a", "a", "b", "b"]


@pytest.mark.rule("WORK-11")
async def test_what_a_thread_raises_is_its_jobs_failure_with_its_traceback(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()

    @handlers.on(Note)
    def handle(note: Note) -> None:
        if note.text == "stop":
            raise StopIteration
        raise LookupError("on the thread")

    await queue.push_many([Note("a"), Note("stop")])
    async with running(Worker(queue, handlers)):
        await all_settled(queue)
    failed = {each.error_type: each for each in await queue.failed.list()}
    assert "in handle" in failed.pop("LookupError").traceback
    assert len(failed) == 1


@pytest.mark.rule("WORK-11")
async def test_a_blocked_loop_is_noticed_while_it_is_blocked_and_its_job_is_named(memory: Place) -> None:
    """Case O-14."""
    queue, handlers = await memory.queue(), Handlers()
    during: list[str] = []

    @handlers.on(Blocks)
    async def handle(blocks: Blocks) -> None:
        time.sleep(blocks.seconds)  # noqa: ASYNC251 - blocking the loop is the fault that must be noticed
        during.extend(log.messages(level=logging.WARNING))

    with logged() as log:
        job_id = await queue.push(Blocks())
        async with running(Worker(queue, handlers)):
            await all_settled(queue)

    (warning,) = [message for message in during if "blocked" in message]
    assert job_id in warning
    assert "threads.blocks" in warning


@pytest.mark.rule("WORK-11", "WORK-4")
async def test_a_loop_blocked_by_nobodys_job_is_noticed_too_and_a_busy_one_is_not(memory: Place) -> None:
    queue, handlers = await memory.queue(), Handlers()

    @handlers.on(Blocks)
    async def handle(blocks: Blocks) -> None:
        for _ in range(30):
            time.sleep(0.05)  # noqa: ASYNC251 - busy, but it lets others run
            await asyncio.sleep(0)

    with logged() as log:
        await queue.push(Blocks())
        async with running(Worker(queue, handlers)):
            await all_settled(queue)
            assert not [message for message in log.messages() if "blocked" in message]
            time.sleep(1.5)  # noqa: ASYNC251 - blocked by the host
            await eventually(lambda: any("blocked" in message for message in log.messages()))
    (warning,) = [message for message in log.messages() if "blocked" in message]
    assert "threads.blocks" not in warning


async def test_a_plain_handler_that_hands_back_a_coroutine_has_it_awaited(memory: Place) -> None:
    queue, handlers, done = await memory.queue(), Handlers(), []

    async def later() -> None:
        await asyncio.sleep(0)
        done.append(threading.current_thread() is threading.main_thread())

    handlers.on(Note, lambda note: later())
    await queue.push(Note())

    assert await Worker(queue, handlers).run_one() is Outcome.ACKED
    assert done == [True]
    assert await counts(queue) == (0, 0, 0, 0)


class Throwing(logging.Handler):
    """A logging handler that throws at whoever logs, and counts them."""

    records = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.records += 1
        raise RuntimeError("this logger is broken")


@pytest.mark.rule("WORK-11", "WORK-4")
async def test_a_throwing_logger_does_not_end_the_watch(memory: Place) -> None:
    queue, handlers, throwing = await memory.queue(), Handlers(), Throwing(level=logging.WARNING)

    @handlers.on(Blocks)
    async def handle(blocks: Blocks) -> None:
        time.sleep(blocks.seconds)  # noqa: ASYNC251 - blocking the loop is the fault that must be noticed

    logger = logging.getLogger("aqueue")
    logger.addHandler(throwing)
    try:
        await queue.push_many([Blocks(), Blocks()])
        async with running(Worker(queue, handlers, concurrency=1)):
            await all_settled(queue)
    finally:
        logger.removeHandler(throwing)
    assert throwing.records == 2
