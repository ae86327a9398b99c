"""Schedules and occurrences: one job for each time, and one owner of it, over any number of connections."""

import asyncio
from uuid import uuid4

from aqueue.contract.occurrence import Occurrence, job_id_of, occurrence_at
from aqueue.contract.signing import Keyring
from aqueue.delivery import Delivery
from aqueue.errors import NotesMissing
from aqueue.handlers import Handlers
from aqueue.occurrence_notes import OccurrenceNotes
from aqueue.occurrences import OccurrenceDone, OccurrenceLease
from aqueue.port import Message
from aqueue.queue import Queue
from aqueue.scheduler import Scheduler
from aqueue.schedules import Schedule
from aqueue.testing.contract.harness import DEFAULT, Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note
from aqueue.worker import Worker

_EVERY = "@every 1s"
_NOON = 1_800_000_000


async def _stores(harness: Harness, count: int, keyring: Keyring | None = None) -> list[tuple[Queue, Queue]]:
    """Return queues on the store, each with the one that keeps its notes.

    A store that keeps none must say so when a scheduler is built without another; then it gets one.
    """
    queues = [await harness.queue(keyring=keyring) for _ in range(count)]
    if harness.keeps_notes:
        return [(queue, queue) for queue in queues]
    with raises(NotesMissing, "a scheduler over a store without notes") as caught:
        Scheduler(queues[0], [_schedule()])
    assert harness.capabilities.system in str(caught.error), "the refusal does not name the backend"
    assert "store=" in str(caught.error), "the refusal does not say what to do"
    place = f"memory://{uuid4().hex}"
    return [(queue, await harness.queue(backend=harness.failed_backend(place))) for queue in queues]


async def _schedulers(
    harness: Harness, count: int, *schedules: Schedule, keyring: Keyring | None = None
) -> list[Scheduler]:
    """Return schedulers on connections of their own, that have all looked once."""
    made = [
        Scheduler(queue, schedules or [_schedule()], store=store)
        for queue, store in await _stores(harness, count, keyring)
    ]
    for scheduler in made:
        assert await scheduler.run_due() == 0, "something was due before the schedule was first seen"
    return made


def _schedule(name: str = "tick", **options: object) -> Schedule:
    return Schedule(name, _EVERY, job=Note(name), **options)  # type: ignore[arg-type]


async def _occurrences(harness: Harness, queue: Queue, count: int) -> list[Occurrence]:
    """Take exactly so many jobs, acknowledge them, and return what they were pushed for."""
    found: list[Occurrence] = []
    while len(found) < count:
        delivery = await queue.pop(timeout=harness.patience)
        assert delivery is not None, f"{len(found)} jobs came, not {count}"
        assert delivery.occurrence is not None, "the job does not say what it was pushed for"
        assert delivery.id == job_id_of(delivery.occurrence, DEFAULT)
        found.append(delivery.occurrence)
        await queue.ack(delivery)
    return found


@rule("CRON-1")
async def each_time_gives_one_job_however_many_look(harness: Harness) -> None:
    """Three schedulers look at once, time after time, and quick jobs are gone before the next look."""
    schedulers = await _schedulers(harness, 3)
    pushed = 0
    found: list[Occurrence] = []
    for _ in range(4):
        await harness.pass_time(0.8)
        counts = await asyncio.gather(*(scheduler.run_due() for scheduler in schedulers))
        pushed += sum(counts)
        found += await _occurrences(harness, schedulers[0].queue, sum(counts))

    await harness.expect_nothing(schedulers[0].queue)
    dues = sorted(int(occurrence.due_at.timestamp()) for occurrence in found)
    assert pushed >= 3, f"{pushed} jobs were pushed in more than 3 seconds"
    assert dues == list(range(dues[0], dues[0] + pushed)), f"a time is missing, or came twice: {dues}"


@rule("CRON-1")
async def schedules_keep_out_of_each_others_way(harness: Harness) -> None:
    """Each has a note of its own: the one that is paused fires nothing, the other goes on."""
    one, other = await _schedulers(harness, 2, _schedule("one"), _schedule("two"))
    await one.pause("one")

    await harness.pass_time(1.5)
    count = await other.run_due()

    assert count >= 1, "the schedule that is not paused did not fire"
    assert {each.schedule for each in await _occurrences(harness, one.queue, count)} == {"two"}
    assert [(each.name, each.paused) for each in await other.list()] == [("one", True), ("two", False)]


@rule("CRON-1")
async def a_pause_holds_everywhere_and_misses_nothing(harness: Harness) -> None:
    """What passes meanwhile is not made up for; what is due after `resume` fires."""
    one, other = await _schedulers(harness, 2, _schedule(missed=50, grace=1))
    await one.pause("tick")
    await harness.pass_time(2.5)
    assert await other.run_due() == 0, "a paused schedule fired"

    await other.resume("tick")
    assert await one.run_due() <= 1, "what passed in a pause was caught up with"
    await harness.pass_time(1.1)
    assert await one.run_due() >= 1
    assert (await other.list())[0].last_fired is not None


@rule("CRON-1")
async def a_triggered_job_is_one_more(harness: Harness) -> None:
    """It is pushed now, paused or not, and takes no time of the schedule away."""
    [scheduler] = await _schedulers(harness, 1)
    await scheduler.pause("tick")

    id = await scheduler.trigger("tick")

    delivery = await harness.take(scheduler.queue)
    assert delivery.id == id
    assert delivery.occurrence is not None
    assert delivery.occurrence.trigger == id
    await scheduler.queue.ack(delivery)
    await scheduler.resume("tick")
    await harness.pass_time(1.1)
    count = await scheduler.run_due()
    assert count >= 1, "the time after it did not fire"
    await _occurrences(harness, scheduler.queue, count)


