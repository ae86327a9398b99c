"""A queue, and a worker, that live and die with a FastAPI or Starlette application."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import anyio
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request, WebSocket
from fastapi.testclient import TestClient
from httpx2 import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan
from support.stores import WholeBackend, Wrapper
from support.working import Records, logged

from aqueue import AppScope, Queue, Worker, connect, job
from aqueue.connection import open_backend
from aqueue.errors import InvalidQueueArgument, QueueClosed, UnresolvableParameter
from aqueue.integrations.fastapi import (
    NamedQueue,
    QueueDep,
    get_queue,
    health_endpoint,
    queue_lifespan,
)
from aqueue.port import StoreOptions
from aqueue.testing import eventually


@job(name="note")
class Note:
    text: str

    async def handle(self) -> None:
        NOTES.append(self.text)


NOTES: list[str] = []


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()


def service(lifespan: Lifespan[FastAPI] | None) -> FastAPI:
    """An application with a route that pushes."""
    app = FastAPI(lifespan=lifespan)

    @app.post("/notes", status_code=202)
    async def write(text: str, queue: QueueDep) -> str:
        return await queue.push(Note(text))

    return app


@asynccontextmanager
async def client_of(app: ASGIApp) -> AsyncIterator[AsyncClient]:
    """A client that calls the application in this loop; it runs no lifespan."""
    async with AsyncClient(transport=ASGITransport(app=app), base_url="http://test") as client:
        yield client


class TestTheQueue:
    @pytest.mark.rule("FACE-1")
    def test_opens_with_the_application_and_closes_with_it(self, tmp_path: Path) -> None:
        file = tmp_path / "jobs.db"
        queue = connect(f"sqlite:///{file}")
        app = service(queue_lifespan(queue))

        assert not file.exists()
        with TestClient(app) as client:
            assert client.post("/notes?text=x").status_code == 202
            assert "open" in repr(queue)

        assert "closed" in repr(queue)

    def test_serves_an_application_that_starts_again(self, tmp_path: Path) -> None:
        queue = connect(f"sqlite:///{tmp_path}/jobs.db")
        app = service(queue_lifespan(queue, worker=Worker(queue, [Note])))

        for text in "ab":
            with TestClient(app) as client:
                client.post(f"/notes?text={text}")
                _wait_until(lambda text=text: text in NOTES)

        assert NOTES == ["a", "b"]

    @pytest.mark.parametrize("place", ["before", "after"])
    def test_is_closed_when_starting_the_application_fails(self, place: str) -> None:
        queue = connect("memory://")

        @asynccontextmanager
        async def mine(app: FastAPI) -> AsyncIterator[None]:
            if place == "before":
                raise LookupError("no database")
            yield
            raise LookupError("no database")

        with (
            pytest.raises(LookupError),
            TestClient(service(queue_lifespan(queue, worker=Worker(queue, [Note]), lifespan=mine))),
        ):
            pass

        assert "closed" in repr(queue)

    def test_is_given_to_routes_websockets_and_dependencies(self) -> None:
        app = FastAPI(lifespan=queue_lifespan(connect("memory://")))

        async def notebook(queue: QueueDep) -> Queue:
            return queue

        @app.get("/size")
        async def size(queue: Annotated[Queue, Depends(notebook)]) -> int:
            return await queue.size()

        @app.websocket("/feed")
        async def feed(socket: WebSocket, queue: QueueDep) -> None:
            await socket.accept()
            await queue.push(Note(await socket.receive_text()))
            await socket.send_text(str(await queue.size()))

        with TestClient(app) as client:
            with client.websocket_connect("/feed") as socket:
                socket.send_text("hello")
                assert socket.receive_text() == "1"
            assert client.get("/size").json() == 1

    def test_reaches_a_mounted_application_and_a_router_may_bring_it(self) -> None:
        outer, inner = FastAPI(), service(None)
        outer.mount("/inner", inner)
        outer.include_router(APIRouter(lifespan=queue_lifespan(connect("memory://"))))

        with TestClient(outer) as client:
            assert client.post("/inner/notes?text=x").status_code == 202

    def test_may_stand_beside_others_by_name(self) -> None:
        lifespan = queue_lifespan(
            connect("memory://"), lifespan=queue_lifespan(connect("memory://"), name="audit")
        )
        app = service(lifespan)

        @app.get("/sizes")
        async def sizes(
            queue: QueueDep, audit: Annotated[Queue, Depends(NamedQueue("audit"))]
        ) -> dict[str, int]:
            return {"default": await queue.size(), "audit": await audit.size()}

        with TestClient(app) as client:
            client.post("/notes?text=x")

            assert client.get("/sizes").json() == {"default": 1, "audit": 0}

    async def test_is_replaced_in_tests_by_an_override_without_any_lifespan(self) -> None:
        app = service(queue_lifespan(connect("sqlite:////nowhere/at/all.db")))

        async with connect("memory://") as queue, client_of(app) as client:
            app.dependency_overrides[get_queue] = lambda: queue
            app.dependency_overrides[NamedQueue("audit")] = lambda: queue
            response = await client.post("/notes?text=tested")
            await Worker(queue, [Note]).run_all()

        assert (response.status_code, NOTES) == (202, ["tested"])
        assert NamedQueue("audit") in app.dependency_overrides

    async def test_is_found_without_a_servers_state(self) -> None:
        app = service(lifespan := queue_lifespan(connect("memory://")))

        async with lifespan(app), client_of(app) as client:
            assert (await client.post("/notes?text=x")).status_code == 202

    async def test_that_is_not_there_is_missed_with_a_hint(self) -> None:
        async with client_of(service(None)) as client:
            with pytest.raises(QueueClosed, match=r"no queue in this application.*queue_lifespan"):
                await client.post("/notes?text=x")

        with pytest.raises(QueueClosed, match="no queue named 'audit'"):
            await NamedQueue("audit")(Request({"type": "http"}))


class TestALifespanOfOnesOwn:
    def test_has_the_queue_before_and_after_and_the_worker_only_within(self) -> None:
        queue = connect("memory://")
        worker = Worker(queue, [Note])
        seen: list[tuple[str, bool]] = []

        @asynccontextmanager
        async def mine(app: FastAPI) -> AsyncIterator[dict[str, str]]:
            await queue.push(Note("at start-up"))
            seen.append(("start", worker.health().running))
            yield {"mine": "kept"}
            seen.append(("end", worker.health().running))
            await queue.push(Note("at shut-down"))

        app = service(queue_lifespan(queue, worker=worker, lifespan=mine))

        @app.get("/mine")
        async def state(request: Request) -> str:
            return str(request.state.mine)

        with TestClient(app) as client:
            assert client.get("/mine").json() == "kept"
            _wait_until(lambda: NOTES == ["at start-up"])

        assert seen == [("start", False), ("end", False)]

    async def test_may_run_the_worker_in_a_task_group_of_its_own(self) -> None:
        queue = connect("memory://")
        worker = Worker(queue, [Note])

        @asynccontextmanager
        async def mine(app: Starlette) -> AsyncIterator[None]:
            async with queue, anyio.create_task_group() as group:
                group.start_soon(worker.run)
                yield
                worker.stop()

        async with mine(Starlette()):
            await queue.push(Note("x"))
            await eventually(lambda: NOTES == ["x"])

        assert not worker.health().running


class TestTheWorkerInside:
    @pytest.mark.rule("STOP-1")
    async def test_ends_what_runs_before_the_queue_is_closed(self) -> None:
        started, may_end = asyncio.Event(), asyncio.Event()

        @job(name="slow")
        async def slow() -> None:
            started.set()
            await may_end.wait()
            NOTES.append("ended")

        queue = connect("memory://")
        lifespan = queue_lifespan(queue, worker=Worker(queue, [slow]))

        async with lifespan(app := FastAPI()):
            await queue.push(slow.job())
            await started.wait()
            asyncio.get_running_loop().call_later(0.05, may_end.set)

        assert NOTES == ["ended"]
        async with lifespan(app):
            assert await queue.size() == 0

    @pytest.mark.rule("STOP-2")
    @pytest.mark.parametrize("when", ["it works", "it stops"])
    @pytest.mark.parametrize("how", ["task", "scope"])
    async def test_gives_back_what_runs_when_its_host_is_cancelled(
        self, when: str, how: str, tmp_path: Path
    ) -> None:
        started, leaving = asyncio.Event(), asyncio.Event()

        @job(name="endless")
        async def endless() -> None:
            started.set()
            await asyncio.sleep(3600)

        queue = connect(f"sqlite:///{tmp_path}/jobs.db")
        worker = Worker(queue, [endless])
        scope = anyio.CancelScope()

        async def host() -> None:
            with scope:
                async with queue_lifespan(queue, worker=worker)(FastAPI()):
                    await queue.push(endless.job())
                    await started.wait()
                    leaving.set()
                    if when == "it works":
                        await asyncio.sleep(3600)

        task = asyncio.create_task(host())
        await leaving.wait()  # at work, or in the grace of 30 s
        task.cancel() if how == "task" else scope.cancel()
        await asyncio.wait({task}, timeout=5)

        assert task.done()
        assert not worker.health().running
        assert "closed" in repr(queue)
        async with connect(f"sqlite:///{tmp_path}/jobs.db") as again:
            delivery = await again.pop(timeout=1)
        assert delivery is not None
        assert delivery.attempt == 1

    async def test_starts_and_stops_in_whatever_tasks_the_host_likes(self) -> None:
        queue = connect("memory://")
        live = queue_lifespan(queue, worker=Worker(queue, [Note]))(FastAPI())

        await asyncio.create_task(live.__aenter__())
        await queue.push(Note("x"))
        await eventually(lambda: NOTES == ["x"])
        await asyncio.create_task(live.__aexit__(None, None, None))

        assert "closed" in repr(queue)

    async def test_stops_even_before_it_took_its_first_step(self) -> None:
        queue = connect("memory://")

        async with asyncio.timeout(5), queue_lifespan(queue, worker=Worker(queue, [Note]))(FastAPI()):
            pass

    async def test_may_take_from_another_queue_than_the_routes_push_to(self) -> None:
        inbox, outbox = connect("memory://inbox"), connect("memory://")
        worker = Worker(inbox, [Note])

        async with queue_lifespan(outbox, worker=worker)(FastAPI()):
            await inbox.push(Note("x"))
            await eventually(lambda: NOTES == ["x"])

        assert "closed" in repr(inbox)

    async def test_that_can_not_run_fails_the_start(self) -> None:
        queue = connect("memory://")
        lifespan = queue_lifespan(queue, worker=Worker(queue, [Note], poll_timeout=0))

        with pytest.raises(InvalidQueueArgument, match="poll_timeout"):
            async with lifespan(FastAPI()):
                pass

        assert "closed" in repr(queue)

    @pytest.mark.rule("WORK-8")
    async def test_that_dies_is_logged_and_the_application_goes_on(self, aqueue_log: Records) -> None:
        queue, store = _breakable_queue()
        worker = Worker(queue, [Note], on_outage="stop", poll_timeout=0.05)
        app = service(lifespan := queue_lifespan(queue, worker=worker))
        app.add_route("/healthz", health_endpoint(worker))

        async with lifespan(app), client_of(app) as client:
            assert (await client.get("/healthz")).status_code == 200
            store.break_down("pop")
            await eventually(lambda: not worker.health().running)
            await eventually(lambda: any("died" in each for each in aqueue_log.messages(logging.ERROR)))

            assert (await client.get("/healthz")).status_code == 503
            assert (await client.post("/notes?text=later")).status_code == 202

        assert "closed" in repr(queue)


@pytest.fixture
def aqueue_log() -> Iterator[Records]:
    with logged() as records:
        yield records


class TestAHealthRoute:
    @pytest.mark.rule("WORK-8")
    async def test_tells_an_outage_but_not_to_a_liveness_probe(self) -> None:
        queue, store = _breakable_queue()
        worker = Worker(queue, [Note], poll_timeout=0.05)
        app = FastAPI(lifespan=(lifespan := queue_lifespan(queue, worker=worker)))
        app.add_api_route("/ready", health_endpoint(worker))
        app.add_api_route("/alive", health_endpoint(worker, tolerate_outages=True))

        async with lifespan(app), client_of(app) as client:
            store.break_down("pop")
            await eventually(lambda: not worker.health().ok)
            ready, alive = await client.get("/ready"), await client.get("/alive")
            store.recover()
            await eventually(lambda: worker.health().ok)
            again = await client.get("/ready")

        assert (ready.status_code, alive.status_code, again.status_code) == (503, 200, 200)
        (report,) = ready.json()["workers"]
        assert (report["running"], report["queues"], report["last_error"]) == (
            True,
            ["default"],
            "ConnectionFailed",
        )

    async def test_tells_of_several_workers_and_of_none(self) -> None:
        queue = connect("memory://")
        first, second = Worker(queue, [Note]), Worker(queue, [Note])
        app = Starlette()
        app.add_route("/both", health_endpoint(first, second))
        app.add_route("/none", health_endpoint())

        async with client_of(app) as client, queue_lifespan(queue, worker=first)(app):
            both, none = await client.get("/both"), await client.get("/none")

        assert (both.status_code, [each["ok"] for each in both.json()["workers"]]) == (503, [True, False])
        assert (none.status_code, none.json()) == (200, {"ok": True, "workers": []})


@pytest.mark.rule("SCOPE-1")
class TestADependency:
    """FastAPI's own `Depends`, shared by routes and handlers."""

    async def test_serves_a_route_and_a_handler_and_is_finished_in_both(self) -> None:
        steps: list[str] = []

        async def session() -> AsyncIterator[str]:
            steps.append("open")
            yield "session"
            steps.append("close")

        def repository(session: Annotated[str, Depends(session)]) -> Iterator[str]:
            yield f"repository on {session}"
            steps.append("repository done")

        Repository = Annotated[str, Depends(repository)]

        @job(name="keep")
        class Keep:
            async def handle(self, repository: Repository) -> None:
                steps.append(f"job: {repository}")

        app = FastAPI()

        @app.get("/")
        async def route(repository: Repository) -> None:
            steps.append(f"route: {repository}")

        async with connect("memory://") as queue, client_of(app) as client:
            await client.get("/")
            in_route, steps[:] = list(steps), []
            await queue.push(Keep())
            await Worker(queue, [Keep]).run_all()

        told = "repository on session"
        assert in_route == ["open", f"route: {told}", "repository done", "close"]
        assert steps == ["open", f"job: {told}", "repository done", "close"]

    async def test_is_no_part_of_a_function_jobs_payload(self) -> None:
        @job(name="append")
        async def append(text: str, notes: list[str] = Depends(lambda: NOTES)) -> None:
            notes.append(text)

        async with connect("memory://") as queue:
            await queue.push(append.job("x"))
            await Worker(queue, [append]).run_all()

        assert NOTES == ["x"]

    @pytest.mark.rule("WORK-9")
    async def test_of_function_scope_closes_before_the_settlement_and_fails_the_attempt(self) -> None:
        closed: list[str] = []

        async def transaction() -> AsyncIterator[str]:
            yield "transaction"
            closed.append("transaction")
            raise ConnectionError("the commit failed")

        async def client() -> AsyncIterator[str]:
            try:
                yield "client"
            finally:
                closed.append("client")

        @job(name="commit", max_attempts=1)
        class Commit:
            async def handle(
                self,
                first: Annotated[str, Depends(client)],
                second: Annotated[str, Depends(transaction, scope="function")],
            ) -> None:
                closed.append(f"{first} and {second} used")

        async with connect("memory://") as queue:
            await queue.push(Commit())
            await Worker(queue, [Commit]).run_all()
            (failed,) = await queue.failed.list()

        assert closed == ["client and transaction used", "transaction", "client"]
        assert (failed.error_type, failed.error) == ("ConnectionError", "the commit failed")

    async def test_rolls_back_when_the_handler_raises(self) -> None:
        seen: list[str] = []

        async def session() -> AsyncIterator[None]:
            try:
                yield
            except ValueError as error:
                seen.append(f"rolled back: {error}")
                raise

        @job(name="spoil", max_attempts=1)
        class Spoil:
            async def handle(self, _session: Annotated[None, Depends(session)]) -> None:
                raise ValueError("no")

        async with connect("memory://") as queue:
            await queue.push(Spoil())
            await Worker(queue, [Spoil]).run_all()

        assert seen == ["rolled back: no"]

    async def test_is_overridden_in_routes_and_handlers_at_once(self) -> None:
        def greeting() -> str:
            return "hello"

        Greeting = Annotated[str, Depends(greeting)]
        app = FastAPI()

        @app.get("/")
        async def route(greeting: Greeting) -> str:
            return greeting

        @job(name="greet")
        class Greet:
            async def handle(self, greeting: Greeting) -> None:
                NOTES.append(greeting)

        async with connect("memory://") as queue, client_of(app) as client:
            worker = Worker(queue, [Greet], scope=AppScope(overrides=app.dependency_overrides))
            for replacement in ("hi", None):
                if replacement:
                    app.dependency_overrides[greeting] = lambda said=replacement: said
                else:
                    app.dependency_overrides.clear()
                await queue.push(Greet())
                await worker.run_all()
                NOTES.append((await client.get("/")).json())

        assert NOTES == ["hi", "hi", "hello", "hello"]

    async def test_that_takes_the_queue_gets_the_workers_own_in_a_handler(self) -> None:
        class Outbox:
            def __init__(self, queue: QueueDep) -> None:
                self.queue = queue

        @job(name="first")
        class First:
            async def handle(self, outbox: Annotated[Outbox, Depends()], also: QueueDep) -> None:
                assert outbox.queue is also
                await outbox.queue.push(Note("second"))

        app = FastAPI(lifespan=(lifespan := queue_lifespan(queue := connect("memory://"))))

        @app.post("/")
        async def route(outbox: Annotated[Outbox, Depends()]) -> str:
            return await outbox.queue.push(First())

        async with lifespan(app), client_of(app) as client:
            assert (await client.post("/")).status_code == 200
            await Worker(queue, [First, Note]).run_all()

        assert NOTES == ["second"]

    @pytest.mark.rule("ARG-5")
    def test_that_needs_a_request_is_refused_in_a_handler_before_any_job_runs(self) -> None:
        def user(request: Request) -> str:
            return str(request.headers["user"])

        def agent(user_agent: Annotated[str, Header()]) -> str:
            return user_agent

        @job(name="who")
        async def who(user: Annotated[str, Depends(user)]) -> None: ...

        @job(name="what")
        async def what(agent: Annotated[str, Depends(agent)]) -> None: ...

        queue = connect("memory://")

        with pytest.raises(UnresolvableParameter, match=r"who.*'request'"):
            Worker(queue, [who])
        with pytest.raises(UnresolvableParameter, match=r"what.*'user_agent'"):
            Worker(queue, [what])


