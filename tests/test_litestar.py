"""A queue, and a worker, that live and die with a Litestar application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from litestar import Litestar, post
from litestar.di import Provide
from litestar.params import FromQuery
from litestar.testing import AsyncTestClient
from support.services import NOTES, Note, breakable_queue

from aqueue import Queue, Worker, connect
from aqueue.integrations.litestar import QueueDep, QueuePlugin, health_route
from aqueue.testing import eventually


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()


@post("/notes", status_code=202)
async def write(text: FromQuery[str], queue: QueueDep) -> str:
    return await queue.push(Note(text))


async def test_the_queue_opens_and_closes_with_the_application_and_reaches_its_routes() -> None:
    queue = connect("memory://")
    app = Litestar([write], plugins=[QueuePlugin(queue)])

    assert "closed" in repr(queue)
    async with AsyncTestClient(app) as client:
        assert (await client.post("/notes?text=x")).status_code == 202
        assert await queue.size() == 1

    assert "closed" in repr(queue)


@pytest.mark.rule("STOP-1")
async def test_the_worker_runs_within_the_applications_own_lifespan() -> None:
    queue = connect("memory://")
    worker = Worker(queue, [Note])
    seen: list[tuple[str, bool, bool]] = []

    def look(when: str) -> None:
        seen.append((when, "open" in repr(queue), worker.health().running))

    @asynccontextmanager
    async def mine(app: Litestar) -> AsyncIterator[None]:
        look("start")
        yield
        look("end")

    app = Litestar([write], lifespan=[mine], plugins=[QueuePlugin(queue, worker=worker)])
    async with AsyncTestClient(app) as client:
        await client.post("/notes?text=x")
        await eventually(lambda: NOTES == ["x"])
        look("within")

    assert seen == [("start", True, False), ("within", True, True), ("end", True, False)]


async def test_two_queues_have_a_plugin_and_a_parameter_each() -> None:
    @post("/both")
    async def both(queue: QueueDep, audit: QueueDep) -> list[int]:
        await audit.push(Note("x"))
        return [await queue.size(), await audit.size()]

    plugins = [QueuePlugin(connect("memory://")), QueuePlugin(connect("memory://"), dependency="audit")]
    async with AsyncTestClient(Litestar([both], plugins=plugins)) as client:
        assert (await client.post("/both")).json() == [0, 1]


async def test_a_dependency_nearer_to_the_route_replaces_the_queue_in_tests() -> None:
    async def tested() -> Queue:
        return queue

    @post("/notes", status_code=202, dependencies={"queue": Provide(tested)})
    async def write(text: FromQuery[str], queue: QueueDep) -> str:
        return await queue.push(Note(text))

    async with connect("memory://") as queue:
        app = Litestar([write], plugins=[QueuePlugin(connect("memory://"))])
        async with AsyncTestClient(app) as client:
            await client.post("/notes?text=x")

        assert await queue.size() == 1


@pytest.mark.rule("WORK-8")
async def test_a_health_route_tells_an_outage_but_not_to_a_liveness_probe() -> None:
    queue, store = breakable_queue()
    worker = Worker(queue, [Note], poll_timeout=0.05)
    routes = [health_route(worker), health_route(worker, path="/alive", tolerate_outages=True)]

    async with AsyncTestClient(Litestar(routes, plugins=[QueuePlugin(queue, worker=worker)])) as client:
        well = await client.get("/healthz")
        store.break_down("pop")
        await eventually(lambda: not worker.health().ok)
        unwell, alive = await client.get("/healthz"), await client.get("/alive")

    assert (well.status_code, unwell.status_code, alive.status_code) == (200, 503, 200)
    assert unwell.json()["workers"][0]["last_error"] == "ConnectionFailed"


async def test_the_example_greets(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_URL", "memory://")
    from examples.litestar_app import app

    async with AsyncTestClient(app) as client:
        assert (await client.post("/greetings?name=Ann")).status_code == 202
        await eventually(lambda: "Hello, Ann!" in capfd.readouterr().out)
        assert (await client.get("/healthz")).status_code == 200
