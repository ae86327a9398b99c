"""Virtual time: what would take hours on a clock takes none, and in the same order."""

import asyncio
import time
from collections.abc import Callable

import anyio
import pytest

from aqueue import Backoff, Delivery, JobFailed, Queue, Worker, connect, job
from aqueue.testing import (
    LoopClock,
    ManualClock,
    MemoryQueue,
    VirtualTimeLoop,
    drain,
    in_virtual_time,
    run_in_virtual_time,
)

HOUR = 3600.0
DAY = 24 * HOUR


def now() -> float:
    return asyncio.get_running_loop().time()


def test_sleeping_moves_the_loop_and_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(100 * DAY)
        return now()

    began = time.monotonic()

    assert run_in_virtual_time(main()) == pytest.approx(100 * DAY)
    assert time.monotonic() - began < 60


@in_virtual_time
async def test_timers_fire_in_their_order() -> None:
    order: list[tuple[str, float]] = []

    async def at(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        order.append((name, now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(at(HOUR, "later"))
        group.create_task(at(10, "sooner"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await asyncio.Event().wait()
        order.append(("timeout", now()))

    assert [name for name, _ in order] == ["sooner", "timeout", "later"]
    assert [at for _, at in order] == pytest.approx([10, 20, HOUR])


@in_virtual_time
async def test_deadlines_of_anyio_are_in_virtual_time_too() -> None:
    with anyio.move_on_after(HOUR) as scope:
        await anyio.sleep(DAY)

    assert scope.cancelled_caught
    assert now() == pytest.approx(HOUR)


def test_a_decorated_test_keeps_its_name_and_its_arguments() -> None:
    @in_virtual_time
    async def waits(seconds: float, *, also: float = 0) -> float:
        """Wait."""
        await asyncio.sleep(seconds + also)
        return now()

    assert waits(5, also=6) == pytest.approx(11)
    assert (waits.__name__, waits.__doc__) == ("waits", "Wait.")


@in_virtual_time
async def test_time_stands_still_while_a_thread_works() -> None:
    sleeper = asyncio.create_task(asyncio.sleep(HOUR))

    await asyncio.to_thread(time.sleep, 0.1)
    await anyio.to_thread.run_sync(time.sleep, 0.1)
    after_threads = now()
    await sleeper  # idle threads of a pool hold nothing up

    assert after_threads == 0.0
    assert now() == pytest.approx(HOUR)


def test_a_deadlock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aqueue.testing.virtual_time._DEADLOCK_AFTER", 0.05)
    loop = VirtualTimeLoop()
    waiting = loop.create_task(asyncio.Event().wait())

    with pytest.raises(RuntimeError, match=r"nothing came for 0.05 s: a deadlock"):
        loop.run_until_complete(waiting)

    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()


@in_virtual_time
async def test_a_queue_made_there_lives_by_the_loop() -> None:
    queue = MemoryQueue()
    assert isinstance(queue.clock, LoopClock)
    before = queue.clock()

    await asyncio.sleep(DAY)

    assert queue.clock() - before == pytest.approx(DAY)


async def test_a_queue_made_elsewhere_lives_by_hand() -> None:
    assert isinstance(MemoryQueue().clock, ManualClock)


@in_virtual_time
async def test_a_loop_clock_starts_where_it_is_told() -> None:
    await asyncio.sleep(5)
    clock = LoopClock(1000.0)

    await asyncio.sleep(7)

    assert clock() == pytest.approx(1007.0)


@pytest.mark.parametrize("place", ["memory", "connected"])
def test_a_worker_runs_delays_backoffs_and_sleeps_in_virtual_time(place: str) -> None:
    starts: list[float] = []

    @job(max_attempts=3, backoff=Backoff.fixed(2 * HOUR))
    class Report:
        async def handle(self, delivery: Delivery) -> None:
            starts.append(now())
            await asyncio.sleep(HOUR)
            if delivery.attempt < 3:
                raise ConnectionError("down")

    async def main() -> None:
        makers: dict[str, Callable[[], Queue]] = {
            "memory": MemoryQueue,
            "connected": lambda: connect("memory://", clock=LoopClock()),
        }
        async with makers[place]() as queue:
            worker = Worker(queue, [Report], poll_timeout=60)
            await queue.push(Report(), delay=HOUR)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(8 * HOUR)
            worker.stop()
            await running
            assert await queue.size() == 0

    run_in_virtual_time(main())

    assert starts == pytest.approx([HOUR, 4 * HOUR, 7 * HOUR], abs=1)


@in_virtual_time
async def test_a_timeout_of_hours_is_over_at_once() -> None:
    errors: list[BaseException | None] = []

    @job(timeout=HOUR)
    async def hangs() -> None:
        await asyncio.Event().wait()

    queue = MemoryQueue()
    worker = Worker(queue, [hangs])
    worker.listen(JobFailed, lambda event: errors.append(event.error))
    await queue.push(hangs.job())

    await worker.run_all()

    assert [type(error) for error in errors] == [TimeoutError]
    assert now() == pytest.approx(HOUR)


@in_virtual_time
async def test_draining_waits_in_virtual_time() -> None:
    starts: list[float] = []

    @job
    async def note() -> None:
        starts.append(now())

    queue = MemoryQueue()
    await queue.push(note.job(), delay=365 * DAY)

    assert (await drain(queue, [note])).seconds == pytest.approx(365 * DAY)
    assert starts == [pytest.approx(365 * DAY)]


@in_virtual_time
async def test_plain_handlers_run_in_virtual_time_too() -> None:
    ran: list[float] = []

    @job
    def blocks() -> None:
        time.sleep(0.05)
        ran.append(1)

    queue = MemoryQueue()
    await queue.push_many([blocks.job(), blocks.job()], delay=HOUR)

    assert (await drain(queue, [blocks])).acked == 2
    assert ran == [1, 1]
    assert now() == pytest.approx(HOUR)
