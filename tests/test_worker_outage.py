"""A store that is away: noticed, told, waited out, and nothing lost (WORK-8)."""

import asyncio
import logging

import pytest
from support import fixtures
from support.fixtures import Place
from support.stores import CutOff, Unreachable
from support.working import Records, all_settled, counts, ended, logged, running

from aqueue import (
    ConnectionFailed,
    Handlers,
    Outcome,
    OutcomeUnknown,
    StoreError,
    Worker,
    job,
)
from aqueue.outage import Outages
from aqueue.testing import eventually

place, memory = fixtures.place, fixtures.memory


@job(name="outage.note")
class Note:
    text: str = ""


class Done:
    """A handler that waits for its gate, which is open at first."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.started: list[str] = []
        self.ended: list[str] = []
        self.handlers = Handlers()
        self.handlers.on(Note, self.handle)

    async def handle(self, note: Note) -> None:
        self.started.append(note.text)
        await self.gate.wait()
        self.ended.append(note.text)


@pytest.mark.rule("WORK-8")
@pytest.mark.parametrize("verb", ["pop", "wait"])
async def test_a_worker_waits_an_outage_out_says_so_and_is_well_again_afterwards(
    place: Place, verb: str
) -> None:
    queue, store = await place.broken()
    done = Done()
    worker = Worker(queue, done.handlers, poll_timeout=0.2)

    with logged() as log:
        async with running(worker) as task:
            await eventually(lambda: worker.health().last_claim is not None and worker.health().ok)
            store.break_down(verb)
            await eventually(lambda: not worker.health().ok)
            health = worker.health()
            assert health.running
            assert isinstance(health.last_error, ConnectionFailed)
            await eventually(lambda: warned(log) >= 3)
            assert warned(log) <= store.calls[verb]

            store.recover()
            await queue.push(Note("after"))
            await eventually(lambda: worker.health().ok, timeout=10)
            await all_settled(queue)
            assert not task.done()
    assert done.ended == ["after"]
    assert worker.health().last_error is None


@pytest.mark.rule("WORK-8")
async def test_pauses_grow_so_a_long_outage_costs_little_log_and_few_tries(memory: Place) -> None:
    queue, store = await memory.broken()
    store.break_down("pop")

    with logged() as log:
        async with running(Worker(queue, Done().handlers)):
            await eventually(lambda: store.calls["pop"] >= 3, timeout=10)
            before = store.calls["pop"]
            await asyncio.sleep(1.5)  # the span that is measured
            assert store.calls["pop"] - before <= 12
    assert warned(log) <= store.calls["pop"]
    texts = [text for text in log.messages(level=logging.WARNING) if "store" in text]
    assert all("Unreachable" in text for text in texts)


@pytest.mark.rule("WORK-8")
async def test_what_runs_during_an_outage_is_not_lost(place: Place) -> None:
    queue, store = await place.broken()
    done = Done()
    done.gate.clear()
    worker = Worker(queue, done.handlers, concurrency=4)
    await queue.push_many([Note(str(number)) for number in range(3)])

    async with running(worker):
        await eventually(lambda: len(done.started) == 3)
        store.break_down("pop", "wait", "ack", "extend")
        await eventually(lambda: not worker.health().ok)
        done.gate.set()
        await eventually(lambda: len(done.ended) == 3)
        await eventually(lambda: store.calls["ack"] >= 1)
        store.recover()
        await all_settled(queue, timeout=20)
        await eventually(lambda: worker.health().ok, timeout=10)
    assert sorted(done.started) == ["0", "1", "2"]


@pytest.mark.rule("WORK-8", "PUSH-4")
async def test_a_settlement_that_was_never_sent_is_sent_again(place: Place) -> None:
    queue, store = await place.broken()
    done = Done()
    await queue.push(Note("a"))
    store.break_down("ack", times=2)

    async with running(Worker(queue, done.handlers)) as task:
        await all_settled(queue)
        assert not task.done()
    assert done.started == ["a"]
    assert store.calls["ack"] == 3


@pytest.mark.rule("WORK-8", "PUSH-4")
@pytest.mark.parametrize("applied", [False, True], ids=["lost request", "lost reply"])
async def test_a_settlement_whose_reply_was_lost_is_never_sent_again(place: Place, applied: bool) -> None:
    queue, store = await place.broken(lease=1.0)
    done = Done()
    job_id = await queue.push(Note("a"))
    if applied:
        store.lose_reply("ack", times=1)
    else:
        store.break_down("ack", error=CutOff, times=1)
    worker = Worker(queue, done.handlers)

    async with running(worker) as task:
        await eventually(lambda: store.calls["ack"] == 1)
        await all_settled(queue)
        await eventually(lambda: worker.health().ok)
        assert not task.done()
    acks = [ids for ids in store.batches["ack"] if job_id in ids]
    assert len(acks) == (1 if applied else 2)
    assert done.started == ["a"] * len(acks)  # a new attempt, by a new delivery, is the only repetition


@pytest.mark.rule("WORK-8")
@pytest.mark.parametrize("verb", ["pop", "wait", "ack", "fail", "release"])
async def test_a_worker_told_to_stop_at_an_outage_raises_it(memory: Place, verb: str) -> None:
    queue, store = await memory.broken()
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        if note.text == "raises":
            raise LookupError

    if verb in {"ack", "fail", "release"}:
        await queue.push(Note("a" if verb == "ack" else "raises"))
    worker = Worker(queue, handlers, on_outage="stop", max_attempts=2 if verb == "release" else 0)
    store.break_down(verb)

    task = asyncio.create_task(worker.run())
    with pytest.raises(ConnectionFailed) as raised:
        await ended(task)
    assert isinstance(raised.value.__cause__, Unreachable)
    assert not worker.health().running


@pytest.mark.rule("WORK-8")
async def test_a_worker_that_stops_at_an_outage_lets_what_runs_end_first(memory: Place) -> None:
    queue, store = await memory.broken()
    done = Done()
    done.gate.clear()
    await queue.push(Note("running"))
    worker = Worker(queue, done.handlers, on_outage="stop", concurrency=2)

    task = asyncio.create_task(worker.run())
    await eventually(lambda: done.started == ["running"])
    store.break_down("pop", "wait")
    await eventually(lambda: not worker.health().running or store.calls["wait"] > 0)
    done.gate.set()
    with pytest.raises(ConnectionFailed):
        await ended(task)
    assert done.ended == ["running"]
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("WORK-8")
@pytest.mark.parametrize("call", ["run_one", "run_all"])
@pytest.mark.parametrize(
    ("verb", "error", "raised"),
    [
        ("pop", Unreachable, ConnectionFailed),
        ("ack", Unreachable, ConnectionFailed),
        ("ack", CutOff, OutcomeUnknown),
    ],
)
async def test_a_single_run_raises_what_the_store_raised(
    memory: Place, call: str, verb: str, error: type[Exception], raised: type[StoreError]
) -> None:
    queue, store = await memory.broken()
    done = Done()
    worker = Worker(queue, done.handlers)
    await queue.push_many([Note("a"), Note("b")])
    store.break_down(verb, error=error, times=1)

    with pytest.raises(raised):
        await (worker.run_one() if call == "run_one" else worker.run_all())


@pytest.mark.rule("WORK-8")
async def test_a_single_run_raises_only_after_its_neighbours_have_ended(memory: Place) -> None:
    queue, store = await memory.broken()
    done = Done()
    await queue.push_many([Note(str(number)) for number in range(5)])
    store.break_down("ack", times=1)

    with pytest.raises(ConnectionFailed):
        await Worker(queue, done.handlers, concurrency=5).run_all()
    assert len(done.ended) == 5


@pytest.mark.rule("WORK-8", "CALL-1")
async def test_a_store_that_hangs_is_an_outage_too(memory: Place) -> None:
    queue, store = await memory.broken(call_timeout=0.2)
    done = Done()
    worker = Worker(queue, done.handlers)

    async with running(worker):
        await eventually(lambda: worker.health().last_claim is not None)
        store.hang("pop", "wait")
        await eventually(lambda: isinstance(worker.health().last_error, OutcomeUnknown), timeout=10)
        assert not worker.health().ok
        store.recover()
        await queue.push(Note("after"))
        await all_settled(queue)
        await eventually(lambda: worker.health().ok, timeout=10)
    assert done.ended == ["after"]


@pytest.mark.rule("WORK-8")
async def test_an_error_nobody_foresaw_is_waited_out_like_an_outage(memory: Place) -> None:
    """Whatever a driver comes up with, a worker must not end, nor go silent."""
    queue, store = await memory.broken()
    done = Done()
    worker = Worker(queue, done.handlers)

    async with running(worker) as task:
        store.break_down("pop", error=ZeroDivisionError, times=3)
        await eventually(lambda: isinstance(worker.health().last_error, ZeroDivisionError))
        await queue.push(Note("after"))
        await all_settled(queue)
        assert not task.done()
    assert done.ended == ["after"]


@pytest.mark.rule("WORK-8")
async def test_a_settlement_that_stays_unreachable_frees_its_slot_when_the_lease_is_over(
    memory: Place,
) -> None:
    queue, store = await memory.broken(lease=0.5)
    done = Done()
    await queue.push(Note("a"))
    store.break_down("ack", "extend")

    async with running(Worker(queue, done.handlers, concurrency=1)) as task:
        await eventually(lambda: len(done.started) >= 2, timeout=10)
        store.recover()
        await all_settled(queue)
        assert not task.done()


@pytest.mark.rule("WORK-8", "STOP-1")
async def test_a_stop_during_an_outage_does_not_wait_for_its_end(memory: Place) -> None:
    queue, store = await memory.broken()
    store.break_down("pop")
    worker = Worker(queue, Done().handlers, grace=0)

    async with running(worker) as task:
        await eventually(lambda: store.calls["pop"] >= 4, timeout=10)
        worker.stop()
        await ended(task)


@pytest.mark.rule("WORK-8")
async def test_a_worker_is_fit_for_work_from_its_start_and_unfit_when_it_does_not_run(memory: Place) -> None:
    queue = await memory.queue()
    worker = Worker(queue, Done().handlers)
    assert not worker.health().ok

    async with running(worker):
        await eventually(lambda: worker.health().ok)
    assert (worker.health().ok, worker.health().running) == (False, False)
    assert await worker.run_one() in {None, Outcome.ACKED}


def warned(log: Records) -> int:
    """Count the warnings about the store."""
    return sum("store failed" in text for text in log.messages(level=logging.WARNING))


@pytest.mark.rule("WORK-8")
def test_the_pauses_of_an_outage_grow_to_a_bound_and_differ_from_worker_to_worker() -> None:
    pauses = [[outages.failed(Unreachable()) for _ in range(12)] for outages in (Outages(), Outages())]

    assert all(0 < pause <= 5 for series in pauses for pause in series)
    assert all(max(series[:2]) < 0.5 for series in pauses)
    assert pauses[0] != pauses[1]
    assert max(max(series[6:]) for series in pauses) > 0.5
