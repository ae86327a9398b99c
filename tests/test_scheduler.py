"""The scheduler at work: one job for each time, however many look, whatever is killed, paused or away."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from support.working import logged, running

from aqueue import (
    Delivery,
    Handlers,
    InvalidQueueArgument,
    NotesMissing,
    Occurrence,
    OccurrenceDone,
    OccurrenceLease,
    OccurrenceLost,
    OccurrenceNotes,
    Queue,
    QueueClosed,
    Schedule,
    Scheduler,
    Unique,
    UnknownSchedule,
    Unsupported,
    Worker,
    connect,
    job,
)
from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.contract.occurrence import occurrence_at
from aqueue.errors import ConnectionFailed
from aqueue.port import Answer, Message, NotDispatched, Note, NoteKey, Noting
from aqueue.queue import QueueOptions
from aqueue.testing import LoopClock, ManualClock, MemoryQueue, eventually, in_virtual_time

pytestmark = pytest.mark.rule("CRON-1")

T = TypeVar("T")

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()


@job(name="scheduler.report")
class Report:
    depth: int = 1


@job(name="scheduler.single", unique=Unique())
class Single:
    pass


def every_minute(name: str = "minutely", **options: Any) -> Schedule:
    return Schedule(name, "* * * * *", job=Report(), **options)


async def taken(queue: Queue) -> list[Delivery]:
    """Take and acknowledge everything that is due."""
    found = []
    while deliveries := await queue.pop_now(100):
        for delivery in deliveries:
            await queue.ack(delivery)
        found += deliveries
    return found


def dues(deliveries: Sequence[Delivery]) -> list[float]:
    return [each.occurrence.due_at.timestamp() for each in deliveries if each.occurrence is not None]


class Skewed:
    """Another process's clock: some seconds off, in virtual time."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def __call__(self) -> float:
        return self._clock() + self._seconds


