"""How often a job is tried, after what pause, and where it ends (ATT-1 to ATT-4, WORK-10, ARG-5)."""

import asyncio
import time

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, logged, running

from aqueue import (
    Backoff,
    Delivery,
    Discard,
    Handlers,
    InvalidQueueArgument,
    JobFailed,
    JobReleased,
    Outcome,
    Queue,
    Retry,
    Sensitive,
    Snooze,
    Worker,
    job,
)
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place


@job(name="attempts.note")
class Note:
    text: str = ""


@job(name="attempts.capped", max_attempts=2, backoff=Backoff.none())
class Capped:
    text: str = ""


@job(name="attempts.short", timeout=0.05)
class Short:
    text: str = ""


@job(name="attempts.secret")
class Secret:
    token: Sensitive[str]

    async def handle(self) -> None: ...


class Attempts:
    """A handler that always raises the same, and what it saw."""

    def __init__(self, *raises: BaseException) -> None:
        self.raises = list(raises)
        self.seen: list[int] = []
        self.at: list[float] = []
        self.handlers = Handlers()
        for each in (Note, Capped, Short):
            self.handlers.on(each, self.handle)

    async def handle(self, _: object, delivery: Delivery) -> None:
        self.seen.append(delivery.attempt)
        self.at.append(time.monotonic())
        if self.raises:
            raise self.raises[min(len(self.seen), len(self.raises)) - 1]


@pytest.mark.rule("ATT-2")
@pytest.mark.parametrize(("cap", "starts"), [(0, 1), (1, 1), (2, 2), (4, 4)])
async def test_a_job_that_always_fails_is_started_exactly_as_often_as_its_cap_says(
    place: Place, cap: int, starts: int
) -> None:
    queue, attempts = await place.queue(), Attempts(ValueError("never"))
    await queue.push(Note())

    assert await Worker(queue, attempts.handlers, max_attempts=cap).run_all() == starts
    assert attempts.seen == list(range(1, starts + 1))
    (failed,) = await queue.failed.list()
    assert (failed.reason, failed.attempts) == ("error", starts)


@pytest.mark.rule("ATT-2")
@pytest.mark.parametrize(
    ("pushed", "declared", "worker", "starts"),
    [(3, True, 9, 3), (None, True, 9, 2), (None, False, 3, 3), (0, True, 9, 1), (None, False, 0, 1)],
)
async def test_the_cap_of_the_push_wins_over_the_jobs_and_that_over_the_workers(
    memory: Place, pushed: int | None, declared: bool, worker: int, starts: int
) -> None:
    queue, attempts = await memory.queue(), Attempts(ValueError("never"))
    await queue.push(Capped() if declared else Note(), max_attempts=pushed)

    assert await Worker(queue, attempts.handlers, max_attempts=worker).run_all() == starts


@pytest.mark.rule("ATT-1")
async def test_giving_back_adds_no_attempt_and_a_failure_adds_one(place: Place) -> None:
    queue = await place.queue()
    attempts = Attempts(Snooze(0), Snooze(0), ValueError("counted"), Snooze(0), Retry(), ValueError("last"))
    await queue.push(Note())

    assert await Worker(queue, attempts.handlers, max_attempts=3).run_all() == 6
    assert attempts.seen == [1, 1, 1, 2, 2, 3]
    (failed,) = await queue.failed.list()
    assert (failed.attempts, failed.error) == (3, "last")


@pytest.mark.rule("ATT-1", "ATT-3")
async def test_a_lease_that_ran_out_counts_as_an_attempt_but_only_a_raise_consults_the_cap(
    place: Place,
) -> None:
    queue, attempts = await place.queue(lease=0.1), Attempts()
    await queue.push(Note())
    for _ in range(3):
        await lose_a_lease(queue)

    async def outcome() -> None:
        assert await Worker(queue, attempts.handlers, max_attempts=2).run_one() is Outcome.ACKED

    await eventually(outcome)
    assert attempts.seen == [4]


