"""Limits: the decisions, the options, and what happens around them (LIMIT-1 to LIMIT-3)."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.working import running

from aqueue import CircuitBreaker, ConcurrencyLimit, RateLimit, Worker, connect, job
from aqueue.contract.limits import (
    Circuit,
    Slots,
    Starts,
    after_failure,
    keep_slot,
    leave_slot,
    may_try,
    state_of,
    take_slot,
    take_start,
)
from aqueue.errors import Discard, InvalidQueueArgument
from aqueue.events import Outcome
from aqueue.handlers import Handlers
from aqueue.middleware import Bindable
from aqueue.testing import ManualClock, eventually

ran: list[str] = []


@job(name="limits.touch")
class Touch:
    text: str = ""

    async def handle(self) -> None:
        ran.append(self.text)


@job(name="limits.once", middleware=[RateLimit(1, per=3600)])
class Limited:
    async def handle(self) -> None:
        ran.append("limited")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.mark.rule("LIMIT-1")
@pytest.mark.parametrize(("limit", "per"), [(1, 1.0), (3, 1.0), (7, 0.25), (250, 60.0)])
def test_no_window_holds_more_starts_than_the_limit(limit: int, per: float) -> None:
    """However starts fall: here as many as can, asking again and again."""
    state, now, starts = Starts(), 1_000_000.0, list[float]()

    while len(starts) < 3 * limit + 2:
        state, wait = take_start(state, now, limit=limit, per=per)
        if wait == 0:
            starts.append(now)
        now += per / 1000 if wait == 0 else per / 150

    assert all(later - earlier >= per for earlier, later in zip(starts, starts[limit:], strict=False))
    assert starts[-1] - starts[0] < 3.3 * per * (1 + 2 / limit), "far fewer start than could"


@pytest.mark.rule("LIMIT-1")
def test_the_turned_away_come_back_one_after_the_other() -> None:
    state, _ = take_start(Starts(), 100.0, limit=2, per=10.0)
    state, _ = take_start(state, 100.0, limit=2, per=10.0)

    waits = []
    for _ in range(5):
        state, wait = take_start(state, 100.0, limit=2, per=10.0)
        waits.append(round(wait, 1))

    assert waits == [10.1, 15.1, 20.1, 25.1, 30.1]


@pytest.mark.rule("LIMIT-2")
def test_a_slot_is_free_when_it_is_left_and_when_its_lease_is_over() -> None:
    state, wait = take_slot(Slots(), 0.0, "a", limit=2, lease=30.0)
    state, _ = take_slot(state, 0.0, "b", limit=2, lease=30.0)
    assert take_slot(state, 1.0, "c", limit=2, lease=30.0)[1] > 0

    left = leave_slot(state, "a", held=1.0)
    assert take_slot(left, 1.0, "c", limit=2, lease=30.0)[1] == 0
    kept = keep_slot(state, 20.0, "a", lease=30.0)
    late, wait = take_slot(kept, 31.0, "c", limit=2, lease=30.0)
    assert wait == 0
    assert set(late.holders) == {"a", "c"}
    assert take_slot(late, 31.0, "d", limit=2, lease=30.0)[1] > 0


@pytest.mark.rule("LIMIT-2")
def test_one_that_asks_twice_holds_one_slot() -> None:
    state, _ = take_slot(Slots(), 0.0, "a", limit=2, lease=30.0)

    state, wait = take_slot(state, 10.0, "a", limit=2, lease=30.0)

    assert wait == 0
    assert state.holders == {"a": 40.0}


@pytest.mark.rule("LIMIT-2")
def test_the_line_is_as_long_as_slots_are_held() -> None:
    """So that waiting jobs ask about as often as slots get free, whatever a job takes."""
    state = Slots({"a": 1e9}, hold=20.0)
    waits = []
    for number in range(3):
        state, wait = take_slot(state, 0.0, f"waiting {number}", limit=1, lease=30.0)
        waits.append(wait)

    assert waits == [20.0, 40.0, 60.0]


@pytest.mark.rule("LIMIT-3")
def test_a_circuit_opens_is_tried_by_one_and_opens_again() -> None:
    circuit = Circuit()
    for at in (0.0, 50.0, 70.0):
        circuit = after_failure(circuit, at, failures=3, per=60.0, cool=30.0)
    assert may_try(circuit, 70.0, patience=10.0) == (circuit, 0.0), "the first failure was long ago"

    circuit = after_failure(circuit, 80.0, failures=3, per=60.0, cool=30.0)
    assert may_try(circuit, 90.0, patience=10.0)[1] == 20.0
    circuit, wait = may_try(circuit, 111.0, patience=10.0)
    assert wait == 0
    assert may_try(circuit, 112.0, patience=10.0)[1] == 9.0, "somebody is trying it"
    assert may_try(circuit, 122.0, patience=10.0)[1] == 0, "whoever tried it said nothing"
    failed = after_failure(circuit, 115.0, failures=3, per=60.0, cool=30.0)
    assert may_try(failed, 116.0, patience=10.0)[1] == 29.0


@pytest.mark.parametrize("value", [b"", b"{", b"[1,2]", b'{"a":1}', b'[[["x",1]],0]', b"\xff"])
def test_a_note_that_says_nothing_sensible_says_nothing(value: bytes) -> None:
    assert state_of(Starts, value) == Starts()
    assert state_of(Slots, value) == Slots()
    assert state_of(Circuit, value) == Circuit()


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateLimit(0),
        lambda: RateLimit(5, per=0),
        lambda: RateLimit(5, per=float("nan")),
        lambda: ConcurrencyLimit(-1),
        lambda: ConcurrencyLimit(1, lease=0),
        lambda: CircuitBreaker(failures=0),
        lambda: CircuitBreaker(cool=0),
        lambda: CircuitBreaker(on=()),
        lambda: CircuitBreaker(on=("ConnectionError",)),  # type: ignore[arg-type]  # the mistake under test
    ],
)
def test_bad_options_are_refused_where_they_are_written(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidQueueArgument):
        make()


@pytest.mark.rule("LIMIT-1", "MID-1")
async def test_a_limit_may_be_a_jobs_own() -> None:
    async with connect("memory://") as queue:
        await queue.push_many([Limited(), Limited(), Touch("free")])

        await Worker(queue, [Limited, Touch], concurrency=1).run_all()

        assert sorted(ran) == ["free", "limited"]
        assert (await queue.stats()).delayed == 1


@pytest.mark.rule("SYNC-1", "LIMIT-1")
@pytest.mark.parametrize("limit", [RateLimit(1, per=3600), ConcurrencyLimit(1), CircuitBreaker()])
async def test_inline_jobs_are_not_limited(limit: Bindable) -> None:
    """There is nobody to share a limit with, and nowhere to wait."""
    async with connect("inline://", handlers=[Touch], middleware=[limit]) as queue:
        await asyncio.gather(*(queue.push(Touch("x")) for _ in range(5)))

    assert ran == ["x"] * 5


@pytest.mark.rule("LIMIT-1")
async def test_a_key_that_is_no_text_fails_the_attempt() -> None:
    limit = RateLimit(1, key=lambda delivery: 7)  # type: ignore[arg-type, return-value]  # the mistake under test
    async with connect("memory://") as queue:
        await queue.push(Touch())

        await Worker(queue, [Touch], middleware=[limit]).run_all()

        [failed] = await queue.failed.list()
        assert "key is a text, not int" in failed.error


@pytest.mark.rule("LIMIT-2")
async def test_a_slot_is_renewed_while_its_job_runs() -> None:
    """Three leases long, so that only renewing keeps a second job out."""
    limit = ConcurrencyLimit(1, key="one", lease=0.3)
    at_once, most = 0, 0
    handlers = Handlers()

    @handlers.on(Touch)
    async def handle(_: Touch) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.9)
        at_once -= 1
        ran.append("done")

    async with connect("memory://") as queue:
        await queue.push_many([Touch(), Touch()])
        async with running(Worker(queue, handlers, middleware=[limit], poll_timeout=0.05)):
            await eventually(lambda: len(ran) == 2)

    assert most == 1


@pytest.mark.rule("LIMIT-2", "STOP-1")
async def test_a_cancelled_job_gives_its_slot_back() -> None:
    limit = ConcurrencyLimit(1, key="one", lease=3600)
    begun = asyncio.Event()
    handlers = Handlers()

    @handlers.on(Touch)
    async def handle(_: Touch) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async with connect("memory://") as queue:
        await queue.push(Touch("x"))
        async with running(Worker(queue, handlers, middleware=[limit])):
            await begun.wait()
        await Worker(queue, [Touch], middleware=[limit]).run_all()

    assert ran == ["x"]


@pytest.mark.rule("LIMIT-3")
async def test_what_is_not_the_dependencys_failure_does_not_open_the_circuit() -> None:
    breaker = CircuitBreaker(key="k", failures=2, on=(ConnectionError,))
    errors: list[BaseException] = [ValueError(), Discard("no"), ValueError(), ConnectionError()]
    handlers = Handlers()

    @handlers.on(Touch)
    async def handle(_: Touch) -> None:
        if errors:
            raise errors.pop(0)
        ran.append("ran")

    async with connect("memory://") as queue:
        await queue.push_many(Touch() for _ in range(5))

        await Worker(queue, handlers, concurrency=1, middleware=[breaker]).run_all()

    assert ran == ["ran"]


@pytest.mark.rule("LIMIT-3")
async def test_a_circuit_that_one_worker_opened_is_open_for_the_others() -> None:
    breaker = CircuitBreaker(key="k", failures=1, cool=60)
    clock = ManualClock(ticking=True)
    handlers = Handlers()

    @handlers.on(Touch)
    async def handle(job: Touch) -> None:
        ran.append(job.text)
        if job.text == "bad":
            raise ConnectionError

    async with (
        connect("memory://circuit", clock=clock) as one,
        connect("memory://circuit", clock=clock) as two,
    ):
        workers = [Worker(queue, handlers, middleware=[breaker]) for queue in (one, two)]
        await one.push_many([Touch("bad"), Touch("good")])
        await workers[0].run_one()
        await workers[1].run_one()
        assert ran == ["bad"]

        clock.advance(80)
        await workers[1].run_one()

    assert ran == ["bad", "good"]


@pytest.mark.parametrize("limit", [RateLimit(9), ConcurrencyLimit(9), CircuitBreaker()])
@pytest.mark.rule("LIMIT-1", "LIMIT-2", "LIMIT-3")
async def test_a_limit_that_cannot_be_asked_puts_its_job_off(limit: Bindable, tmp_path: Path) -> None:
    """An outage is not the job's failure, so it costs no attempt."""
    path = tmp_path / "jobs.db"
    async with connect(f"sqlite:///{path}") as queue:
        await queue.push(Touch("x"))
        worker = Worker(queue, [Touch], middleware=[limit])
        with sqlite3.connect(path) as database:
            database.execute("ALTER TABLE aqueue_notes RENAME TO elsewhere")
        database.close()

        assert await worker.run_one() is Outcome.RELEASED

        assert ran == []
        stats = await queue.stats()
        assert (stats.delayed, stats.failed) == (1, 0)
