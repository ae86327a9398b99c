"""Jobs that come and go with the application's own transaction, whoever began it."""

import asyncio
import time

import asyncpg
import pytest
from servers import postgres
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from support.postgres_places import Note, listening

from aqueue import InvalidQueueArgument, Queue, connect

pytest_plugins = ["support.postgres_fixtures"]
pytestmark = pytest.mark.usefixtures("reachable")


@pytest.mark.rule("PUSH-8")
async def test_a_job_comes_and_goes_with_an_asyncpg_transaction(
    queue: Queue, mine: asyncpg.Connection
) -> None:
    for commits in (False, True):
        transaction = mine.transaction()
        await transaction.start()
        await queue.push_many([Note("a"), Note("b")], connection=mine)
        assert await queue.size() == 0

        await (transaction.commit() if commits else transaction.rollback())

        assert await queue.size() == (2 if commits else 0)


@pytest.mark.rule("PUSH-8")
async def test_a_pools_connection_will_do(queue: Queue) -> None:
    async with asyncpg.create_pool(postgres.url(), min_size=0, max_size=1) as pool:
        for _ in range(2):
            async with pool.acquire() as connection, connection.transaction():
                await queue.push(Note("x"), connection=connection)

    assert await queue.size() == 2


@pytest.mark.rule("PUSH-8")
async def test_a_job_shares_a_sqlalchemy_sessions_fate(queue: Queue) -> None:
    engine = create_async_engine(_sqlalchemy_url(postgres.url()))
    async with AsyncSession(engine) as session:
        await queue.push(Note("x"), connection=session)
        await session.rollback()
        assert await queue.size() == 0
        await queue.push_many([Note("y"), Note("z")], connection=session)
        assert await queue.size() == 0
        await session.commit()
    async with engine.begin() as connection:
        await queue.push(Note("x"), connection=connection)
    async with engine.connect() as connection:
        await queue.push(Note("x"), connection=connection)  # and nobody commits it
    await engine.dispose()

    assert await queue.size() == 3


@pytest.mark.rule("PUSH-8")
async def test_a_connection_that_commits_by_itself_is_refused(queue: Queue, mine: asyncpg.Connection) -> None:
    engine = create_async_engine(_sqlalchemy_url(postgres.url()), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        for unfit in (mine, connection):
            with pytest.raises(InvalidQueueArgument, match="transaction"):
                await queue.push(Note("x"), connection=unfit)
    await engine.dispose()

    assert await queue.size() == 0


@pytest.mark.rule("PUSH-8")
async def test_a_connection_to_another_database_is_refused(queue: Queue, mine: asyncpg.Connection) -> None:
    name = f"other_{time.time_ns()}"
    await mine.execute(f"CREATE DATABASE {name}")
    other = await asyncpg.connect(postgres.url().replace("/postgres", f"/{name}"))
    async with other.transaction():
        with pytest.raises(InvalidQueueArgument, match="another database"):
            await queue.push(Note("x"), connection=other)
        assert await other.fetchval("SELECT 1") == 1  # the caller's transaction goes on
    await other.close()


@pytest.mark.rule("PUSH-8", "POP-3")
async def test_the_commit_wakes_a_waiting_worker(
    queue: Queue, postgres_url: str, mine: asyncpg.Connection
) -> None:
    async with connect(postgres_url) as waiting:
        await listening(waiting, mine)
        delays = []
        for _ in range(9):
            popping = asyncio.create_task(waiting.pop(timeout=10))
            await asyncio.sleep(0.03)  # it must be waiting, and there is nothing to see that by
            async with mine.transaction():
                await queue.push(Note("x"), connection=mine)
            committed = time.monotonic()
            delivery = await popping
            delays.append(time.monotonic() - committed)
            assert delivery is not None
            await waiting.ack(delivery)

    assert sorted(delays)[4] < 0.5, "the median came by polling"


def _sqlalchemy_url(postgres_url: str) -> str:
    return postgres_url.replace("postgresql://", "postgresql+asyncpg://", 1)
