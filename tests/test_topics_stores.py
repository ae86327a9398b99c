"""Copies as one act on real servers: one queue refuses, and no other keeps a copy; transactions carry all."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncmy
import asyncpg
import pytest
from redis.crc import key_slot
from servers import mysql, postgres, redis
from servers.reach import check_reachable
from support.databases import fresh_mysql, fresh_postgres

from aqueue import PublishManyError, Queue, StoreRefused, Subscriptions, Topic, connect, job

pytestmark = pytest.mark.rule("TOPIC-1")

QUEUES = ("orders-stock", "orders-email", "orders-audit")
PROBE = "INSERT INTO orders VALUES (1)"


@job(name="topics.stores.placed")
class OrderPlaced:
    order: int


def topic_on(queue: Queue) -> Topic:
    made = Subscriptions()
    for name in QUEUES:
        made.subscribe("orders", name)
    return Topic(queue, made)


async def sizes(queue: Queue) -> list[int]:
    return [await queue.size(name) for name in QUEUES]


async def refuses_all(queue: Queue) -> None:
    """Hold the store to storing no copy, as one queue refuses its own."""
    with pytest.raises(StoreRefused):
        await topic_on(queue).publish(OrderPlaced(7), "orders")

    assert await sizes(queue) == [0, 0, 0]


# -- SQLite ----------------------------------------------------------------------------------------------


@pytest.fixture
async def in_sqlite(tmp_path: Path) -> AsyncIterator[tuple[Queue, sqlite3.Connection]]:
    async with connect(f"sqlite:///{tmp_path}/shop.db") as queue:
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as mine:
            mine.execute("CREATE TABLE orders (id INTEGER)")
            yield queue, mine


async def test_sqlite_stores_no_copy_where_one_queue_refuses(
    in_sqlite: tuple[Queue, sqlite3.Connection],
) -> None:
    queue, mine = in_sqlite
    mine.execute(
        "CREATE TRIGGER no_mail BEFORE INSERT ON aqueue_jobs WHEN new.queue = 'orders-email' "
        "BEGIN SELECT RAISE(ABORT, 'no mail'); END"
    )

    await refuses_all(queue)
    assert len(await queue.push_many([OrderPlaced(1), OrderPlaced(2)])) == 2


@pytest.mark.rule("TOPIC-1", "PUSH-8")
async def test_copies_share_the_fate_of_a_sqlite_transaction(
    in_sqlite: tuple[Queue, sqlite3.Connection],
) -> None:
    queue, mine = in_sqlite
    for end, left in (("ROLLBACK", 0), ("COMMIT", 1)):
        mine.execute("BEGIN")
        mine.execute(PROBE)
        await topic_on(queue).publish(OrderPlaced(7), "orders", connection=mine)
        assert await sizes(queue) == [0, 0, 0]

        mine.execute(end)

        assert await sizes(queue) == [left] * 3


# -- PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture
async def in_postgres() -> AsyncIterator[tuple[Queue, asyncpg.Connection]]:
    check_reachable("postgres", postgres.unreachable())
    url = (await fresh_postgres()).replace("postgresql+asyncpg", "postgresql")
    async with connect(url) as queue:
        await queue.migrate()
        mine = await asyncpg.connect(url)
        await mine.execute("CREATE TABLE orders (id INTEGER)")
        yield queue, mine
        await mine.close()


async def test_postgres_stores_no_copy_where_one_queue_refuses(
    in_postgres: tuple[Queue, asyncpg.Connection],
) -> None:
    queue, mine = in_postgres
    await mine.execute("ALTER TABLE aqueue_jobs ADD CHECK (queue <> 'orders-email')")

    await refuses_all(queue)


@pytest.mark.rule("TOPIC-1", "PUSH-8")
async def test_copies_share_the_fate_of_a_postgres_transaction(
    in_postgres: tuple[Queue, asyncpg.Connection],
) -> None:
    queue, mine = in_postgres
    for end, left in (("ROLLBACK", 0), ("COMMIT", 1)):
        await mine.execute("BEGIN")
        await mine.execute(PROBE)
        await topic_on(queue).publish(OrderPlaced(7), "orders", connection=mine)
        assert await sizes(queue) == [0, 0, 0]

        await mine.execute(end)

        assert await sizes(queue) == [left] * 3


# -- MySQL -----------------------------------------------------------------------------------------------


@pytest.fixture
async def in_mysql() -> AsyncIterator[tuple[Queue, asyncmy.Connection]]:
    check_reachable("mysql", mysql.unreachable())
    url = (await fresh_mysql()).replace("mysql+asyncmy", "mysql")
    place = urlsplit(url)
    async with connect(url) as queue:
        await queue.migrate()
        mine = await asyncmy.connect(
            host=place.hostname,
            port=place.port or 3306,
            user=place.username,
            password=place.password or "",
            db=place.path.strip("/"),
        )
        await ask(mine, "CREATE TABLE orders (id INTEGER)")
        yield queue, mine
        await mine.ensure_closed()


async def ask(connection: asyncmy.Connection, statement: str) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)


async def test_mysql_stores_no_copy_where_one_queue_refuses(
    in_mysql: tuple[Queue, asyncmy.Connection],
) -> None:
    queue, mine = in_mysql
    await ask(mine, "ALTER TABLE aqueue_jobs ADD CHECK (queue <> 'orders-email')")

    await refuses_all(queue)


@pytest.mark.rule("TOPIC-1", "PUSH-8")
async def test_copies_share_the_fate_of_a_mysql_transaction(
    in_mysql: tuple[Queue, asyncmy.Connection],
) -> None:
    queue, mine = in_mysql
    for end, left in (("ROLLBACK", 0), ("COMMIT", 1)):
        await ask(mine, "BEGIN")
        await ask(mine, PROBE)
        await topic_on(queue).publish(OrderPlaced(7), "orders", connection=mine)
        assert await sizes(queue) == [0, 0, 0]

        await ask(mine, end)

        assert await sizes(queue) == [left] * 3


# -- Redis -----------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> redis.RedisServer:
    check_reachable("redis", redis.redis_missing())
    return redis.shared_server()


@pytest.mark.parametrize("wrong", ["pending", "delayed", "jobs"])
async def test_redis_stores_no_copy_where_one_queue_refuses(server: redis.RedisServer, wrong: str) -> None:
    prefix = f"test-{uuid4().hex[:12]}"
    async with connect(f"{server.url}?prefix={prefix}") as queue:
        server.run("SET", f"{prefix}:{{orders-email}}:{wrong}", "of another type")

        with pytest.raises(StoreRefused):
            await topic_on(queue).publish(OrderPlaced(7), "orders")

        server.run("DEL", f"{prefix}:{{orders-email}}:{wrong}")
        assert await sizes(queue) == [0, 0, 0]
        await topic_on(queue).publish(OrderPlaced(8), "orders")
        assert await sizes(queue) == [1, 1, 1]


async def test_on_one_redis_a_publish_is_one_script(server: redis.RedisServer) -> None:
    async with connect(server.url) as queue:
        assert queue.capabilities.atomic_push
        await topic_on(queue).publish(OrderPlaced(7), "orders")
        before = calls(server)

        await topic_on(queue).publish(OrderPlaced(8), "orders", delay=60)

        assert calls(server) - before == 1


def calls(server: redis.RedisServer) -> int:
    lines = server.run("INFO", "commandstats")
    return int(lines["cmdstat_evalsha"]["calls"])


async def test_in_a_cluster_the_queues_that_did_not_get_theirs_are_named() -> None:
    check_reachable("redis-cluster", redis.cluster_missing())
    cluster, prefix = redis.shared_cluster(), f"test-{uuid4().hex[:12]}"
    async with connect(f"{cluster.url}?prefix={prefix}") as queue:
        assert not queue.capabilities.atomic_push
        wrong = f"{prefix}:{{orders-email}}:pending"
        node = cluster.node_of(key_slot(b"orders-email"))
        node.run("SET", wrong, "of another type")

        with pytest.raises(PublishManyError) as raised:
            await topic_on(queue).publish(OrderPlaced(7), "orders")

        node.run("DEL", wrong)
        assert isinstance(raised.value.queues["orders-email"], StoreRefused)
        assert await sizes(queue) == [1, 0, 1]
