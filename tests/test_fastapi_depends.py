"""FastAPI's own `Depends`, shared by routes and handlers, and a push within a request's transaction."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from httpx2 import AsyncClient
from support.services import NOTES, Note, client_of

from aqueue import AppScope, Worker, connect, job
from aqueue.errors import UnresolvableParameter
from aqueue.integrations.fastapi import (
    QueueDep,
    queue_lifespan,
)
from aqueue.testing import eventually


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()


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


@pytest.mark.rule("PUSH-8")
class TestAPushBesideATransaction:
    """Case O-31: the request pushes, and commits later or never."""

    @pytest.fixture
    async def shop(self, tmp_path: Path) -> AsyncIterator[AsyncClient]:
        """A shop whose orders and jobs live in one database; its worker looks each order up."""
        file = tmp_path / "shop.db"

        def transaction() -> Iterator[sqlite3.Connection]:
            with closing(sqlite3.connect(file, check_same_thread=False)) as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection

        def orders() -> list[str]:
            with closing(sqlite3.connect(file)) as connection:
                return [item for (item,) in connection.execute("SELECT item FROM orders")]

        @job(name="pack")
        class Pack:
            item: str

            async def handle(self) -> None:
                NOTES.append(f"{self.item}: {'found' if self.item in orders() else 'missed'}")

        queue = connect(f"sqlite:///{file}")
        worker = Worker(queue, [Pack])
        app = FastAPI(lifespan=(lifespan := queue_lifespan(queue, worker=worker)))

        @app.post("/orders")
        async def order(
            item: str,
            queue: QueueDep,
            connection: Annotated[sqlite3.Connection, Depends(transaction, scope="function")],
        ) -> None:
            connection.execute("INSERT INTO orders VALUES (?)", [item])
            await queue.push(Pack(item), connection=connection)
            if item == "ice":
                raise HTTPException(409)
            last = worker.health().last_claim
            await eventually(lambda: worker.health().last_claim != last)  # it looked, and saw nothing

        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE orders (item TEXT)")
        async with lifespan(app), client_of(app) as client:
            yield client
            assert await queue.size() == 0

    async def test_never_misses_its_row(self, shop: AsyncClient) -> None:
        assert (await shop.post("/orders?item=tea")).status_code == 200
        await eventually(lambda: NOTES == ["tea: found"])

    async def test_leaves_no_job_where_the_request_rolls_back(self, shop: AsyncClient) -> None:
        assert (await shop.post("/orders?item=ice")).status_code == 409
        assert (await shop.post("/orders?item=tea")).status_code == 200
        await eventually(lambda: NOTES == ["tea: found"])
