"""What a slot doesn't wait for: an ack on its way, and what it does when that comes back refused (WORK-2)."""

import asyncio
from contextvars import ContextVar

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, running

from aqueue import Delivery, Handlers, JobSettlementLost, Queue, Worker, job
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place

who: ContextVar[str] = ContextVar("who", default="nobody")


@job(name="slots.note")
class Note:
    text: str


@pytest.mark.rule("WORK-2")
async def test_jobs_that_wait_begin_together_and_their_acks_travel_together(memory: Place) -> None:
    queue, store = await memory.broken()
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        await asyncio.sleep(0)

    await queue.push_many([Note(str(number)) for number in range(400)])
    async with running(Worker(queue, handlers, concurrency=100)):
        await all_settled(queue)

    assert sum(store.sizes["ack"]) == 400
    assert store.calls["ack"] <= 12
    assert store.calls["pop"] <= 14


@pytest.mark.rule("WORK-2")
async def test_one_job_that_waits_keeps_none_of_the_others_waiting(place: Place) -> None:
    queue, handlers, gate = await place.queue(), Handlers(), asyncio.Event()
    done: list[str] = []

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        if note.text.startswith("waits"):
            await gate.wait()
        done.append(note.text)

    await queue.push_many([Note(text) for text in ("a", "waits 1", "b", "waits 2", "c", "waits 3", "d")])
    async with running(Worker(queue, handlers, concurrency=4)):
        await eventually(lambda: sorted(done) == ["a", "b", "c", "d"])
        gate.set()
        await all_settled(queue)
    assert len(done) == 7


@pytest.mark.rule("WORK-2", "WORK-7")
async def test_a_refused_ack_is_told_in_the_context_of_its_delivery_and_frees_the_slot(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()
    told: list[tuple[str, str]] = []
    done: list[str] = []

    @handlers.on(Note)
    async def handle(note: Note, delivery: Delivery, queue: Queue) -> None:
        who.set(note.text)
        if note.text == "settled behind the worker's back":
            await queue.ack(delivery)
        done.append(note.text)

    async def lost(event: JobSettlementLost) -> None:
        told.append((event.args["text"], who.get()))

    worker = Worker(queue, handlers, concurrency=1)
    worker.listen(JobSettlementLost, lost)
    await queue.push_many([Note("settled behind the worker's back"), Note("after it")])
    async with running(worker):
        await all_settled(queue)
        await eventually(lambda: len(done) == 2 and len(told) == 1)

    assert told == [("settled behind the worker's back", "settled behind the worker's back")]
    assert who.get() == "nobody"


@pytest.mark.rule("WORK-2", "WORK-8")
async def test_an_ack_that_was_never_sent_is_sent_again_while_every_other_slot_is_taken(
    memory: Place,
) -> None:
    queue, store = await memory.broken()
    handlers, gate = Handlers(), asyncio.Event()
    started: list[str] = []

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        started.append(note.text)
        if note.text != "quick":
            await gate.wait()

    store.break_down("ack", times=2)
    await queue.push_many([Note("slow"), Note("quick"), Note("slow too")])
    async with running(Worker(queue, handlers, concurrency=2)):
        await eventually(lambda: started == ["slow", "quick", "slow too"])
        gate.set()
        await all_settled(queue)
    assert store.calls["ack"] >= 3