@rule("CRON-1", "DELAY-1")
async def jitter_puts_a_job_off_in_the_store(harness: Harness) -> None:
    """The tick is taken at its time, and its job waits for the rest."""
    [scheduler] = await _schedulers(harness, 1, _schedule(jitter=800))

    await harness.pass_time(1.1)
    count = await scheduler.run_due()

    assert count >= 1
    assert await scheduler.queue.size() == count
    await harness.expect_nothing(scheduler.queue)


@rule("OCC-1")
async def a_scheduled_job_carries_its_occurrence_sealed(harness: Harness) -> None:
    """The schedule, the time and the fingerprint of its times, from any connection."""
    keyring = Keyring(active="k1", keys={"k1": b"k" * 32})
    one, other = await _schedulers(harness, 2, keyring=keyring)
    await harness.pass_time(1.1)
    pushed = await one.run_due()
    assert pushed >= 1

    occurrence = (await harness.take_many(other.queue, pushed))[0].occurrence

    assert occurrence is not None
    assert occurrence.schedule == "tick"
    assert occurrence.due_at.microsecond == 0
    assert occurrence.fingerprint == one.schedules[0].times().fingerprint


@rule("OCC-1")
async def an_occurrence_has_one_owner(harness: Harness) -> None:
    """Of many who ask one gets it; it is complete once, and then for good."""
    (_, one), (_, other) = await _stores(harness, 2)
    runtimes = [OccurrenceNotes(one), OccurrenceNotes(other)]
    tick = occurrence_at("tick", _NOON, "aaaa")

    answers = await asyncio.gather(*(runtimes[turn % 2].acquire(tick, f"w{turn}") for turn in range(8)))

    leases = [answer for answer in answers if isinstance(answer, OccurrenceLease)]
    assert len(leases) == 1, f"{len(leases)} workers own one occurrence"
    assert await runtimes[1].acquire(occurrence_at("tick", _NOON + 1, "aaaa"), "w") is not None
    assert await runtimes[0].renew(leases[0])
    assert await runtimes[1].complete(leases[0])
    assert await runtimes[0].complete(leases[0]), "completing it twice is once"
    assert isinstance(await runtimes[0].acquire(tick, "late"), OccurrenceDone)
    assert not await runtimes[0].dead_letter(leases[0], "error")


@rule("OCC-1")
async def a_lost_occurrence_lease_fences_its_owner(harness: Harness) -> None:
    """After its time the next who asks gets it, with a higher fence; whoever had it changes nothing."""
    (_, one), (_, other) = await _stores(harness, 2)
    runtime, another = OccurrenceNotes(one, lease=harness.lease), OccurrenceNotes(other, lease=600)
    tick = occurrence_at("tick", _NOON, "aaaa")
    first = await runtime.acquire(tick, "first")
    assert isinstance(first, OccurrenceLease)
    assert await another.acquire(tick, "second") is None
    await harness.pass_time(harness.lease * 1.1)

    second = await another.acquire(tick, "second")

    assert isinstance(second, OccurrenceLease)
    assert second.fence > first.fence
    assert not await runtime.renew(first)
    assert not await runtime.complete(first)
    assert not await runtime.dead_letter(first, "error")
    assert not await runtime.release(first)
    assert await another.renew(second)
    assert await another.release(second)
    third = await runtime.acquire(tick, "third")
    assert isinstance(third, OccurrenceLease)
    assert await runtime.dead_letter(third, "error")
    assert not await runtime.complete(third)
    fourth = await another.acquire(tick, "fourth")
    assert isinstance(fourth, OccurrenceLease), "what was set aside can be put back by a person"
    assert fourth.fence > third.fence > second.fence


@rule("OCC-1")
async def a_worker_runs_no_occurrence_that_is_complete(harness: Harness) -> None:
    """A second delivery of the same job is acked unrun; one that another worker runs goes back."""
    [scheduler] = await _schedulers(harness, 1)
    queue, runtime = scheduler.queue, OccurrenceNotes(scheduler.store)
    await harness.pass_time(1.1)
    await _occurrences(harness, queue, await scheduler.run_due() - 1)
    delivery = await harness.take(queue)
    assert delivery.occurrence is not None
    await queue.release(delivery, counted=False)
    ran: list[str] = []

    async def handle(note: Note, delivery: Delivery) -> None:
        ran.append(delivery.id)

    handlers = Handlers()
    handlers.on(Note, handle)
    worker = Worker(queue, handlers, occurrences=runtime)

    assert await worker.run_one(harness.patience) == "acked"
    backend = await harness.backend()
    assert await backend.push([Message(delivery.id, DEFAULT, delivery.reserved.payload)]) == [None]
    assert await worker.run_one(harness.patience) == "acked"
    assert ran == [delivery.id], f"it ran {len(ran)} times"

    elsewhere = occurrence_at("tick", _NOON, "aaaa", trigger=await scheduler.trigger("tick"))
    held = await harness.take(queue)
    assert held.occurrence is not None
    assert held.occurrence.trigger == elsewhere.trigger
    await runtime.acquire(held.occurrence, "another")
    await queue.release(held, counted=False)
    assert await worker.run_one(harness.patience) == "released"
    assert ran == [delivery.id], "it ran though another worker runs it"
