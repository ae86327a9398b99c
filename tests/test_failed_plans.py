"""Making room among many failed jobs reads what it removes, and not the others (FAIL-2)."""

import re

import asyncpg
import pytest
from support.postgres_places import table

from aqueue.backends.postgres import PostgresBackend

pytest_plugins = ["support.postgres_fixtures"]
pytestmark = [pytest.mark.usefixtures("reachable"), pytest.mark.rule("FAIL-2")]

_EVER = 1e12
"""Seconds: nothing is as old."""


async def plan(backend: PostgresBackend, statement: str, *arguments: object) -> str:
    async def explain(connection: asyncpg.Connection) -> str:
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {statement}", *arguments)
        return "\n".join(row[0] for row in rows)

    return await backend._run(explain)


@pytest.mark.parametrize("queue", [None, "queue1"])
@pytest.mark.parametrize("age", [_EVER, 0.0])
async def test_postgres_purges_by_age_without_reading_what_is_younger(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection, queue: str | None, age: float
) -> None:
    await mine.execute(
        f"""INSERT INTO {table(postgres_url, "failed")}
        SELECT md5(n::text), 'job' || n % 7, 'queue' || n % 5, '', 1, 0, 'error', '', '', '', NULL, n, '', ''
        FROM generate_series(1, 20000) n"""
    )
    await mine.execute(f"ANALYZE {table(postgres_url, 'failed')}")

    text = await plan(backend, backend._failed_sql.purges[queue is not None], age, None, 50, queue)

    assert "Seq Scan" not in text, text
    index = "failed_queue" if queue else "failed_all"
    assert re.search(rf"Index (Only )?Scan using \w+_{index} .*", text), text
    hit = re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", text)
    assert hit is not None
    assert int(hit[1]) + int(hit[2] or 0) < 1_000, text
    assert not re.search(r"Rows Removed by Filter: [1-9]\d{3}", text), text
