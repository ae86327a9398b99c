"""Places in the tests' PostgreSQL: a queue, a bare backend, and the application's own connection."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from servers import pgbouncer, postgres
from servers.reach import check_reachable

from aqueue import Queue, connect
from aqueue.backends.postgres import PostgresBackend
from support.postgres_places import backend_on


@pytest.fixture(scope="module")
def reachable() -> None:
    check_reachable("postgres", postgres.unreachable())


@pytest.fixture(scope="module")
def pgbouncer_reachable() -> None:
    check_reachable("pgbouncer", pgbouncer.unreachable())


@pytest.fixture
def postgres_url(reachable: None) -> str:
    return postgres.fresh_url()


@pytest.fixture
async def queue(postgres_url: str) -> AsyncIterator[Queue]:
    async with connect(postgres_url) as queue:
        await queue.migrate()
        yield queue


@pytest.fixture
async def backend(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    backend = backend_on(postgres_url)
    await backend.open()
    await backend.migrate()
    yield backend
    await backend.aclose()


@pytest.fixture
async def mine() -> AsyncIterator[asyncpg.Connection]:
    """The application's own connection to the same database."""
    connection = await asyncpg.connect(postgres.url())
    yield connection
    await connection.close()
