"""That no pop, settlement or listing costs more for a backlog, for dead rows or for an old snapshot."""

import re

import asyncpg
import pytest
from support.postgres_places import backend_on, messages, numbers, table

from aqueue.backends.postgres import PostgresBackend, jobs
from aqueue.backends.postgres.marks import Marks, Swept
from aqueue.port import Releasing
from aqueue.testing import eventually

pytest_plugins = ["support.postgres_fixtures"]
pytestmark = pytest.mark.usefixtures("reachable")


# -- plans ----------------------------------------------------------------------------------------------


async def plan(backend: PostgresBackend, statement: str, *arguments: object) -> str:
    """Return the statement's plan as it is run, the buffers it touched included; what it did is undone."""

    async def explain(connection: asyncpg.Connection) -> str:
        async with connection.transaction():
            rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {statement}", *arguments)
            await connection.execute("SELECT set_config('aqueue.undo', '1', true)")
            return "\n".join(row[0] for row in rows)

    return await backend._run(explain)


def buffers(text: str) -> int:
    """Return how many buffers the whole statement touched: its first line of them."""
    found = re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", text)
    assert found is not None
    return int(found[1]) + int(found[2] or 0)


@pytest.mark.rule("POP-8")
async def test_a_pop_reads_its_indexes_and_never_the_backlog(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    pop = (["high", "default"], ["-1"] * 2, ["-inf"] * 2, ["true"] * 2, 10, 1, 60.0)
    touched = []
    for backlog in (1_000, 60_000):
        await fill(mine, postgres_url, backlog)

        text = await plan(backend, backend._sql.sweep, *pop)

        assert "Seq Scan" not in text
        assert "Index Scan using" in text
        rows = [int(number) for number in re.findall(r"Index Scan using \w+_ready .*?rows=(\d+)", text)]
        assert max(rows) <= 10, text
        touched.append(buffers(text))
    assert touched[1] <= touched[0] * 1.5, touched


@pytest.mark.rule("POP-8")
async def test_a_claim_between_two_sweeps_reads_only_what_it_takes(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await fill(mine, postgres_url, 20_000)

    text = await plan(backend, backend._sql.claim, ["high", "default"], ["-1", "500"], 10, 1, 60.0)

    assert "Seq Scan" not in text
    assert "Sort" not in text
    rows = [int(number) for number in re.findall(r"Index Scan using \w+_ready .*?rows=(\d+)", text)]
    assert max(rows) <= 10, text


@pytest.mark.rule("POP-8")
async def test_settling_finds_each_job_by_its_key(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await fill(mine, postgres_url, 20_000)
    keys = (["default"] * 3, [f"{number:032x}" for number in range(3)], ["1", "2", "3"])

    for statement, arguments in (
        (backend._sql.ack, keys),
        (backend._sql.extend, (*keys, 60.0)),
        (backend._sql.release, ("channel", *keys, ["0"] * 3, ["true"] * 3)),
    ):
        text = await plan(backend, statement, *arguments)
        assert "Seq Scan" not in text
        assert re.search(r"Index Scan using \w+_held", text), text


@pytest.mark.rule("FAIL-2")
async def test_every_page_of_failed_jobs_reads_its_own_index(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await mine.execute(
        f"""INSERT INTO {table(postgres_url, "failed")}
        SELECT md5(n::text), 'job' || n % 7, 'queue' || n % 5, '', 1, 0, 'error', '', '', '', NULL, n, '', ''
        FROM generate_series(1, 20000) n"""
    )

    for (by_queue, by_job), statement in backend._failed_sql.pages.items():
        wanted = ("queue1" if by_queue else None, "job1" if by_job else None)
        text = await plan(backend, statement, *wanted, 5000.0, "", 20)
        index = {(0, 0): "all", (1, 0): "queue", (0, 1): "name", (1, 1): "queue_name"}[by_queue, by_job]
        assert re.search(rf"Index Scan using \w+_failed_{index} ", text), text
        assert "Sort" not in text


async def fill(connection: asyncpg.Connection, postgres_url: str, count: int) -> None:
    await connection.execute(f"TRUNCATE {table(postgres_url)}")
    await connection.execute(
        f"""INSERT INTO {table(postgres_url)} (queue, id, payload, state, ready_at)
        SELECT 'default', md5(n::text), '\\x00', n % 2, n + 1e10 * (n % 2)
        FROM generate_series(1, {count * 2}) n ORDER BY n"""
    )


# -- low-water marks ------------------------------------------------------------------------------------


@pytest.mark.rule("POP-8")
async def test_dead_rows_pinned_by_an_old_snapshot_are_not_read_again(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    async with mine.transaction(isolation="repeatable_read"):
        await mine.fetchval("SELECT count(*) FROM pg_class")
        for first in range(1, 20_001, 500):
            await backend.push(messages(500, first=first))
        while (taken := await backend.pop(["default"], 500)) and not int(taken[0].id, 16) > 19_000:
            await backend.ack(taken)

        start = backend._marks.start(["default"], 0.0)  # long before the next round
        at_the_mark = jobs.sweep_arguments(["default"], start._replace(behind=[False]), 1, 1, 60.0)
        marked = buffers(await plan(backend, backend._sql.sweep, *at_the_mark))
        whole = buffers(
            await plan(backend, backend._sql.sweep, ["default"], ["-1"], ["-inf"], ["false"], 1, 2, 60.0)
        )

    assert start.marks[0] > 0
    assert marked < 100 < 1_000 < whole


@pytest.mark.rule("POP-2", "POP-8")
async def test_a_job_that_went_back_behind_the_mark_is_found(
    postgres_url: str, backend: PostgresBackend
) -> None:
    other = backend_on(postgres_url)
    await other.open()
    await backend.push(messages(6))
    held = await other.pop(["default"], 2)
    assert await numbers(backend, 2) == [3, 4]

    await other.release([Releasing(item, counted=False) for item in held])

    found: list[int] = []

    async def all_found() -> bool:
        found.extend(await numbers(backend, 1))
        return len(found) == 4

    await eventually(all_found)
    assert sorted(found) == [1, 2, 5, 6]
    await other.aclose()


@pytest.mark.rule("POP-8")
async def test_a_push_that_commits_late_is_found(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    transaction = mine.transaction()
    await transaction.start()
    await backend.push_within(mine, messages(1))
    await backend.push(messages(2, first=2))
    assert await numbers(backend, 2) == [2, 3]

    await transaction.commit()

    assert await numbers(backend, 2) == [1]


def test_marks_look_behind_while_it_is_cheap() -> None:
    marks = Marks()
    _sweep(marks, 0.0, cost=0.001)

    assert marks.start(["q"], 0.1).behind == [True]


def test_marks_don_t_look_behind_more_than_a_tenth_of_the_time_where_it_is_slow() -> None:
    marks = Marks()
    for now in (0.0, 2.0):
        _sweep(marks, now, cost=0.050)
    assert marks.start(["q"], 2.1).behind == [False]
    _sweep(marks, 2.1, cost=0.001)

    assert marks.start(["q"], 2.6).behind == [True]
    assert marks.start(["q"], 2.6).marks == [7]
    assert marks.start(["q"], 3.1).whole == [True]


def test_one_slow_sweep_by_chance_changes_nothing() -> None:
    marks = Marks()
    _sweep(marks, 0.0, cost=0.001)
    _sweep(marks, 2.0, cost=0.500)

    assert marks.start(["q"], 2.1).behind == [True]


def test_a_queue_that_a_sweep_did_not_come_to_keeps_its_turn() -> None:
    marks = Marks()
    start = marks.start(["high", "low"], 0.0)

    marks.swept(
        ["high", "low"],
        start,
        Swept(last={1: 5}, came_short=False, is_tidy=True, server_now=1.0, cost=0.001),
        0.0,
    )

    assert marks.start(["high", "low"], 0.1).whole == [False, True]


def test_a_busy_queue_is_claimed_from_between_two_sweeps() -> None:
    marks = Marks()
    assert marks.hurry(["q"], 0.0) is None
    _sweep(marks, 0.0, cost=0.001, came_short=False)

    assert marks.hurry(["q"], 0.01) == [7]
    assert marks.hurry(["q", "r"], 0.01) is None
    assert marks.hurry(["q"], 0.06) is None
    _sweep(marks, 0.06, cost=0.001, came_short=True)
    assert marks.hurry(["q"], 0.07) is None


@pytest.mark.rule("DELAY-1", "LEASE-2")
async def test_a_queue_that_never_runs_dry_still_gives_what_fell_due_and_what_was_lost(
    postgres_url: str,
) -> None:
    backend = backend_on(postgres_url, lease=0.3)
    await backend.open()
    await backend.migrate()
    await backend.push([*messages(1), *messages(1, first=2, delay=0.2)])
    assert await numbers(backend, 1) == [1]
    taken: list[int] = []

    async def both_came() -> bool:
        await backend.push(messages(5, first=100 + len(taken) * 5))
        items = await backend.pop(["default"], 5)
        taken.extend(int(item.id, 16) for item in items)
        await backend.ack(items)
        return {1, 2} <= set(taken)

    await eventually(both_came)
    await backend.aclose()


async def test_browsing_pages_through_waiting_and_leased_jobs_in_the_order_of_their_ids(
    backend: PostgresBackend,
) -> None:
    await backend.push([*messages(3), *messages(2, first=4, delay=60), *messages(1, queue="other")])
    await backend.pop(["default"], 1)

    first = await backend.browse("default", after=None, limit=3)
    rest = await backend.browse("default", after=first[-1].id, limit=3)

    assert [int(message.id, 16) for message in [*first, *rest]] == [1, 2, 3, 4, 5]
    assert rest[-1].delay > 50


def _sweep(marks: Marks, now: float, *, cost: float, came_short: bool = True) -> None:
    start = marks.start(["q"], now)
    swept = Swept(last={1: 7}, came_short=came_short, is_tidy=True, server_now=now, cost=cost)
    marks.swept(["q"], start, swept, now)