@pytest.mark.rule("ATT-3")
@pytest.mark.parametrize(("most", "runs"), [(2, False), (3, True), (0, True)])
async def test_a_job_whose_lease_ran_out_too_often_is_set_aside_unrun(
    place: Place, most: int, runs: bool
) -> None:
    queue, attempts = await place.queue(lease=0.1), Attempts()
    await queue.push(Note())
    for _ in range(2):
        await lose_a_lease(queue)
    worker = Worker(queue, attempts.handlers, max_lost=most)
    outcomes: list[Outcome] = []

    async def handled() -> bool:
        if (outcome := await worker.run_one()) is not None:
            outcomes.append(outcome)
        return bool(outcomes)

    await eventually(handled)
    assert outcomes == [Outcome.ACKED if runs else Outcome.FAILED]
    assert attempts.seen == ([3] if runs else [])
    if not runs:
        (failed,) = await queue.failed.list()
        assert (failed.reason, failed.lost, failed.attempts) == ("lost", 2, 2)


@pytest.mark.rule("ATT-3")
async def test_a_counted_failure_between_lost_leases_starts_the_poison_guard_anew(place: Place) -> None:
    queue = await place.queue(lease=0.1)
    attempts = Attempts(ValueError("once"), Snooze(0), Discard("enough"))
    worker = Worker(queue, attempts.handlers, max_attempts=9, max_lost=2)
    await queue.push(Note())

    await lose_a_lease(queue)
    await eventually(lambda: handled_one(worker))
    await lose_a_lease(queue)
    await eventually(lambda: handled_one(worker))

    assert attempts.seen == [2, 4]
    assert await counts(queue) == (1, 0, 0, 0)


@pytest.mark.rule("ATT-4")
@pytest.mark.parametrize("where", ["job", "worker"])
async def test_a_failed_attempt_waits_for_its_backoff(place: Place, where: str) -> None:
    asked: list[int] = []

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 60.0

    queue, attempts = await place.queue(), Attempts(ValueError("again"))

    @job(name="attempts.patient", backoff=backoff)
    class Patient: ...

    attempts.handlers.on(Patient, attempts.handle)
    worker = Worker(
        queue,
        attempts.handlers,
        max_attempts=3,
        backoff=backoff if where == "worker" else Backoff.none(),
    )
    await queue.push(Patient() if where == "job" else Note())

    assert await worker.run_all() == 1
    assert asked == [1]
    assert await counts(queue) == (0, 1, 0, 0)


@pytest.mark.rule("ATT-4")
@pytest.mark.parametrize("signal", [Retry(after=60), Snooze(60)])
async def test_a_handler_may_choose_when_it_is_tried_again(place: Place, signal: Retry | Snooze) -> None:
    queue, attempts = await place.queue(), Attempts(signal)
    await queue.push(Note())

    assert await Worker(queue, attempts.handlers, max_attempts=3).run_one() is Outcome.RELEASED
    assert await counts(queue) == (0, 1, 0, 0)


@pytest.mark.rule("ATT-4")
async def test_a_retry_ends_at_the_cap_like_any_failure_and_a_discard_ends_at_once(place: Place) -> None:
    queue = await place.queue()
    retrying, discarding = Attempts(Retry(after=0)), Attempts(Discard("no such user"))

    await queue.push(Note())
    assert await Worker(queue, retrying.handlers, max_attempts=2).run_all() == 2
    await queue.push(Note())
    assert await Worker(queue, discarding.handlers, max_attempts=2).run_all() == 1

    reasons = sorted([(failed.reason, failed.attempts) for failed in await queue.failed.list()])
    assert reasons == [("discarded", 1), ("error", 2)]
    (discarded,) = [failed for failed in await queue.failed.list() if failed.reason == "discarded"]
    assert discarded.error == "no such user"


@pytest.mark.rule("ATT-4", "WORK-3")
@pytest.mark.parametrize("pause", [-1.0, float("nan"), float("inf"), "soon", None])
async def test_a_backoff_that_answers_nonsense_or_raises_strands_no_job(place: Place, pause: object) -> None:
    def backoff(_: int) -> float:
        if pause is None:
            raise ZeroDivisionError
        return pause  # type: ignore[return-value]  # nonsense is the point

    queue, attempts = await place.queue(), Attempts(ValueError("again"), Discard("enough"))
    worker = Worker(queue, attempts.handlers, max_attempts=5, backoff=backoff)
    await queue.push(Note())

    async with running(worker):
        await all_settled(queue)
    assert await counts(queue) == (0, 0, 0, 1)


