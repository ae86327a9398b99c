"""A handler whose process dies at each of its awaits: what was done twice, and what never."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

from aqueue import AppScope, CallNext, Delivery, Depends, Queue, RequestScope, job
from aqueue.testing import CrashReport, Effects, crash_at_every_await


async def crashing(job_: object, handlers: list[object], effects: Effects) -> CrashReport:
    return await crash_at_every_await(job_, handlers, effects=effects)


@pytest.fixture
def effects() -> Effects:
    return Effects()


async def test_a_handler_without_an_await_dies_before_its_ack(effects: Effects) -> None:
    @job
    async def charge(order: int) -> None:
        effects.record("charged", order)

    report = await crashing(charge.job(7), [charge], effects)

    assert (report.steps, report.expected) == (1, (("charged", 7),))
    assert report.points[0].effects == (("charged", 7), ("charged", 7))
    assert report.doubled == (("charged", 7),)
    assert report.points[0].where == "handled, before the ack"
    with pytest.raises(AssertionError, match=r"1 of 1 deaths did harm:\n  step 1, handled, before the ack: "):
        report.assert_safe()


async def test_each_suspension_is_a_death_and_says_where(effects: Effects) -> None:
    @job
    async def two() -> None:
        await asyncio.sleep(0)
        effects.record("first")
        await asyncio.sleep(0.001)
        effects.record("second")

    report = await crashing(two.job(), [two], effects)

    assert [point.doubled for point in report.points] == [(), ("first",), ("first", "second")]
    assert [point.is_harmless for point in report.points] == [True, False, False]
    lines = [point.where.partition(" in ") for point in report.points[:2]]
    assert all(file.startswith("test_testing_crashes.py:") for file, _, _ in lines)
    assert all(name.endswith("two") for _, _, name in lines)
    assert "step 1" in str(report)
    assert "harmless" in str(report)


async def test_an_idempotent_handler_is_safe(effects: Effects) -> None:
    done: set[int] = set()

    @job
    async def charge(order: int) -> None:
        await asyncio.sleep(0)
        if order not in done:
            done.add(order)
            effects.record("charged", order)
        await asyncio.sleep(0)

    report = await crash_at_every_await(charge.job(7), [charge], effects=effects, reset=done.clear)

    report.assert_safe()
    assert (report.steps, report.doubled, report.missing, report.errors) == (3, (), (), ())


async def test_a_mark_that_is_set_too_early_loses_the_effect(effects: Effects) -> None:
    done: set[int] = set()

    @job
    async def charge(order: int) -> None:
        if order not in done:
            done.add(order)
            await asyncio.sleep(0)
            effects.record("charged", order)

    report = await crash_at_every_await(charge.job(7), [charge], effects=effects, reset=done.clear)

    assert report.missing == (("charged", 7),)
    with pytest.raises(AssertionError, match=r"missing \('charged', 7\)"):
        report.assert_safe()


async def test_a_second_delivery_that_fails_is_told(effects: Effects) -> None:
    rows: set[int] = set()

    @job
    async def insert(row: int) -> None:
        if row in rows:
            raise ValueError("duplicate key")
        rows.add(row)
        await asyncio.sleep(0)

    report = await crash_at_every_await(insert.job(1), [insert], effects=effects, reset=rows.clear)

    assert [str(error) for error in report.errors] == ["duplicate key", "duplicate key"]
    with pytest.raises(AssertionError, match="failed with ValueError: duplicate key"):
        report.assert_safe()


async def test_a_dead_process_runs_no_cleanup(effects: Effects) -> None:
    log: list[str] = []

    @job
    async def careful() -> None:
        try:
            log.append("began")
            await asyncio.sleep(0)
        finally:
            log.append("cleaned up")
            effects.record("cleaned up")

    read: list[tuple[str, ...]] = []

    def probe() -> tuple[str, ...]:
        read.append(tuple(log))
        return tuple(log)

    report = await crash_at_every_await(careful.job(), [careful], effects=probe, reset=log.clear)

    assert report.points[0].effects == ("began", "began", "cleaned up")
    assert effects.seen().count("cleaned up") == 4  # in peace, twice again, and by the one that had returned


async def test_a_cancelled_one_does(effects: Effects) -> None:
    @job
    async def careful() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            effects.record("cleaned up")

    report = await crash_at_every_await(careful.job(), [careful], effects=effects, death="cancel")

    assert [point.doubled for point in report.points] == [("cleaned up",), ("cleaned up",)]


async def test_what_the_handler_had_started_dies_with_it(effects: Effects) -> None:
    @job
    async def spreads() -> None:
        async def late() -> None:
            await asyncio.sleep(0.02)
            effects.record("late")

        async with asyncio.TaskGroup() as group:
            group.create_task(late())
            await asyncio.sleep(0)

    report = await crashing(spreads.job(), [spreads], effects)

    assert [point.doubled for point in report.points] == [(), (), ("late",)]


async def test_timers_of_the_dead_hit_nobody(effects: Effects) -> None:
    @job(timeout=0.05)
    class Slow:
        async def handle(self, delivery: Delivery) -> None:
            async with asyncio.timeout(0.02):
                with anyio.move_on_after(0.02):
                    await asyncio.sleep(0)
            effects.record("done")
            if delivery.attempt > 1:
                await asyncio.sleep(0.04)

    report = await crashing(Slow(), [Slow], effects)

    assert [point.doubled for point in report.points] == [(), ("done",)]
    assert report.errors == ()


async def test_dependencies_and_middleware_are_part_of_the_life(effects: Effects) -> None:
    class Session: ...

    async def session() -> AsyncIterator[Session]:
        await asyncio.sleep(0)
        yield Session()
        await asyncio.sleep(0)

    async def prepare(scope: RequestScope) -> None:
        await asyncio.sleep(0)
        scope.add(str, "prepared")

    async def around(delivery: Delivery, call_next: CallNext) -> object:
        await asyncio.sleep(0)
        effects.record("around")
        return await call_next(delivery)

    @job
    async def work(*, session: Session = Depends(session)) -> None:
        effects.record("worked")

    report = await crash_at_every_await(
        work.job(),
        [work],
        effects=effects,
        scope=AppScope(initializers=[prepare]),
        middleware=[around],
    )

    assert [point.doubled for point in report.points] == [(), (), ("around",), ("around", "worked")]


async def test_jobs_that_a_job_pushes_are_run_and_counted(effects: Effects) -> None:
    @job(queue="mails")
    async def mail() -> None:
        effects.record("mailed")

    @job(queue="orders")
    class Order:
        async def handle(self, queue: Queue) -> None:
            await queue.push(mail.job())

    report = await crashing(Order(), [Order, mail], effects)

    assert report.expected == ("mailed",)
    assert report.points[-1].doubled == ("mailed",)


async def test_effects_may_be_read_by_an_async_function() -> None:
    rows: list[str] = []

    @job
    async def insert() -> None:
        rows.append("row")
        await asyncio.sleep(0)

    async def read() -> list[str]:
        await asyncio.sleep(0)
        return rows

    async def truncate() -> None:
        rows.clear()

    report = await crash_at_every_await(insert.job(), [insert], effects=read, reset=truncate)

    assert [point.doubled for point in report.points] == [("row",), ("row",)]


async def test_a_job_that_fails_in_peace_is_refused(effects: Effects) -> None:
    @job
    async def broken() -> None:
        raise ValueError("broken anyhow")

    with pytest.raises(ValueError, match="broken anyhow"):
        await crashing(broken.job(), [broken], effects)


async def test_a_lock_of_the_dead_is_named_as_what_is_in_the_way(effects: Effects) -> None:
    lock = asyncio.Lock()

    @job
    async def locked() -> None:
        async with lock:
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match=r"a lock.*may be in its way"):
        await crash_at_every_await(locked.job(), [locked], effects=effects, patience=0.1)
    report = await crash_at_every_await(locked.job(), [locked], effects=effects, death="cancel")

    report.assert_safe()
    assert not lock.locked()


async def test_too_many_suspensions_are_told(effects: Effects) -> None:
    @job
    async def long() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="suspended more than 5 times"):
        await crash_at_every_await(long.job(), [long], effects=effects, at_most=5)
    assert (await crashing(long.job(), [long], effects)).steps == 11


async def test_a_cancelled_harness_leaves_nothing_behind(effects: Effects) -> None:
    lock = asyncio.Lock()

    @job
    async def locked() -> None:
        async with lock:
            await asyncio.sleep(0)

    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await crash_at_every_await(locked.job(), [locked], effects=effects)

    assert asyncio.all_tasks() == before
    assert not lock.locked()


def test_a_recorder_keeps_what_happened_in_order() -> None:
    effects = Effects()
    effects.record("one")
    effects.record("two", 2)

    assert effects.seen() == ("one", ("two", 2))
    assert repr(effects) == "<Effects ['one', ('two', 2)]>"
    effects.clear()
    assert effects.seen() == ()
