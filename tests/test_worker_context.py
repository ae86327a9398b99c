"""Each delivery runs in a context of its own; nothing of it reaches a neighbour or a successor (WORK-2)."""

import asyncio
import contextvars
import random

import anyio
import pytest
from opentelemetry import context as otel
from opentelemetry import trace
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, running

from aqueue import AppScope, CallNext, Delivery, Depends, Handlers, RequestScope, Worker, job
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")


@job(name="context.note")
class Note:
    text: str = ""


@job(name="context.wild")
class Wild:
    number: int = 0


@pytest.mark.rule("WORK-2")
async def test_a_hundred_deliveries_at_once_each_see_only_what_they_set_themselves(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()
    seen: list[tuple[str, str, str]] = []
    chance = random.Random(7)

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        before = tenant.get("nobody")
        tenant.set(note.text)
        for _ in range(chance.randrange(1, 10)):
            await asyncio.sleep(0)
        seen.append((note.text, before, tenant.get()))

    names = [f"tenant {number}" for number in range(300)]
    await queue.push_many([Note(name) for name in names])
    async with running(Worker(queue, handlers, concurrency=100)):
        await all_settled(queue)

    assert sorted(seen) == sorted((name, "nobody", name) for name in names)
    assert tenant.get("nobody") == "nobody"


@pytest.mark.rule("WORK-2")
@pytest.mark.parametrize("call", ["run", "run_one", "run_all"])
async def test_a_handler_sees_what_was_set_around_its_worker_and_changes_none_of_it(
    memory: Place, call: str
) -> None:
    queue, handlers = await memory.queue(), Handlers()
    seen: list[str] = []

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        seen.append(tenant.get())
        tenant.set(note.text)

    tenant.set("the host")
    worker = Worker(queue, handlers, concurrency=1)
    await queue.push_many([Note("a"), Note("b")])
    if call == "run":
        async with running(worker):
            await all_settled(queue)
    elif call == "run_one":
        await worker.run_one()
        await worker.run_one()
    else:
        await worker.run_all()

    assert seen == ["the host", "the host"]
    assert tenant.get() == "the host"


@pytest.mark.rule("WORK-2")
async def test_scope_middleware_handler_and_finalisers_share_their_deliverys_context(place: Place) -> None:
    queue, handlers, seen = await place.queue(), Handlers(), []

    def initialize(scope: RequestScope) -> None:
        tenant.set(scope.delivery.id)
        scope.callback(lambda: seen.append(tenant.get()))

    async def around(delivery: Delivery, call_next: CallNext) -> object:
        seen.append(tenant.get())
        return await call_next(delivery)

    async def dependency() -> str:
        return tenant.get()

    @handlers.on(Note)
    async def handle(_: Note, found: str = Depends(dependency)) -> None:
        seen.extend([found, tenant.get()])

    job_id = await queue.push(Note())
    worker = Worker(queue, handlers, scope=AppScope(initializers=[initialize]), middleware=[around])
    await worker.run_one()
    assert seen == [job_id] * 4


@pytest.mark.rule("WORK-2", "TEL-1")
async def test_an_opentelemetry_context_left_attached_does_not_reach_the_next_delivery(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()
    seen: list[object] = []

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        seen.append(otel.get_value("left behind"))
        otel.attach(otel.set_value("left behind", note.text))
        trace.get_current_span()

    await queue.push_many([Note("a"), Note("b"), Note("c")])
    async with running(Worker(queue, handlers, concurrency=1)):
        await all_settled(queue)
    assert seen == [None, None, None]
    assert otel.get_value("left behind") is None


@pytest.mark.rule("WORK-2")
async def test_a_background_task_keeps_its_own_deliverys_context_and_disturbs_nobody(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()
    left: list[asyncio.Task[str]] = []
    go = asyncio.Event()

    async def background() -> str:
        await go.wait()
        return tenant.get()

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        tenant.set(note.text)
        left.append(asyncio.create_task(background()))

    await queue.push_many([Note("a"), Note("b")])
    async with running(Worker(queue, handlers, concurrency=1)):
        await all_settled(queue)
        go.set()
        assert await asyncio.gather(*left) == ["a", "b"]
    assert not any(task.cancelled() for task in left)


@pytest.mark.rule("WORK-2")
async def test_a_handler_uses_every_tool_that_needs_its_own_task(place: Place) -> None:
    queue, handlers, done = await place.queue(), Handlers(), []

    async def child(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(1))
        async with anyio.create_task_group() as anyio_group:
            anyio_group.start_soon(child, 2)
        with anyio.move_on_after(0.01):
            await asyncio.sleep(60)
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            done.append(3)
        assert await anyio.to_thread.run_sync(lambda: tenant.get("nobody")) == "nobody"
        await asyncio.gather(child(4), child(5))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    await queue.push_many([Note(), Note()])
    async with running(Worker(queue, handlers, concurrency=1)):
        await all_settled(queue)
    assert await counts(queue) == (0, 0, 0, 0)
    assert done == [1, 2, 3, 4, 5] * 2


@pytest.mark.rule("WORK-2", "WORK-3")
@pytest.mark.parametrize("then", ["returns", "waits", "raises"])
async def test_a_handler_that_cancels_its_own_task_harms_only_its_own_job(
    any_place: Place, then: str
) -> None:
    queue, handlers, done = await any_place.queue(), Handlers(), []

    @handlers.on(Wild)
    async def wild(_: Wild) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if then == "waits":
            await asyncio.sleep(60)
        if then == "raises":
            raise ValueError("after cancelling itself")

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        await asyncio.sleep(0.001)
        done.append(note.text)

    await queue.push_many([Wild(), Wild(), Wild(), Note("a"), Wild(), Note("b")])
    worker = Worker(queue, handlers, concurrency=2)
    async with running(worker) as task:
        await all_settled(queue)
        assert not task.done()
        assert worker.health().ok
    assert sorted(done) == ["a", "b"]
    assert await queue.failed.count() == (0 if then == "returns" else 4)


@pytest.mark.rule("WORK-2")
async def test_a_cancellation_that_comes_late_from_a_handlers_friend_costs_at_most_an_attempt(
    any_place: Place,
) -> None:
    """A watchdog of the application's own that cancels "the job's task" may well be too late."""
    queue, handlers, done = await any_place.queue(), Handlers(), []

    @handlers.on(Wild)
    async def wild(wild: Wild) -> None:
        task = asyncio.current_task()
        assert task is not None
        if wild.number == 0:
            asyncio.get_running_loop().call_soon(task.cancel)
            return
        for _ in range(wild.number):
            asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(0)

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append(note.text)

    await queue.push_many([Wild(1), Note("a"), Wild(3), Note("b"), Wild(0), Note("c")])
    async with running(Worker(queue, handlers, concurrency=1, max_attempts=2)) as task:
        await eventually(lambda: sorted(set(done)) == ["a", "b", "c"])
        await all_settled(queue)
        assert not task.done()


@pytest.mark.rule("WORK-2")
async def test_an_asyncio_cancelled_error_of_something_awaited_is_a_failure_of_the_job(place: Place) -> None:
    queue, handlers = await place.queue(), Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other

    await queue.push(Note())
    async with running(Worker(queue, handlers, max_attempts=2)):
        await all_settled(queue)
    (failed,) = await queue.failed.list()
    assert (failed.attempts, failed.error_type) == (2, "asyncio.exceptions.CancelledError")