@pytest.mark.rule("WORK-2", "WORK-3")
@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException, asyncio.CancelledError]
)
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_no_error_of_a_handler_ends_more_than_its_own_job(
    any_place: Place, kind: type[BaseException], sync: bool
) -> None:
    queue, handlers, done = await any_place.queue(), Handlers(), []
    gate = asyncio.Event()

    async def raising(_: Capped) -> None:
        raise kind

    def raising_in_a_thread(_: Capped) -> None:
        raise kind

    @handlers.on(Note)
    async def neighbour(note: Note) -> None:
        await gate.wait()
        done.append(note.text)

    handlers.on(Capped, raising_in_a_thread if sync else raising)
    await queue.push_many([Note("before"), Capped(), Capped(), Note("after")])

    async with running(Worker(queue, handlers, concurrency=3)) as task:
        await eventually(lambda: failed_count(queue, 2))
        gate.set()
        await all_settled(queue)
        assert not task.done()
    assert sorted(done) == ["after", "before"]
    kinds = {(failed.error_type, failed.attempts) for failed in await queue.failed.list()}
    assert {attempts for _, attempts in kinds} == {2}
    assert {name.rpartition(".")[2] for name, _ in kinds} == {kind.__name__}


@pytest.mark.rule("ARG-5")
async def test_a_failure_hides_what_is_sensitive_from_the_log_whatever_went_wrong(place: Place) -> None:
    """A job the worker can't even name keeps its secrets: they are marked by whoever pushed it."""
    queue = await place.queue(lease=0.1)
    await queue.push(Secret("hunter2"))

    with logged() as log:
        assert await Worker(queue, []).run_one() is Outcome.FAILED
        await queue.failed.retry((await queue.failed.list())[0].id)
        await lose_a_lease(queue)
        await eventually(lambda: handled_one(Worker(queue, [Secret], max_lost=1)))

    assert "hunter2" not in "\n".join(log.messages())
    assert "[redacted]" in "\n".join(log.messages())


@pytest.mark.rule("WORK-5")
async def test_events_tell_how_an_attempt_ended_and_what_comes_next(place: Place) -> None:
    queue, attempts = await place.queue(), Attempts(ValueError("first"), Snooze(0), ValueError("last"))
    events: list[JobReleased | JobFailed] = []
    worker = Worker(queue, attempts.handlers, max_attempts=2)
    worker.listen(JobReleased, events.append)
    worker.listen(JobFailed, events.append)
    job_id = await queue.push(Note("hello"))

    await worker.run_all()

    told = [
        (type(event).__name__, event.id, event.name, event.queue, event.attempt, dict(event.args))
        for event in events
    ]
    same = (job_id, "attempts.note", "default")
    args = {"text": "hello"}
    assert told == [
        ("JobReleased", *same, 1, args),
        ("JobReleased", *same, 2, args),
        ("JobFailed", *same, 2, args),
    ]
    assert [event.counted for event in events if isinstance(event, JobReleased)] == [True, False]
    assert all(event.duration > 0 for event in events)
    assert [str(event.error) for event in (events[0], events[2])] == ["first", "last"]


async def test_a_backoff_is_checked_when_it_is_declared() -> None:
    with pytest.raises(InvalidQueueArgument):
        Backoff.fixed(float("nan"))
    with pytest.raises(InvalidQueueArgument):
        Backoff.exponential(-1, 5)


async def lose_a_lease(queue: Queue) -> None:
    """Reserve the job and let nobody settle it."""

    async def taken() -> bool:
        return bool(await queue.pop_now(1))

    await eventually(taken)


async def handled_one(worker: Worker) -> bool:
    return await worker.run_one() is not None


async def failed_count(queue: Queue, expected: int) -> bool:
    return await queue.failed.count() == expected
