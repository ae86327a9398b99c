"""Leases are kept while a job runs, and a lost one is found out and told (LEASE-3, WORK-7, FENCE-1)."""

import asyncio
import logging
import time

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, logged, running
from telemetry_sdk import Seen

from aqueue import (
    Delivery,
    Handlers,
    JobEvent,
    JobSettlementLost,
    Outcome,
    Queue,
    Settlement,
    StaleDelivery,
    Worker,
    job,
)
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place
LEASE = 0.4


@job(name="lease.note")
class Note:
    text: str = ""


class Long:
    """A handler that runs until its gate opens, or for `leases` leases."""

    def __init__(self, leases: float | None = None) -> None:
        self.leases = leases
        self.gate = asyncio.Event()
        self.starts: list[int] = []
        self.cancelled = 0
        self.handlers = Handlers()
        self.handlers.on(Note, self.handle)

    async def handle(self, _: Note, delivery: Delivery) -> None:
        self.starts.append(delivery.attempt)
        try:
            if self.leases is not None:
                await asyncio.sleep(LEASE * self.leases)
            else:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.mark.rule("LEASE-3")
@pytest.mark.parametrize("call", ["run", "run_one", "run_all"])
async def test_a_job_longer_than_its_lease_is_delivered_once(any_place: Place, call: str) -> None:
    queue, long = await any_place.queue(lease=LEASE), Long(leases=4)
    thief = Worker(await any_place.queue(lease=LEASE), long.handlers)
    worker = Worker(queue, long.handlers)
    await queue.push(Note())

    if call == "run":
        async with running(worker):
            await eventually(lambda: long.starts == [1])
            async with running(thief):
                await all_settled(queue)
    else:
        task = asyncio.create_task(worker.run_one() if call == "run_one" else worker.run_all())
        await eventually(lambda: long.starts == [1])
        async with running(thief):
            assert await task in {Outcome.ACKED, 1}

    assert long.starts == [1]
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("LEASE-3")
async def test_all_running_jobs_are_renewed_in_one_round_trip_every_third_of_a_lease(memory: Place) -> None:
    queue, store = await memory.broken(lease=LEASE)
    long = Long()
    await queue.push_many([Note()] * 20)

    async with running(Worker(queue, long.handlers, concurrency=20)):
        await eventually(lambda: len(long.starts) == 20)
        await eventually(lambda: store.calls["extend"] >= 4)
        long.gate.set()
        await all_settled(queue)

    assert set(store.sizes["extend"]) == {20}
    assert len(long.starts) == 20


@pytest.mark.rule("LEASE-3")
async def test_without_renewal_a_job_longer_than_its_lease_is_delivered_again(any_place: Place) -> None:
    queue, long = await any_place.queue(lease=LEASE), Long()
    await queue.push(Note())

    async with running(Worker(queue, long.handlers, concurrency=2, renew=False)):
        await eventually(lambda: len(long.starts) >= 2)
        assert long.starts[:2] == [1, 2]
        long.gate.set()
        await all_settled(queue)


@pytest.mark.rule("LEASE-3", "WORK-5", "WORK-7", "TEL-1")
async def test_a_handler_whose_lease_is_lost_is_cancelled_and_the_loss_is_told(any_place: Place) -> None:
    seen = Seen()
    queue = await any_place.queue(
        lease=LEASE, tracer_provider=seen.tracer_provider, meter_provider=seen.meter_provider
    )
    other, long, lost = await any_place.queue(lease=60), Long(), Losses()
    worker = Worker(queue, long.handlers, concurrency=1)
    worker.listen(JobEvent, lost.note)
    job_id = await queue.push(Note("mine"))

    with logged() as log:
        async with running(worker):
            await eventually(lambda: long.starts == [1])
            theirs = await steal(queue, other)
            await eventually(lambda: bool(lost.events))
            await eventually(lambda: worker.health().ok)

    (event,) = lost.events
    assert isinstance(event, JobSettlementLost)
    assert (event.id, event.name, event.queue, event.attempt) == (job_id, "lease.note", "default", 1)
    assert event.operation is event.stale.operation
    assert event.args == {"text": "mine"}
    assert long.cancelled == 1
    assert any(job_id in message for message in log.messages(level=logging.WARNING))
    assert sum(point.value for point in seen.points("aqueue.lease.lost")) == 1

    await other.ack(theirs)
    assert theirs.attempt == 2
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("LEASE-3", "WORK-5", "WORK-7")
@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
async def test_a_handler_told_to_continue_runs_to_its_end_and_its_settlement_is_refused(
    any_place: Place, raises: bool
) -> None:
    queue, other = await any_place.queue(lease=LEASE), await any_place.queue(lease=60)
    lost, handlers, gate, started = Losses(), Handlers(), asyncio.Event(), asyncio.Event()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        started.set()
        await gate.wait()
        if raises:
            raise LookupError("the job's own error")

    worker = Worker(queue, handlers, on_lease_lost="continue", max_attempts=5, concurrency=1)
    worker.listen(JobEvent, lost.note)
    await queue.push(Note())

    with logged() as log:
        async with running(worker) as task:
            await started.wait()
            theirs = await steal(queue, other)
            await eventually(lambda: any("lost the lease" in text for text in log.messages()))
            gate.set()
            await eventually(lambda: bool(lost.events))
            await queue.push(Note("and the worker goes on"))
            await eventually(lambda: len(lost.all) >= 2)
            assert not task.done()

    (event,) = lost.events
    assert isinstance(event, JobSettlementLost)
    assert event.operation is (Settlement.RELEASE if raises else Settlement.ACK)
    assert isinstance(event.stale, StaleDelivery)
    assert (str(event.error) == "the job's own error") if raises else event.error is None
    await other.ack(theirs)


