"""examples/orders_app.py under real servers: an order and its job are committed together or not at all.

Case O-31, push inside a request: a worker that is there all the time never looks for an order too early, and
finds nothing of one that was never placed.
"""

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import httpx2
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI
from servers import mysql, postgres
from servers.reach import check_reachable
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from support.databases import fresh_mysql, fresh_postgres
from support.servers import Program, program, serving
from support.working import all_settled

from aqueue import Queue, Worker, connect, job
from aqueue.integrations.fastapi import QueueDep, queue_lifespan
from aqueue.testing import eventually

pytestmark = pytest.mark.rule("PUSH-8")

APP = "examples.orders_app"
AT_ONCE = 60

_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.processlist "
    "WHERE db = DATABASE() AND command = 'Query' AND info LIKE 'UPDATE stock %'",
}
"""How many requests wait for their stock. InnoDB's own view of who waits stands still while it is polled."""


class Shop:
    """The example's database, seen from beside the application, and how to run what works on it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self._starts = 0

    @contextmanager
    def open(self, *options: str) -> Iterator[Program]:
        """Run the web service."""
        with serving(f"{APP}:app", *options, env={"AQUEUE_URL": self.url}, log=self._log("web")) as web:
            yield web

    @contextmanager
    def working(self) -> Iterator[Program]:
        """Run the worker beside it."""
        with program(
            "aqueue", "worker", f"{APP}:worker", env={"AQUEUE_URL": self.url}, log=self._log("worker")
        ) as worker:
            yield worker

    def _log(self, name: str) -> Path:
        self._starts += 1
        return self.folder / f"{name}{self._starts}.log"


class Database:
    """What a test asks of the shop's database, and the lock by which it holds requests up."""

    def __init__(self, engine: AsyncEngine, queue: Queue) -> None:
        self.queue = queue
        self._engine = engine

    async def orders(self, *, of: str) -> dict[int, str | None]:
        """Return the orders of an item, and by which job each was shipped."""
        async with self._engine.connect() as connection:
            found = await connection.execute(
                text("SELECT id, shipped_by FROM orders WHERE item = :item"), {"item": of}
            )
            return {row.id: row.shipped_by for row in found}

    async def run(self, *statements: str) -> None:
        async with self._engine.begin() as connection:
            for statement in statements:
                await connection.execute(text(statement))

    async def has_shipped(self, count: int, *, of: str) -> dict[int, str | None]:
        """Wait until exactly so many orders are there, all shipped, and no job is left; return them."""
        await all_settled(self.queue, "orders")
        assert await self.queue.failed.count() == 0
        orders = await self.orders(of=of)
        assert len(orders) == count
        assert all(orders.values()), orders
        return orders

    @asynccontextmanager
    async def held(self, item: str) -> AsyncIterator[None]:
        """Keep the item's stock locked: requests stop between their push and their commit."""
        async with self._engine.begin() as connection:
            await connection.execute(
                text("SELECT item FROM stock WHERE item = :item FOR UPDATE"), {"item": item}
            )
            yield

    async def has_stopped(self, requests: int) -> None:
        """Wait until so many requests wait for the lock."""

        async def look() -> None:
            async with self._engine.connect() as connection:
                assert await _waiting(connection) == requests

        await eventually(look, 20)


async def _waiting(connection: AsyncConnection) -> int:
    return int((await connection.execute(text(_WAITING[connection.dialect.name]))).scalar_one())