class Simulation:
    """Six schedulers on one store in virtual time, with clocks that are off, of which one dies at times."""

    def __init__(self, start: float, *schedules: Schedule) -> None:
        self.clock = LoopClock(start)
        self._shelf = Shelf()
        self._schedules = schedules
        self.found: list[Delivery] = []

    async def run(self, seconds: float, skews: Sequence[float], deaths: int) -> None:
        """Run them until the time is over, and collect what comes."""
        async with AsyncExitStack() as stack:
            queues = [await stack.enter_async_context(self._queue(skew)) for skew in skews]
            tasks = [self._start(queue) for queue in queues]
            collecting = asyncio.create_task(self._collect(queues[0]))
            for turn in range(deaths):
                await asyncio.sleep(seconds / (deaths + 1))
                tasks[turn % len(tasks)].cancel()
                await asyncio.wait([tasks[turn % len(tasks)]])
                tasks[turn % len(tasks)] = self._start(queues[turn % len(tasks)])
            await asyncio.sleep(seconds / (deaths + 1))
            for task in (*tasks, collecting):
                task.cancel()
            await asyncio.wait([*tasks, collecting])
            self.found += await taken(queues[0])

    def _queue(self, skew: float) -> Queue:
        clock = Skewed(self.clock, skew)
        backend = MemoryBackend(self._shelf, lease=60, clock=clock)
        return Queue(backend, QueueOptions(lease=60, clock=clock))

    def _start(self, queue: Queue) -> "asyncio.Task[None]":
        return asyncio.create_task(Scheduler(queue, self._schedules).run())

    async def _collect(self, queue: Queue) -> None:
        """Handle each job long before the next look, as a quick handler does (case O-24 a)."""
        while True:
            self.found += await taken(queue)
            await asyncio.sleep(0.5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("day", [(2026, 3, 28), (2026, 10, 24)], ids=["spring", "autumn"])
def test_six_schedulers_with_clocks_apart_give_each_of_thousands_of_times_one_job(
    day: tuple[int, int, int],
) -> None:
    """Over a change of the clocks, with somebody dying now and then: 10,000 ticks in both together."""
    begin = datetime(*day, 12, tzinfo=BERLIN).timestamp()
    nightly = Schedule("nightly", "30 2 * * *", tz="Europe/Berlin", job=Report(2))
    often = Schedule("often", "@every 22s", job=Report(3))
    minutely = Schedule("minutely", "*/3 * * * *", tz="Europe/Berlin", job=Report())
    seconds = 28 * 3600

    @in_virtual_time
    async def simulated() -> Simulation:
        simulation = Simulation(begin, nightly, often, minutely)
        await simulation.run(seconds, [0, 2.5, -2.5, 1.0, -0.3, 4.0], deaths=40)
        return simulation

    found = simulated().found

    for schedule in (nightly, often, minutely):
        fired = [
            each.occurrence for each in found if each.occurrence and each.occurrence.schedule == schedule.name
        ]
        counted = Counter(int(occurrence.due_at.timestamp()) for occurrence in fired)
        expected = list(schedule.times().between(begin + 10, begin + seconds - 10))
        assert max(counted.values()) == 1, f"{schedule.name} fired twice"
        assert [due for due in expected if due not in counted] == [], f"{schedule.name} missed"
        assert len(expected) <= len(counted) <= len(expected) + 2
    assert len(found) > 5000


async def test_down_for_an_hour_and_down_for_days_there_is_one_catch_up(tmp_path: Path) -> None:
    """Hourly, a minute's grace: 00:55 to 01:55, then three days (case O-24 b)."""
    clock = ManualClock(datetime(2026, 5, 1, 0, 55, tzinfo=UTC).timestamp())
    async with connect(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as queue:
        hourly = Schedule("hourly", "0 * * * *", job=Report())
        assert await Scheduler(queue, [hourly]).run_due() == 0

        clock.advance(3600)
        assert await Scheduler(queue, [hourly]).run_due() == 1
        clock.advance(300)
        assert await Scheduler(queue, [hourly]).run_due() == 1
        clock.advance(3 * 86_400 + 55 * 60)
        assert await Scheduler(queue, [hourly]).run_due() == 1

        assert [f"{due:%d %H}" for due in map(_utc, dues(await taken(queue)))] == ["01 01", "01 02", "04 02"]


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def test_a_system_clock_that_is_set_back_fires_nothing_a_second_time() -> None:
    now = [NOON + 1]
    async with connect("memory://", clock=lambda: now[0]) as queue:
        scheduler = Scheduler(queue, [every_minute()])
        await scheduler.run_due()
        now[0] = NOON + 600
        assert await scheduler.run_due() >= 1
        before = len(await taken(queue))

        for second in range(0, 600, 7):
            now[0] = NOON + second
            assert await scheduler.run_due() == 0

        now[0] = NOON + 660
        assert await scheduler.run_due() == 1
        assert before >= 1


class Unreliable(MemoryBackend):
    """Fails calls on request: before they are made, or after."""

    fails_before: list[str]
    fails_after: list[str]

    def __init__(self, shelf: Shelf, *, clock: Callable[[], float]) -> None:
        super().__init__(shelf, lease=60, clock=clock)
        self.fails_before, self.fails_after = [], []

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await self._unless_told("write", lambda: super(Unreliable, self).write_notes(batch))

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        return await self._unless_told("read", lambda: super(Unreliable, self).read_notes(keys))

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await self._unless_told("push", lambda: super(Unreliable, self).push(batch))

    async def _unless_told(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if verb in self.fails_before:
            self.fails_before.remove(verb)
            raise NotDispatched(f"told to fail {verb}")
        answer = await call()
        if verb in self.fails_after:
            self.fails_after.remove(verb)
            raise TimeoutError
        return answer


def unreliable(clock: Callable[[], float]) -> tuple[Unreliable, Queue]:
    backend = Unreliable(Shelf(), clock=clock)
    return backend, Queue(backend, QueueOptions(lease=60, clock=clock))


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("verb", ["read", "write"])
async def test_whatever_call_fails_the_next_look_leaves_one_job(verb: str, where: str) -> None:
    clock = ManualClock(NOON + 1)
    backend, queue = unreliable(clock)
    async with queue:
        scheduler = Scheduler(queue, [every_minute()])
        await scheduler.run_due()
        clock.advance(60)
        (backend.fails_before if where == "before" else backend.fails_after).append(verb)

        for _ in range(3):
            with suppress(Exception):  # which one is the store's business
                await scheduler.run_due()

        assert dues(await taken(queue)) == [NOON + 60]


@pytest.mark.parametrize(
    "fails", [("push", "before"), ("push", "after"), ("write", "before"), ("write", "after")]
)
async def test_with_notes_elsewhere_the_next_look_leaves_one_job_too(fails: tuple[str, str]) -> None:
    """The id of a tick's job is the same whoever pushes it, so a store that can tell ids stores it once."""
    clock = ManualClock(NOON + 1)
    jobs, queue = unreliable(clock)
    notes, store = unreliable(clock)
    async with queue, store:
        scheduler = Scheduler(queue, [every_minute()], store=store)
        await scheduler.run_due()
        clock.advance(60)
        broken = jobs if fails[0] == "push" else notes
        (broken.fails_before if fails[1] == "before" else broken.fails_after).append(fails[0])

        for _ in range(4):
            with suppress(Exception):  # which one is the store's business
                await scheduler.run_due()
            clock.advance(21)

        assert [due for due in dues(await taken(queue)) if due == NOON + 60] == [NOON + 60]
        assert (await scheduler.list())[0].last_fired is not None


async def test_ticks_in_the_hands_of_the_dead_are_pushed_by_another_after_a_minute() -> None:
    clock = ManualClock(NOON + 1)
    jobs, queue = unreliable(clock)
    notes, store = unreliable(clock)
    async with queue, store:
        scheduler = Scheduler(queue, [every_minute()], store=store)
        await scheduler.run_due()
        clock.advance(60)
        jobs.fails_before.append("push")
        with pytest.raises(NotDispatched):
            await _dies_before_marking(scheduler, notes)
        assert await Scheduler(queue, [every_minute()], store=store).run_due() == 0

        clock.advance(61)
        assert await Scheduler(queue, [every_minute()], store=store).run_due() >= 1

        assert dues(await taken(queue))[0] == NOON + 60


async def _dies_before_marking(scheduler: Scheduler, notes: Unreliable) -> None:
    """Let the push fail, and the write that would have said so as well."""
    written = notes.write_notes
    calls = 0

    async def dying(batch: Sequence[Noting]) -> Sequence[Answer]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise NotDispatched("dead")
        return await written(batch)

    notes.write_notes = dying  # type: ignore[method-assign]
    try:
        await scheduler.run_due()
    finally:
        del notes.write_notes


async def test_a_unique_job_is_not_pushed_again_while_it_waits() -> None:
    clock = ManualClock(NOON + 1)
    async with connect("memory://", clock=clock) as queue:
        scheduler = Scheduler(queue, [Schedule("single", "* * * * *", job=Single())])
        await scheduler.run_due()
        for _ in range(3):
            clock.advance(60)
            assert await scheduler.run_due() == 1
        assert dues(await taken(queue)) == [NOON + 60]

        clock.advance(60)
        await scheduler.run_due()
        assert dues(await taken(queue)) == [NOON + 240]


async def test_more_ticks_than_one_step_pushes_come_in_several() -> None:
    clock = ManualClock(NOON)
    async with connect("memory://", clock=clock) as queue:
        scheduler = Scheduler(queue, [Schedule("s", "@every 1s", job=Report(), missed=1000)])
        await scheduler.run_due()
        clock.advance(350)

        assert await scheduler.run_due() == 350

        assert dues(await taken(queue)) == [NOON + second for second in range(1, 351)]


@in_virtual_time
async def test_a_running_scheduler_sees_a_pause_and_a_resume_in_time() -> None:
    queue = MemoryQueue(clock=LoopClock(NOON))
    here, elsewhere = (Scheduler(queue, [every_minute()]) for _ in range(2))
    task = asyncio.create_task(here.run())
    await asyncio.sleep(70)
    await elsewhere.pause("minutely")
    await asyncio.sleep(180)
    await elsewhere.resume("minutely")
    await asyncio.sleep(60)
    here.stop()
    await task

    assert dues(await taken(queue)) == [NOON + 60, NOON + 300]


@in_virtual_time
async def test_an_idle_scheduler_looks_twice_a_minute() -> None:
    looks = 0

    class Counting(MemoryBackend):
        async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
            nonlocal looks
            looks += 1
            return await super().read_notes(keys)

    clock = LoopClock(NOON)
    backend = Counting(Shelf(), lease=60, clock=clock)
    async with Queue(backend, QueueOptions(clock=clock)) as queue:
        scheduler = Scheduler(queue, [Schedule("yearly", "@yearly", job=Report())])
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(3600)
        scheduler.stop()
        await task

    assert 115 <= looks <= 160


async def test_stop_ends_a_sleep_and_a_stopped_one_can_run_again() -> None:
    async with connect("memory://") as queue:
        scheduler = Scheduler(queue, [Schedule("yearly", "@yearly", job=Report())])
        scheduler.stop()
        for _ in range(2):
            task = asyncio.create_task(scheduler.run())
            await eventually(lambda: scheduler.health().ok)
            with pytest.raises(InvalidQueueArgument, match="running already"):
                await scheduler.run()
            assert "running" in repr(scheduler)
            scheduler.stop()
            async with asyncio.timeout(5):
                await task
            assert not scheduler.health().running


@in_virtual_time
async def test_a_store_that_is_away_is_waited_for_and_told_of() -> None:
    backend, queue = unreliable(LoopClock(NOON))
    async with queue:
        scheduler = Scheduler(queue, [every_minute()])
        with logged("aqueue.worker") as records:
            task = asyncio.create_task(scheduler.run())
            await asyncio.sleep(50)
            backend.fails_before += ["read"] * 5
            await asyncio.sleep(12)
            await eventually(lambda: not backend.fails_before, timeout=60)
            await asyncio.sleep(60)
            scheduler.stop()
            await task

        assert NOON + 60 in dues(await taken(queue))
        assert records.messages(logging.WARNING) or records.messages(logging.ERROR)


async def test_a_queue_that_is_not_open_is_an_error_at_once() -> None:
    scheduler = Scheduler(connect("memory://"), [every_minute()])

    with pytest.raises(QueueClosed):
        await scheduler.run()


@in_virtual_time
async def test_a_worker_runs_its_scheduler_as_long_as_itself() -> None:
    queue = MemoryQueue(clock=LoopClock(NOON))
    ran: list[datetime] = []
    handlers = Handlers()

    @handlers.on(Report)
    async def handle(_: Report, delivery: Delivery) -> None:
        assert delivery.occurrence is not None
        ran.append(delivery.occurrence.due_at)

    scheduler = Scheduler(queue, [every_minute()])
    async with running(Worker(queue, handlers, scheduler=scheduler)):
        await asyncio.sleep(190)
        assert scheduler.health().running
    assert not scheduler.health().running

    assert [due.minute for due in ran] == [1, 2, 3]


async def test_a_worker_whose_scheduler_cant_run_ends_with_its_error() -> None:
    async with connect("memory://") as queue:
        worker = Worker(queue, [], queues=[], scheduler=Scheduler(connect("memory://"), [every_minute()]))

        with pytest.raises(QueueClosed):
            async with asyncio.timeout(10):
                await worker.run()


async def test_what_a_scheduler_cant_do_is_refused_when_it_is_built() -> None:
    queue = connect("memory://")
    with pytest.raises(InvalidQueueArgument, match="two schedules named"):
        Scheduler(queue, [every_minute(), every_minute()])
    with pytest.raises(InvalidQueueArgument, match="takes schedules"):
        Scheduler(queue, ["* * * * *"])  # type: ignore[list-item]
    with pytest.raises(InvalidQueueArgument, match="glance"):
        Scheduler(queue, [], glance=0)
    with pytest.raises(NotesMissing, match=r"store="):
        Scheduler(connect("amqp://localhost/"), [every_minute()])
    with pytest.raises(InvalidQueueArgument, match="delays a job by at most"):
        Scheduler(connect("sqs://eu-west-1"), [every_minute(jitter=901)], store=queue)
    with pytest.raises(Unsupported, match="inline"):
        Scheduler(connect("inline://", handlers=[]), [every_minute()], store=queue)


async def test_schedules_are_known_by_name() -> None:
    clock = ManualClock(NOON)
    async with connect("memory://", clock=clock) as queue:
        nightly = Schedule("nightly", "0 3 * * *", tz="Europe/Berlin", job=Report(), queue="reports")
        scheduler = Scheduler(queue, [nightly, every_minute()])
        for asking in (scheduler.pause, scheduler.resume, scheduler.trigger, scheduler.preview):
            with pytest.raises(UnknownSchedule, match="minutely, nightly"):
                await asking("hourly")

        id = await scheduler.trigger("nightly")
        [first, second] = await scheduler.list()

        assert (first.name, first.queue, first.tz, first.paused) == (
            "nightly",
            "reports",
            "Europe/Berlin",
            False,
        )
        assert first.next_due == datetime(2026, 5, 2, 3, tzinfo=BERLIN)
        assert (first.last_fired, second.name) == (None, "minutely")
        assert await scheduler.preview("minutely", 2) == [_utc(NOON + 60), _utc(NOON + 120)]
        delivery = await queue.pop(timeout=1, queues=["reports"])
        assert delivery is not None
        assert delivery.id == id
        assert [each.name for each in scheduler.schedules] == ["nightly", "minutely"]


# --- occurrences ---------------------------------------------------------------------------------------


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    async with connect("memory://") as queue:
        yield queue


async def pushed_tick(queue: Queue, **options: Any) -> tuple[str, Occurrence]:
    """Push a job with an occurrence, and return its id and what it was pushed for."""
    id = await Scheduler(queue, [every_minute(**options)]).trigger("minutely")
    delivery = await queue.pop(timeout=1)
    assert delivery is not None
    assert delivery.occurrence is not None
    await queue.release(delivery, counted=False)
    return id, delivery.occurrence


def handler(handle: Callable[[Delivery], Awaitable[None]]) -> Handlers:
    handlers = Handlers()

    async def called(_: Report, delivery: Delivery) -> None:
        await handle(delivery)

    handlers.on(Report, called)
    return handlers


@pytest.mark.rule("OCC-1")
async def test_an_occurrence_whose_handler_failed_for_good_is_dead(queue: Queue) -> None:
    runtime = OccurrenceNotes(queue)
    _, occurrence = await pushed_tick(queue)

    async def fail(_: Delivery) -> None:
        raise RuntimeError

    assert await Worker(queue, handler(fail), occurrences=runtime).run_one() == "failed"

    assert (await runtime.state(occurrence)).phase == "dead"
    assert (await runtime.state(occurrence)).reason == "error"


@pytest.mark.rule("OCC-1")
async def test_a_retry_need_not_wait_for_the_lease_of_the_attempt_before(queue: Queue) -> None:
    runtime, attempts = OccurrenceNotes(queue, lease=3600), list[int]()
    _, occurrence = await pushed_tick(queue, max_attempts=3)

    async def fail_at_first(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) < 3:
            raise RuntimeError

    assert await Worker(queue, handler(fail_at_first), occurrences=runtime).run_all() == 3

    assert attempts == [1, 2, 3]
    assert (await runtime.state(occurrence)).phase == "done"


@pytest.mark.rule("OCC-1")
async def test_a_job_put_back_by_hand_runs_again_after_it_was_dead(queue: Queue) -> None:
    runtime, ran = OccurrenceNotes(queue), list[str]()
    id, occurrence = await pushed_tick(queue)

    async def fail_once(delivery: Delivery) -> None:
        ran.append(delivery.id)
        if len(ran) == 1:
            raise RuntimeError

    worker = Worker(queue, handler(fail_once), occurrences=runtime)
    await worker.run_all()
    assert await queue.failed.retry(id)
    await worker.run_all()

    assert ran == [id, id]
    assert (await runtime.state(occurrence)).phase == "done"


class Revoking:
    """A runtime whose leases can be taken away, and which remembers what it was told."""

    def __init__(self) -> None:
        self.is_held = True
        self.told: list[str] = []

    async def acquire(self, occurrence: Occurrence, worker: str) -> OccurrenceLease:
        self.told.append("acquire")
        return OccurrenceLease(occurrence=occurrence, worker=worker, fence=1, seconds=0.15)

    async def renew(self, lease: OccurrenceLease) -> bool:
        return self.is_held

    async def complete(self, lease: OccurrenceLease) -> bool:
        self.told.append("complete")
        return self.is_held

    async def dead_letter(self, lease: OccurrenceLease, reason: str) -> bool:
        self.told.append(reason)
        return self.is_held


@pytest.mark.rule("OCC-1")
async def test_a_lost_occurrence_cancels_its_handler_and_completes_nothing(queue: Queue) -> None:
    runtime, ended = Revoking(), list[str]()
    await pushed_tick(queue)

    async def go_on(_: Delivery) -> None:
        runtime.is_held = False
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with logged() as records:
        assert await Worker(queue, handler(go_on), occurrences=runtime).run_one() == "released"

    assert ended == ["cancelled"]
    assert runtime.told == ["acquire"]
    assert any("somebody else may run" in message for message in records.messages(logging.WARNING))
    assert (await queue.stats()).delayed == 1


@pytest.mark.rule("OCC-1")
async def test_a_handler_that_ends_after_its_lease_was_lost_is_fenced(queue: Queue) -> None:
    runtime = Revoking()
    await pushed_tick(queue)

    async def lose_it(_: Delivery) -> None:
        runtime.is_held = False

    assert await Worker(queue, handler(lose_it), occurrences=runtime).run_one() == "released"

    assert runtime.told == ["acquire", "complete"]
    assert await queue.size() == 1
    assert issubclass(OccurrenceLost, Exception)


@pytest.mark.rule("OCC-1")
async def test_a_lease_is_renewed_while_its_handler_runs(queue: Queue) -> None:
    runtime = OccurrenceNotes(queue, lease=0.3)
    _, occurrence = await pushed_tick(queue)
    others: list[object] = []

    async def take_long(_: Delivery) -> None:
        for _turn in range(5):
            await asyncio.sleep(0.2)
            others.append(await runtime.acquire(occurrence, "other"))

    assert await Worker(queue, handler(take_long), occurrences=runtime).run_one() == "acked"

    assert others == [None] * 5
    assert isinstance(await runtime.acquire(occurrence, "other"), OccurrenceDone)


@pytest.mark.rule("OCC-1")
async def test_a_runtime_that_cant_be_reached_puts_the_job_off_uncounted(queue: Queue) -> None:
    class Away(Revoking):
        async def acquire(self, occurrence: Occurrence, worker: str) -> OccurrenceLease:
            raise ConnectionFailed("the runtime is away")

    await pushed_tick(queue)

    assert await Worker(queue, handler(_unreachable), occurrences=Away()).run_one() == "released"

    assert (await queue.stats()).delayed == 1


async def _unreachable(_: Delivery) -> None:
    raise AssertionError("it ran, though nobody could be asked")


@pytest.mark.rule("OCC-1")
async def test_a_completion_that_was_never_sent_is_sent_again(queue: Queue) -> None:
    class Hiccup(Revoking):
        async def complete(self, lease: OccurrenceLease) -> bool:
            if "complete" not in self.told:
                await super().complete(lease)
                raise ConnectionFailed("for a moment")
            return await super().complete(lease)

    runtime = Hiccup()
    await pushed_tick(queue)

    async def handle(_: Delivery) -> None:
        return

    assert await Worker(queue, handler(handle), occurrences=runtime).run_one() == "acked"

    assert runtime.told == ["acquire", "complete", "complete"]


@pytest.mark.rule("OCC-1")
async def test_an_ordinary_job_is_not_asked_about(queue: Queue) -> None:
    runtime = Revoking()
    await queue.push(Report())

    async def handle(delivery: Delivery) -> None:
        assert delivery.occurrence is None

    assert await Worker(queue, handler(handle), occurrences=runtime).run_one() == "acked"
    assert runtime.told == []


@pytest.mark.rule("OCC-1")
async def test_leases_and_memory_of_occurrences_have_bounds(queue: Queue) -> None:
    for options in ({"lease": 0}, {"keep": 1.0}, {"lease": float("nan")}, {"keep": timedelta(seconds=-1)}):
        with pytest.raises(InvalidQueueArgument):
            OccurrenceNotes(queue, **options)
    with pytest.raises(NotesMissing):
        OccurrenceNotes(connect("amqp://localhost/"))
    state = await OccurrenceNotes(queue).state(occurrence_at("x", NOON, uuid4().hex[:16]))
    assert (state.phase, state.fence) == ("free", 0)