@pytest.mark.rule("WORK-7", "FENCE-1")
async def test_a_job_settled_by_somebody_else_meanwhile_is_told_as_lost_and_stops_nothing(
    any_place: Place,
) -> None:
    queue, handlers, lost = await any_place.queue(), Handlers(), Losses()

    @handlers.on(Note)
    async def handle(_: Note, delivery: Delivery, queue: Queue) -> None:
        await queue.ack(delivery)

    worker = Worker(queue, handlers)
    worker.listen(JobSettlementLost, lost.note)
    await queue.push_many([Note(), Note()])

    assert await worker.run_one() is Outcome.LOST
    assert await worker.run_all() == 1
    assert [event.operation for event in lost.events if isinstance(event, JobSettlementLost)] == [
        Settlement.ACK
    ] * 2
    assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.rule("LEASE-3", "WORK-8")
async def test_a_renewal_that_fails_is_tried_again_while_the_lease_lasts(memory: Place) -> None:
    queue, store = await memory.broken(lease=1.2)
    long = Long()
    await queue.push(Note())

    with logged() as log:
        async with running(Worker(queue, long.handlers, concurrency=2)):
            await eventually(lambda: long.starts == [1])
            store.break_down("extend", times=1)
            await eventually(lambda: store.calls["extend"] >= 5)
            assert long.starts == [1]
            long.gate.set()
            await all_settled(queue)
    assert any("could not renew" in message for message in log.messages(level=logging.WARNING))
    assert long.starts == [1]


@pytest.mark.rule("LEASE-3")
async def test_a_delivery_taken_while_its_worker_could_not_renew_is_not_revived(any_place: Place) -> None:
    """The loop was blocked longer than the lease: what the first holder says afterwards is refused (O-14)."""
    queue, other = await any_place.queue(lease=LEASE), await any_place.queue(lease=60)
    (job_id,) = await queue.push_many([Note()])
    (mine,) = await queue.pop_now(1)
    theirs = await steal(queue, other)

    assert theirs.id == mine.id == job_id
    for settling in (queue.extend(mine), queue.ack(mine), queue.release(mine), queue.fail(mine)):
        with pytest.raises(StaleDelivery):
            await settling
    await other.ack(theirs)


@pytest.mark.rule("LEASE-3", "WORK-10")
async def test_a_timeout_as_long_as_the_lease_gives_one_live_copy(any_place: Place) -> None:
    """Case O-15."""
    queue, starts, now, most = await any_place.queue(lease=LEASE), 0, 0, 0
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        nonlocal starts, now, most
        starts, now = starts + 1, now + 1
        most = max(most, now)
        try:
            await asyncio.sleep(60)
        finally:
            now -= 1

    await queue.push(Note())
    workers = [
        Worker(await any_place.queue(lease=LEASE), handlers, timeout=LEASE, max_attempts=3) for _ in range(3)
    ]
    async with running(workers[0]), running(workers[1]), running(workers[2]):
        await all_settled(queue)
    assert (starts, most) == (3, 1)
    (failed,) = await queue.failed.list()
    assert (failed.attempts, failed.lost) == (3, 0)


class Losses:
    """What a listener was told."""

    def __init__(self) -> None:
        self.all: list[JobEvent] = []

    def note(self, event: JobEvent) -> None:
        self.all.append(event)

    @property
    def events(self) -> list[JobEvent]:
        """Only the settlements that were lost."""
        return [event for event in self.all if isinstance(event, JobSettlementLost)]


async def steal(queue: Queue, other: Queue) -> Delivery:
    """Let the lease pass to somebody else, as after a stall of its holder that nobody could renew in."""
    taken: list[Delivery] = []

    async def passed_on() -> bool:
        # Holding up the loop keeps the worker from renewing.
        time.sleep(LEASE * 1.1)  # noqa: ASYNC251 - see above
        taken.extend(await other.pop_now(1))
        return bool(taken)

    await eventually(passed_on, timeout=30)
    return taken[0]
