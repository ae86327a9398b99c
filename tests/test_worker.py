"""How a worker takes jobs, runs them side by side, and decides nothing itself (WORK-1 to WORK-3)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, running

from aqueue import (
    AppScope,
    CallNext,
    Delivery,
    Depends,
    Handlers,
    JobSucceeded,
    Outcome,
    Queue,
    Worker,
    job,
)
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place


@job(name="work.note")
class Note:
    text: str


@job(name="work.other", queue="others")
class Other:
    text: str


@job(name="work.self")
class SaysSo:
    text: str

    async def handle(self, log: "Log") -> None:
        log.append(self.text)


class Log(list[str]):
    """What handlers write down."""


class Unknown:
    """A type nothing provides."""


@pytest.mark.rule("WORK-1")
async def test_one_delivery_goes_through_every_step_once_and_in_order(place: Place) -> None:
    log: list[str] = []
    queue = await place.queue()

    async def session() -> AsyncIterator[str]:
        log.append("dependency")
        yield "session"
        log.append("scope closes")

    async def around(delivery: Delivery, call_next: CallNext) -> object:
        log.append(f"middleware {delivery.attempt}")
        answer = await call_next(delivery)
        log.append("middleware again")
        return answer

    async def initialize(_: object) -> None:
        log.append("scope opens")

    async def handle(note: Note, _: str = Depends(session)) -> None:
        log.append(f"handle {note.text}")

    async def succeeded(event: JobSucceeded) -> None:
        log.append(f"report, {(await counts(queue))[2]} leased")

    handlers = Handlers()
    handlers.on(Note, handle)
    scope = AppScope(initializers=[initialize])
    worker = Worker(queue, handlers, scope=scope, middleware=[around])
    worker.listen(JobSucceeded, succeeded)
    await queue.push(Note("a"))

    assert await worker.run_one() is Outcome.ACKED

    assert log == [
        "scope opens",
        "middleware 1",
        "dependency",
        "handle a",
        "middleware again",
        "report, 0 leased",
        "scope closes",
    ]
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("WORK-3")
@pytest.mark.parametrize("answer", [None, False, 0, "no", ValueError("returned, not raised"), Outcome.FAILED])
async def test_whatever_a_handler_returns_its_job_is_acked(memory: Place, answer: object) -> None:
    queue = await memory.queue()
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> object:
        return answer

    await queue.push(Note("a"))

    assert await Worker(queue, handlers).run_one() is Outcome.ACKED
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("WORK-3", "ATT-2")
async def test_a_handler_that_raises_fails_its_job_and_no_other(place: Place) -> None:
    queue = await place.queue()
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        if note.text == "bad":
            raise ValueError("bad note")

    await queue.push_many([Note("good"), Note("bad"), Note("good")])

    assert await Worker(queue, handlers, concurrency=3).run_all() == 3
    assert await counts(queue) == (0, 0, 0, 1)
    (failed,) = await queue.failed.list()
    assert (failed.reason, failed.error_type, failed.error) == ("error", "ValueError", "bad note")


@pytest.mark.rule("FACE-1")
async def test_a_worker_takes_a_plain_list_of_jobs_that_handle_themselves(place: Place) -> None:
    queue, log = await place.queue(), Log()
    await queue.push(SaysSo("by itself"))

    assert await Worker(queue, [SaysSo], scope=AppScope({Log: log})).run_all() == 1
    assert log == ["by itself"]


async def test_run_one_takes_one_job_or_says_that_there_is_none(place: Place) -> None:
    queue, done = await place.queue(), Log()
    worker = Worker(queue, handlers_that_note(done))

    assert await worker.run_one() is None

    await queue.push_many([Note("a"), Note("b")])
    assert await worker.run_one() is Outcome.ACKED
    assert done == ["a"]
    assert await counts(queue) == (1, 0, 0, 0)


async def test_run_one_waits_for_a_job_as_long_as_it_is_told(place: Place) -> None:
    queue, done = await place.queue(), Log()
    worker = Worker(queue, handlers_that_note(done))

    waiting = asyncio.create_task(worker.run_one(timeout=timedelta(seconds=20)))
    await queue.push(Note("late"))

    async with asyncio.timeout(5):
        assert await waiting is Outcome.ACKED
    assert await worker.run_one(timeout=0.01) is None


async def test_run_all_handles_what_handlers_push_while_it_runs_and_leaves_what_is_not_due(
    place: Place,
) -> None:
    queue, done = await place.queue(), Log()
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note, queue: Queue) -> None:
        done.append(note.text)
        if len(note.text) < 3:
            await queue.push(Note(note.text + "a"))

    await queue.push(Note("a"))
    await queue.push(Note("later"), delay=60)

    assert await Worker(queue, handlers).run_all() == 3
    assert done == ["a", "aa", "aaa"]
    assert await counts(queue) == (0, 1, 0, 0)


@pytest.mark.rule("WORK-2")
async def test_exactly_so_many_jobs_run_at_once_and_never_more(any_place: Place) -> None:
    queue = await any_place.queue()
    handlers = Handlers()
    now = most = 0
    gate = asyncio.Event()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1

    await queue.push_many([Note(str(number)) for number in range(12)])
    async with running(Worker(queue, handlers, concurrency=5)):
        await eventually(lambda: now == 5)
        assert await counts(queue) == (7, 0, 5, 0)
        gate.set()
        await all_settled(queue)
    assert most == 5


@pytest.mark.rule("WORK-2")
async def test_a_worker_takes_only_as_many_jobs_as_it_has_free_slots(memory: Place) -> None:
    queue, store = await memory.broken()
    handlers = Handlers()
    gates = {text: asyncio.Event() for text in "abcdef"}

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        await gates[note.text].wait()

    await queue.push_many([Note(text) for text in "abcdef"])
    async with running(Worker(queue, handlers, concurrency=4)):
        await eventually(lambda: bool(store.sizes["pop"]))
        assert store.sizes["pop"] == [4]

        gates["b"].set()
        await eventually(lambda: store.sizes["pop"] == [4, 1])
        for gate in gates.values():
            gate.set()
        await all_settled(queue)


@pytest.mark.rule("WORK-2")
async def test_a_slot_is_free_only_when_its_settlement_is_confirmed(memory: Place) -> None:
    queue, store = await memory.broken()
    done = Log()
    await queue.push_many([Note("first"), Note("second")])
    store.hang("ack")

    async with running(Worker(queue, handlers_that_note(done), concurrency=1)):
        await eventually(lambda: store.calls["ack"] == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert done == ["first"]
        assert store.calls["pop"] == 1

        store.recover()
        await all_settled(queue)
    assert done == ["first", "second"]


@pytest.mark.rule("WORK-2")
async def test_concurrent_settlements_travel_together(memory: Place) -> None:
    queue, store = await memory.broken()
    done = Log()
    await queue.push_many([Note(str(number)) for number in range(100)])

    async with running(Worker(queue, handlers_that_note(done), concurrency=100)):
        await all_settled(queue)

    assert sum(store.sizes["ack"]) == 100
    assert store.calls["ack"] <= 5


@pytest.mark.rule("WORK-2")
async def test_a_full_worker_goes_on_at_once_when_a_slot_is_freed(place: Place) -> None:
    """A worker that slept while both work and slots exist would need a second for each job here."""
    queue, done = await place.queue(), Log()
    await queue.push_many([Note(str(number)) for number in range(300)])

    async with running(Worker(queue, handlers_that_note(done), concurrency=2)):
        await eventually(lambda: len(done) == 300, timeout=20)
        await all_settled(queue)
    assert sorted(done, key=int) == [str(number) for number in range(300)]


@pytest.mark.rule("POP-7")
async def test_an_idle_worker_asks_its_store_about_once_a_second(memory: Place) -> None:
    queue, store = await memory.broken()
    seconds = 3

    async with running(Worker(queue, [SaysSo], scope=AppScope({Log: Log()}))):
        await eventually(lambda: store.calls["pop"] > 0)
        await asyncio.sleep(seconds)  # nothing is waited for: this is the span that is measured

    assert store.calls["pop"] <= seconds + 2


@pytest.mark.rule("POP-3")
async def test_a_job_wakes_an_idle_worker_long_before_its_pause_is_over(place: Place) -> None:
    queue, done = await place.queue(), Log()

    async with running(Worker(queue, handlers_that_note(done), poll_timeout=30)):
        for number in range(5):
            await queue.push(Note(str(number)))
            await eventually(lambda number=number: len(done) == number + 1)
    assert done == ["0", "1", "2", "3", "4"]


@pytest.mark.rule("POP-2")
async def test_a_worker_serves_its_queues_in_the_order_it_was_given_them(place: Place) -> None:
    queue, done = await place.queue(), Log()
    handlers = handlers_that_note(done)

    @handlers.on(Other)
    async def handle(other: Other) -> None:
        done.append(other.text)

    await queue.push_many([Note("low"), Note("low")])
    await queue.push_many([Other("high"), Other("high")])
    await queue.push(Other("unserved"), queue="elsewhere")

    assert await Worker(queue, handlers, queues=["others", "default"], concurrency=1).run_all() == 4
    assert done == ["high", "high", "low", "low"]
    assert await counts(queue, "elsewhere") == (1, 0, 0, 0)


@pytest.mark.rule("WORK-2")
async def test_two_workers_on_one_store_share_the_work_without_handling_anything_twice(place: Place) -> None:
    done = Log()
    workers = [
        Worker(await place.queue(), handlers_that_note(done), concurrency=8, name=f"worker {number}")
        for number in range(2)
    ]
    queue = await place.queue()
    await queue.push_many([Note(str(number)) for number in range(500)])

    async with running(workers[0]), running(workers[1]):
        await eventually(lambda: len(done) >= 500, timeout=20)
        await all_settled(queue)
    assert sorted(done, key=int) == [str(number) for number in range(500)]


def handlers_that_note(log: Log) -> Handlers:
    """Handle a Note by writing it down, after letting others run."""
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        await asyncio.sleep(0)
        log.append(note.text)

    return handlers