class TestInstallation:
    @pytest.mark.rule("FACE-1")
    @pytest.mark.parametrize("statement", ["from aqueue import *", "import aqueue.integrations"])
    def test_aqueue_alone_imports_no_framework(self, statement: str) -> None:
        _python(
            f"{statement}\nimport sys\nassert not {{'fastapi', 'starlette', 'litestar'}} & set(sys.modules)"
        )

    @pytest.mark.rule("FACE-1")
    @pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar"])
    def test_a_missing_framework_is_named_with_how_to_install_it(self, framework: str) -> None:
        extra = "litestar" if framework == "litestar" else "fastapi"

        _python(
            f"import sys\nsys.modules[{framework!r}] = None\nimport aqueue\n"
            f"try:\n    import aqueue.integrations.{framework}\n"
            "except aqueue.QueueUnavailable as error:\n"
            f"    assert \"pip install 'aqueue-jobs[{extra}]'\" in str(error), error\n"
            "else:\n    raise SystemExit('imported')"
        )

    def test_starlette_needs_no_fastapi(self) -> None:
        _python(
            "import sys\nsys.modules['fastapi'] = None\n"
            "import aqueue.integrations.starlette as ours\n"
            "assert set(ours.__all__) == {'NamedQueue', 'get_queue', 'health_endpoint', 'queue_lifespan'}"
        )

    async def test_the_queue_is_a_call_away_in_plain_starlette(self) -> None:
        async def write(request: Any) -> PlainTextResponse:
            queue = await get_queue(request)
            return PlainTextResponse(await queue.push(Note("x")))

        app = Starlette(
            routes=[Route("/", write)], lifespan=(lifespan := queue_lifespan(connect("memory://")))
        )

        async with lifespan(app), client_of(app) as client:
            assert len((await client.get("/")).text) == 32


def _breakable_queue() -> tuple[Queue, Wrapper]:
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    store = Wrapper(cast("WholeBackend", backend))
    return Queue(store), store


def _wait_until(check: Any) -> None:
    """Wait in this thread while the application runs in another."""
    asyncio.run(eventually(check))


def _python(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
