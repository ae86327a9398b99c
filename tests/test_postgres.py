"""What is PostgreSQL's own: its URL, schema and plans, pushes in the caller's transaction, and PgBouncer."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
from servers import pgbouncer, postgres
from servers.reach import check_reachable
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from aqueue import InvalidQueueArgument, Queue, StoreRefused, connect, job
from aqueue.backends.postgres import PostgresBackend, from_url, jobs, migration_sql, schema
from aqueue.backends.postgres.marks import Marks, Swept
from aqueue.connection import open_backend
from aqueue.port import Message, Releasing, Reserved, StoreOptions
from aqueue.testing import eventually
from aqueue.urls import parse_url

pytestmark = pytest.mark.usefixtures("reachable")


@job(name="postgres.note")
class Note:
    text: str


@pytest.fixture(scope="module")
def reachable() -> None:
    check_reachable("postgres", postgres.unreachable())


@pytest.fixture(scope="module")
def pgbouncer_reachable() -> None:
    check_reachable("pgbouncer", pgbouncer.unreachable())


@pytest.fixture
def url(reachable: None) -> str:
    return postgres.fresh_url()


@pytest.fixture
async def queue(url: str) -> AsyncIterator[Queue]:
    async with connect(url) as queue:
        await queue.migrate()
        yield queue


@pytest.fixture
async def backend(url: str) -> AsyncIterator[PostgresBackend]:
    backend = backend_on(url)
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


def backend_on(url: str, lease: float = 60.0) -> PostgresBackend:
    return from_url(parse_url(url), StoreOptions(lease=lease, clock=time.time))


def messages(count: int, *, queue: str = "default", first: int = 1, delay: float = 0.0) -> list[Message]:
    return [Message(f"{number:032x}", queue, b"x" * 200, delay) for number in range(first, first + count)]


def table(url: str, name: str = "jobs") -> str:
    found = re.search(r"table=(\w+)", url)
    assert found is not None
    return f"public.{found[1]}_{name}"


async def numbers(backend: PostgresBackend, limit: int, *queues: str) -> list[int]:
    return [int(item.id, 16) for item in await backend.pop(queues or ("default",), limit)]


# -- the URL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
async def test_every_usual_scheme_leads_here(scheme: str, url: str) -> None:
    async with connect(url.replace("postgresql", scheme, 1)) as queue:
        await queue.migrate()
        await queue.push(Note("x"))
        assert await queue.size() == 1


@pytest.mark.parametrize(
    "option", ["schema=a-b", 'table=a"b', "table=1st", "schema=", f"table={'x' * 41}", "pgbouncer=maybe"]
)
def test_a_name_unfit_for_a_statement_is_refused(option: str) -> None:
    with pytest.raises(InvalidQueueArgument, match=option.split("=", maxsplit=1)[0]):
        connect(f"postgresql://localhost/test?{option}")


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidQueueArgument, match=r"pgbouncer.*schema.*sslmode.*table"):
        connect("postgresql://localhost/test?pool=3")


def test_what_the_driver_understands_is_handed_to_it_whole() -> None:
    address = backend_on(
        "postgres://me:p%40ss%2F@[::1]:5433,other/my%20db?sslmode=require&application_name=a"
    )._address

    assert address.dsn == "postgresql://me:p%40ss%2F@[::1]:5433,other/my%20db?sslmode=require"
    assert address.settings["application_name"] == "a"
    assert "p%40ss" not in repr(address)


async def test_several_names_share_a_database_and_nothing_else(url: str) -> None:
    async with connect(url) as one, connect(f"{url}&schema=aqueue_elsewhere") as other:
        await one.migrate()
        await other.migrate()
        await one.push(Note("x"))

        assert (await one.size(), await other.size()) == (1, 0)


# -- the schema -----------------------------------------------------------------------------------------


async def test_a_database_without_tables_says_how_to_make_them(url: str) -> None:
    async with connect(url) as queue:
        for call in (lambda: queue.push(Note("x")), queue.size, lambda: queue.pop(timeout=1)):
            with pytest.raises(StoreRefused, match=r"aqueue migrate.*queue\.migrate\(\)"):
                await call()


async def test_many_processes_may_migrate_at_once(url: str) -> None:
    backends = [backend_on(url) for _ in range(8)]
    for backend in backends:
        await backend.open()

    await asyncio.gather(*(backend.migrate() for backend in backends * 2))

    assert await backends[0].push(messages(1)) == [None]
    for backend in backends:
        await backend.aclose()


async def test_a_schema_of_a_newer_aqueue_is_refused(
    url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    await mine.execute(f"INSERT INTO {table(url, 'schema')} VALUES (99)")

    with pytest.raises(StoreRefused, match=r"version 99.*upgrade aqueue-jobs"):
        await connect(url).open()
    with pytest.raises(StoreRefused, match="version 99"):
        await queue.migrate()


async def test_the_printed_steps_do_what_migrate_does(url: str, mine: asyncpg.Connection) -> None:
    await mine.execute(migration_sql(url))

    async with connect(url) as queue:
        await queue.push(Note("x"))
        await queue.migrate()  # finds nothing to do
        assert await queue.size() == 1
    assert "step 1" not in migration_sql(url, after=1)
    with pytest.raises(InvalidQueueArgument):
        migration_sql(url, after=2)


async def test_migrating_what_is_current_needs_no_right_to_create(
    url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    name = "worker_" + table(url).split(".")[1]
    await mine.execute(f"CREATE ROLE {name} LOGIN")
    for part in ("jobs", "failed", "schema"):
        await mine.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table(url, part)} TO {name}")
    await mine.execute(f"GRANT USAGE ON {table(url, 'places')} TO {name}")

    async with connect(re.sub(r"//[^@]*@", f"//{name}@", url)) as limited:
        await limited.migrate()
        await limited.push(Note("x"))
        delivery = await limited.pop(timeout=5)
        assert delivery is not None
        await limited.fail(delivery)


def test_a_released_step_never_changes() -> None:
    assert len(schema.STEPS) == 1
    assert "state smallint" in schema.STEPS[0]


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
    url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    pop = (["high", "default"], ["-1"] * 2, ["-inf"] * 2, ["true"] * 2, 10, 1, 60.0)
    touched = []
    for backlog in (1_000, 60_000):
        await fill(mine, url, backlog)

        text = await plan(backend, backend._sql.sweep, *pop)

        assert "Seq Scan" not in text
        assert "Index Scan using" in text
        rows = [int(number) for number in re.findall(r"Index Scan using \w+_ready .*?rows=(\d+)", text)]
        assert max(rows) <= 10, text
        touched.append(buffers(text))
    assert touched[1] <= touched[0] * 1.5, touched


@pytest.mark.rule("POP-8")
async def test_settling_finds_each_job_by_its_key(
    url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await fill(mine, url, 20_000)
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
    url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await mine.execute(
        f"""INSERT INTO {table(url, "failed")}
        SELECT md5(n::text), 'job' || n % 7, 'queue' || n % 5, '', 1, 0, 'error', '', '', '', NULL, n, '', ''
        FROM generate_series(1, 20000) n"""
    )

    for (by_queue, by_job), statement in backend._failed_sql.pages.items():
        wanted = ("queue1" if by_queue else None, "job1" if by_job else None)
        text = await plan(backend, statement, *wanted, 5000.0, "", 20)
        index = {(0, 0): "all", (1, 0): "queue", (0, 1): "name", (1, 1): "queue_name"}[by_queue, by_job]
        assert re.search(rf"Index Scan using \w+_failed_{index} ", text), text
        assert "Sort" not in text


async def fill(connection: asyncpg.Connection, url: str, count: int) -> None:
    await connection.execute(f"TRUNCATE {table(url)}")
    await connection.execute(
        f"""INSERT INTO {table(url)} (queue, id, payload, state, ready_at)
        SELECT 'default', md5(n::text), '\\x00', n % 2, n + 1e10 * (n % 2)
        FROM generate_series(1, {count * 2}) n ORDER BY n"""
    )


# -- low-water marks ------------------------------------------------------------------------------------


@pytest.mark.rule("POP-8")
async def test_dead_rows_pinned_by_an_old_snapshot_are_not_read_again(
    url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    async with mine.transaction(isolation="repeatable_read"):
        await mine.fetchval("SELECT count(*) FROM pg_class")
        for first in range(1, 20_001, 500):
            await backend.push(messages(500, first=first))
        while (taken := await backend.pop(["default"], 500)) and not int(taken[0].id, 16) > 19_000:
            await backend.ack(taken)

        start = backend._marks.start(["default"], asyncio.get_running_loop().time())
        at_the_mark = jobs.sweep_arguments(["default"], start._replace(behind=[False]), 1, 1, 60.0)
        marked = buffers(await plan(backend, backend._sql.sweep, *at_the_mark))
        whole = buffers(
            await plan(backend, backend._sql.sweep, ["default"], ["-1"], ["-inf"], ["false"], 1, 2, 60.0)
        )

    assert start.marks[0] > 0, "it started anew just now; the marks are tried at another time"
    assert marked < 100 < 1_000 < whole


@pytest.mark.rule("POP-2", "POP-8")
async def test_a_job_that_went_back_behind_the_mark_is_found(url: str, backend: PostgresBackend) -> None:
    other = backend_on(url)
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
    url: str, backend: PostgresBackend, mine: asyncpg.Connection
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


def _sweep(marks: Marks, now: float, *, cost: float) -> None:
    start = marks.start(["q"], now)
    swept = Swept(last={1: 7}, came_short=True, is_tidy=True, server_now=now, cost=cost)
    marks.swept(["q"], start, swept, now)


# -- the clock ------------------------------------------------------------------------------------------


@pytest.mark.rule("LEASE-1", "DELAY-1")
async def test_no_clock_but_the_servers_decides(url: str) -> None:
    def broken() -> float:
        raise AssertionError("the store's own clock was not used")

    backend = open_backend(url, StoreOptions(lease=60.0, clock=broken))
    await backend.open()
    await backend.migrate()
    await backend.push([*messages(1), *messages(1, first=2, delay=60)])

    [item] = await backend.pop(["default"], 5)
    await backend.extend([item])
    await backend.release([Releasing(item, delay=5)])
    assert (await backend.stats("default")).delayed == 2
    await backend.aclose()


# -- names ----------------------------------------------------------------------------------------------


async def test_names_compare_byte_by_byte(backend: PostgresBackend) -> None:
    await backend.push(messages(1, queue="Mail"))
    await backend.push(messages(1, queue="mail", first=2))

    assert await numbers(backend, 5, "mail") == [2]
    assert await numbers(backend, 5, "Mail") == [1]


# -- pushing inside the application's transaction --------------------------------------------------------


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
async def test_the_commit_wakes_a_waiting_worker(queue: Queue, url: str, mine: asyncpg.Connection) -> None:
    async with connect(url) as waiting:
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


async def listening(queue: Queue, mine: asyncpg.Connection) -> None:
    """Wait until the queue's own listener is connected."""
    backend: Any = queue._store.backend
    await backend.wait(["default"], 0.01)

    async def is_listening() -> bool:
        return bool(
            await mine.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1",
                f"%{backend._channel}%",
            )
        )

    await eventually(is_listening)


