"""A queue that opens and closes with a FastAPI or Starlette application, and reaches its routes."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from support.services import NOTES, Note, client_of, service

from aqueue import Queue, Worker, connect
from aqueue.errors import QueueClosed
from aqueue.integrations.fastapi import (
    NamedQueue,
    QueueDep,
    get_queue,
    queue_lifespan,
)
from aqueue.testing import eventually


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()


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


def _wait_until(check: Any) -> None:
    """Wait in this thread while the application runs in another."""
    asyncio.run(eventually(check))


def _python(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