@pytest.fixture(scope="module", params=["postgres", "mysql"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop with a database of its own; nothing runs yet."""
    server, fresh = {"postgres": (postgres, fresh_postgres), "mysql": (mysql, fresh_mysql)}[request.param]
    check_reachable(request.param, server.unreachable())
    return Shop(asyncio.run(fresh()), tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def programs(shop: Shop) -> Iterator[tuple[Program, Program]]:
    """The web service and the worker beside it, for all tests that leave them as they are."""
    with ExitStack() as stack:
        yield stack.enter_context(shop.open()), stack.enter_context(shop.working())


@pytest.fixture
async def client(programs: tuple[Program, Program]) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=await programs[0].address(), timeout=30) as client:
        yield client


@pytest.fixture
async def database(shop: Shop) -> AsyncIterator[Database]:
    engine = create_async_engine(shop.url)
    async with connect(shop.url) as queue:
        yield Database(engine, queue)
    await engine.dispose()


class TestCaseO31:
    """Push inside a request runs before the commit."""

    async def test_step_1_a_job_is_not_seen_before_the_commit_and_then_finds_its_row(
        self, client: httpx2.AsyncClient, database: Database
    ) -> None:
        await client.put("/stock/tea?left=5")

        async with database.held("tea"):
            asking = asyncio.create_task(client.post("/orders", json={"item": "tea"}))
            await database.has_stopped(1)
            await client.put("/stock/other?left=1")  # a request, and looks of the worker's, pass by
            assert await database.queue.size("orders") == 0
            assert await database.orders(of="tea") == {}
        response = await asking

        assert response.status_code == 202
        assert set(await database.has_shipped(1, of="tea")) == {response.json()}

    async def test_step_2_a_request_that_fails_after_its_push_leaves_neither_order_nor_job(
        self, client: httpx2.AsyncClient, database: Database
    ) -> None:
        response = await client.post("/orders", json={"item": "ice"})

        assert (response.status_code, response.json()) == (409, {"detail": "ice is sold out"})
        assert await database.has_shipped(0, of="ice") == {}

    async def test_step_3_a_client_that_goes_away_in_between_takes_both_along_or_none(
        self, client: httpx2.AsyncClient, database: Database
    ) -> None:
        await client.put("/stock/milk?left=5")

        async with database.held("milk"):
            await ask_and_go_away(client.base_url, "/orders", {"item": "milk"}, database)
        await client.post("/orders", json={"item": "milk"})  # is served after it

        await database.has_shipped(2, of="milk")  # uvicorn lets a request end whose client is gone

    @pytest.mark.parametrize(
        ("end", "options"),
        [
            pytest.param(signal.SIGKILL, (), id="a kill"),
            pytest.param(signal.SIGTERM, ("--timeout-graceful-shutdown", "1"), id="a stop that cancels it"),
        ],
    )
    async def test_step_3_a_server_that_ends_in_between_leaves_neither(
        self, shop: Shop, programs: tuple[Program, Program], database: Database, end: signal.Signals,
        options: tuple[str, ...],
    ) -> None:  # fmt: skip
        item = f"cake{end}"
        with shop.open(*options) as web:
            async with httpx2.AsyncClient(base_url=await web.address(), timeout=30) as client:
                await client.put(f"/stock/{item}?left=5")
                async with database.held(item):
                    asking = asyncio.create_task(client.post("/orders", json={"item": item}))
                    await database.has_stopped(1)
                    web.signal(end)
                    await web.ended()
                [outcome] = await asyncio.gather(asking, return_exceptions=True)

        assert not isinstance(outcome, httpx2.Response) or outcome.status_code == 500
        await database.has_stopped(0)  # whatever the server still did for it has come to its end
        assert await database.has_shipped(0, of=item) == {}

    @pytest.mark.parametrize("shop", ["postgres"], indirect=True)  # MySQL checks nothing as late as that
    async def test_a_commit_that_fails_is_told_and_leaves_neither(
        self, client: httpx2.AsyncClient, database: Database
    ) -> None:
        await client.put("/stock/dust?left=5")
        await database.run(
            "CREATE FUNCTION no_dust() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION ''we do not sell dust''; END'",
            "CREATE CONSTRAINT TRIGGER no_dust AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW WHEN (NEW.item = 'dust') EXECUTE FUNCTION no_dust()",
        )

        response = await client.post("/orders", json={"item": "dust"})

        assert response.status_code == 500
        assert await database.has_shipped(0, of="dust") == {}

    async def test_step_4_background_tasks_and_lifespans_push_within_transactions_of_their_own(
        self, shop: Shop, programs: tuple[Program, Program]
    ) -> None:
        await programs[0].address()  # so the tables are there
        engine = create_async_engine(shop.url)
        queue = connect(shop.url)
        found: list[str] = []

        @job(name="o31.look", queue="o31")
        class Look:
            item: str

            async def handle(self) -> None:
                async with engine.connect() as connection:
                    rows = await connection.execute(
                        text("SELECT item FROM stock WHERE item = :item"), {"item": self.item}
                    )
                    found.extend(item for (item,) in rows)

        async def fill_up(item: str) -> None:
            async with AsyncSession(engine) as session, session.begin():
                await session.execute(text("INSERT INTO stock VALUES (:item, 1)"), {"item": item})
                await queue.push(Look(item), connection=session)
                assert worker.health().running is (item == "background")

        @asynccontextmanager
        async def mine(app: FastAPI) -> AsyncIterator[None]:
            await fill_up("start-up")
            yield
            await fill_up("shut-down")

        worker = Worker(queue, [Look], queues=["o31"])
        app = FastAPI(lifespan=(lifespan := queue_lifespan(queue, worker=worker, lifespan=mine)))

        @app.post("/")
        async def later(tasks: BackgroundTasks) -> None:
            tasks.add_task(fill_up, "background")

        async with lifespan(app), client_of(app) as client:
            await client.post("/")
            await eventually(lambda: sorted(found) == ["background", "start-up"])
        async with queue:
            await worker.run_all()
        await engine.dispose()

        assert sorted(found) == ["background", "shut-down", "start-up"]

    async def test_a_queue_in_another_store_is_pushed_to_after_the_commit(
        self, shop: Shop, programs: tuple[Program, Program]
    ) -> None:
        await programs[0].address()
        engine = create_async_engine(shop.url)
        found: list[int] = []

        async def session() -> AsyncIterator[AsyncSession]:
            async with AsyncSession(engine) as session:
                yield session

        @job(name="o31.count")
        class Count:
            item: str

            async def handle(self, session: Annotated[AsyncSession, Depends(session)]) -> None:
                rows = await session.execute(
                    text("SELECT count(*) FROM stock WHERE item = :item"), {"item": self.item}
                )
                found.append(rows.scalar_one())

        queue = connect("memory://")
        lifespan = queue_lifespan(queue, worker=Worker(queue, [Count]))
        app = FastAPI(lifespan=lifespan)

        @app.post("/")
        async def fill_up(queue: QueueDep, session: Annotated[AsyncSession, Depends(session)]) -> None:
            await session.execute(text("INSERT INTO stock VALUES ('after', 1)"))
            await session.commit()
            await queue.push(Count("after"))

        async with lifespan(app), client_of(app) as client:
            await client.post("/")
            await eventually(lambda: found == [1])
        await engine.dispose()


async def test_a_savepoint_that_is_undone_takes_the_jobs_pushed_in_it_along(
    shop: Shop, programs: tuple[Program, Program], database: Database
) -> None:
    await programs[0].address()

    @job(name="o31.note", queue="notes")
    class Note:
        text: str

    engine = create_async_engine(shop.url)
    async with AsyncSession(engine) as session, session.begin():
        await database.queue.push(Note("kept"), connection=session)
        inner = await session.begin_nested()
        await database.queue.push(Note("undone"), connection=session)
        await inner.rollback()
    await engine.dispose()

    found = await database.queue.pop(timeout=5, queues=["notes"])
    assert found is not None
    assert found.args == {"text": "kept"}
    await database.queue.ack(found)
    assert await database.queue.size("notes") == 0


async def test_the_orders_of_a_basket_share_their_fate(
    client: httpx2.AsyncClient, database: Database
) -> None:
    await client.put("/stock/bread?left=3")

    good = await client.post("/baskets", json={"items": ["bread", "bread"]})
    bad = await client.post("/baskets", json={"items": ["bread", "salt"]})
    empty = await client.post("/baskets", json={"items": []})

    assert (good.status_code, bad.status_code, empty.json()) == (202, 409, [])
    assert set(await database.has_shipped(2, of="bread")) == set(good.json())
    assert await database.has_shipped(0, of="salt") == {}


async def test_each_of_many_orders_is_shipped_once_and_no_more_than_there_is(
    client: httpx2.AsyncClient, database: Database, programs: tuple[Program, Program]
) -> None:
    await client.put(f"/stock/plums?left={AT_ONCE // 2}")

    responses = await asyncio.gather(
        *(client.post("/orders", json={"item": "plums"}) for _ in range(AT_ONCE))
    )

    placed = [response.json() for response in responses if response.status_code == 202]
    assert Counter(response.status_code for response in responses) == {202: AT_ONCE // 2, 409: AT_ONCE // 2}
    shipped = await database.has_shipped(len(placed), of="plums")
    assert sorted(shipped) == sorted(placed)
    assert len(set(shipped.values())) == len(placed), "each by a job of its own"

    await eventually(lambda: shipments(programs[1]) >= Counter(placed))
    assert max(shipments(programs[1]).values()) == 1
    assert "before" not in programs[1].printed


async def test_an_order_tells_how_far_it_is(client: httpx2.AsyncClient, database: Database) -> None:
    await client.put("/stock/jam?left=1")
    id = (await client.post("/orders", json={"item": "jam"})).json()
    await database.has_shipped(1, of="jam")

    status = (await client.get(f"/orders/{id}")).json()

    assert (status["item"], len(status["shipped_by"])) == ("jam", 32)
    assert (await client.get(f"/orders/{id + 10_000}")).status_code == 404


async def test_web_and_worker_end_in_good_order(shop: Shop) -> None:
    with shop.open() as web, shop.working() as worker:
        await web.address()
        await worker.has_printed("takes jobs from orders")
        for each in (web, worker):
            each.signal(signal.SIGTERM)
        statuses = [await each.ended() for each in (web, worker)]

    assert statuses == [-signal.SIGTERM, 0]
    assert "Application shutdown complete" in web.printed
    assert "Error" not in web.printed + worker.printed


def shipments(worker: Program) -> Counter[int]:
    """How often the worker says that it shipped each order."""
    return Counter(int(id) for id in re.findall(r"order (\d+) is shipped", worker.printed))


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test")


async def ask_and_go_away(address: httpx2.URL, path: str, body: object, database: Database) -> None:
    """Post, wait until the request is stopped by the lock, and close the connection."""
    data = json.dumps(body).encode()
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n".encode()
        + data
    )
    await database.has_stopped(1)
    writer.close()
    await writer.wait_closed()