def _sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://", 1)


# -- waiting --------------------------------------------------------------------------------------------


@pytest.mark.rule("POP-7")
async def test_an_idle_pop_sends_one_statement_a_second(
    url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    await queue.pop(timeout=0.1)
    statements = _counted(queue)

    assert await queue.pop(timeout=2.5) is None

    assert statements() <= 4


def _counted(queue: Queue) -> Callable[[], int]:
    backend: Any = queue._store.backend
    lanes, count = backend._lanes, 0
    run = lanes.run

    async def counting(call: Any) -> Any:
        nonlocal count
        count += 1
        return await run(call)

    lanes.run = counting
    return lambda: count


@pytest.mark.rule("POP-3", "DELAY-1")
async def test_news_of_a_job_due_in_a_moment_wakes_a_waiting_pop_for_it(
    url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    async with connect(url) as waiting:
        await listening(waiting, mine)
        popping = asyncio.create_task(waiting.pop(timeout=10))
        await asyncio.sleep(0.03)  # it must be waiting, and there is nothing to see that by

        await queue.push(Note("x"), delay=0.2)

        assert await popping is not None


# -- lost replies ---------------------------------------------------------------------------------------


@pytest.mark.rule("POP-6", "CALL-1")
async def test_what_a_sweep_reserved_when_its_reply_was_lost_is_given_back(
    url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await backend.push(messages(3))
    for _ in range(3):
        async with mine.transaction():
            # The sweep's first statement waits here until it is cancelled; afterwards it runs to its end.
            await mine.execute(f"LOCK TABLE {table(url)} IN ACCESS EXCLUSIVE MODE")
            sweeping = asyncio.create_task(backend.pop(["default"], 2))
            await eventually(lambda: _waits_for_a_lock(url))
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

        async def all_back() -> None:
            taken = await backend.pop(["default"], 3)
            await backend.release([Releasing(item, counted=False) for item in taken])
            assert [(int(item.id, 16), item.attempt) for item in taken] == [(1, 1), (2, 1), (3, 1)]

        await eventually(all_back)


async def _waits_for_a_lock(url: str) -> bool:
    connection = await asyncpg.connect(postgres.url())
    try:
        return bool(
            await connection.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass", table(url)
            )
        )
    finally:
        await connection.close()


# -- settling -------------------------------------------------------------------------------------------


@pytest.mark.rule("FENCE-1", "LEASE-3")
async def test_settlements_of_the_same_jobs_in_any_order_never_deadlock(backend: PostgresBackend) -> None:
    await backend.push(messages(200))
    taken: list[Reserved] = list(await backend.pop(["default"], 200))

    for _ in range(20):
        answers = await asyncio.gather(
            backend.extend(taken), backend.extend(taken[::-1]), backend.extend(taken[100:] + taken[:100])
        )
        assert all(str(answer) == "Verdict.SETTLED" for batch in answers for answer in batch)


# -- PgBouncer ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pgbouncer_reachable")
async def test_pgbouncer_without_its_option_is_recognised_and_named() -> None:
    with pytest.raises(StoreRefused, match=r"pgbouncer=true"):
        await connect(postgres.fresh_url(pgbouncer.url())).open()


@pytest.mark.usefixtures("pgbouncer_reachable")
@pytest.mark.rule("PUSH-3", "POP-5")
async def test_many_connections_share_pgbouncers_few(url: str) -> None:
    through = pgbouncer.fresh_url()
    backends = [backend_on(through) for _ in range(12)]
    for backend in backends:
        await backend.open()
    await backends[0].migrate()
    await backends[0].push(messages(300))
    taken: list[int] = []

    async def drain(backend: PostgresBackend) -> None:
        while batch := await backend.pop(["default"], 7):
            taken.extend(int(item.id, 16) for item in batch)
            await backend.ack(batch)

    await asyncio.gather(*(drain(backend) for backend in backends * 2))

    assert sorted(taken) == list(range(1, 301))
    for backend in backends:
        await backend.aclose()
