"""What is PostgreSQL's own: its URL, schema, clock, waiting and lost replies; and PgBouncer."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from servers import pgbouncer, postgres
from support.postgres_places import Note, backend_on, listening, messages, numbers, table

from aqueue import InvalidQueueArgument, Queue, StoreRefused, connect
from aqueue.backends.postgres import PostgresBackend, migration_sql, schema
from aqueue.connection import open_backend
from aqueue.port import Releasing, Reserved, StoreOptions
from aqueue.testing import eventually

pytest_plugins = ["support.postgres_fixtures"]
pytestmark = pytest.mark.usefixtures("reachable")


# -- the URL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
async def test_every_usual_scheme_leads_here(scheme: str, postgres_url: str) -> None:
    async with connect(postgres_url.replace("postgresql", scheme, 1)) as queue:
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


async def test_several_names_share_a_database_and_nothing_else(postgres_url: str) -> None:
    async with connect(postgres_url) as one, connect(f"{postgres_url}&schema=aqueue_elsewhere") as other:
        await one.migrate()
        await other.migrate()
        await one.push(Note("x"))

        assert (await one.size(), await other.size()) == (1, 0)


# -- the schema -----------------------------------------------------------------------------------------


async def test_a_database_without_tables_says_how_to_make_them(postgres_url: str) -> None:
    async with connect(postgres_url) as queue:
        for call in (lambda: queue.push(Note("x")), queue.size, lambda: queue.pop(timeout=1)):
            with pytest.raises(StoreRefused, match=r"aqueue migrate.*queue\.migrate\(\)"):
                await call()


async def test_many_processes_may_migrate_at_once(postgres_url: str) -> None:
    backends = [backend_on(postgres_url) for _ in range(8)]
    for backend in backends:
        await backend.open()

    await asyncio.gather(*(backend.migrate() for backend in backends * 2))

    assert await backends[0].push(messages(1)) == [None]
    for backend in backends:
        await backend.aclose()


async def test_a_schema_of_a_newer_aqueue_is_refused(
    postgres_url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    await mine.execute(f"INSERT INTO {table(postgres_url, 'schema')} VALUES (99)")

    with pytest.raises(StoreRefused, match=r"version 99.*upgrade aqueue-jobs"):
        await connect(postgres_url).open()
    with pytest.raises(StoreRefused, match="version 99"):
        await queue.migrate()


async def test_the_printed_steps_do_what_migrate_does(postgres_url: str, mine: asyncpg.Connection) -> None:
    await mine.execute(migration_sql(postgres_url))

    async with connect(postgres_url) as queue:
        await queue.push(Note("x"))
        await queue.migrate()  # finds nothing to do
        assert await queue.size() == 1
    assert "step 1" not in migration_sql(postgres_url, after=1)
    with pytest.raises(InvalidQueueArgument):
        migration_sql(postgres_url, after=len(schema.STEPS) + 1)


async def test_migrating_what_is_current_needs_no_right_to_create(
    postgres_url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    name = "worker_" + table(postgres_url).split(".")[1]
    await mine.execute(f"CREATE ROLE {name} LOGIN")
    for part in ("jobs", "failed", "schema"):
        await mine.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table(postgres_url, part)} TO {name}")
    await mine.execute(f"GRANT USAGE ON {table(postgres_url, 'places')} TO {name}")

    async with connect(re.sub(r"//[^@]*@", f"//{name}@", postgres_url)) as limited:
        await limited.migrate()
        await limited.push(Note("x"))
        delivery = await limited.pop(timeout=5)
        assert delivery is not None
        await limited.fail(delivery)


def test_a_released_step_never_changes() -> None:
    assert len(schema.STEPS) == 2
    assert "state smallint" in schema.STEPS[0]
    assert "until double precision" in schema.STEPS[1]


# -- the clock ------------------------------------------------------------------------------------------


@pytest.mark.rule("LEASE-1", "DELAY-1")
async def test_no_clock_but_the_servers_decides(postgres_url: str) -> None:
    def broken() -> float:
        raise AssertionError("the store's own clock was not used")

    backend = open_backend(postgres_url, StoreOptions(lease=60.0, clock=broken))
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


# -- waiting --------------------------------------------------------------------------------------------


@pytest.mark.rule("POP-7")
async def test_an_idle_pop_sends_one_statement_a_second(
    postgres_url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    await queue.pop(timeout=0.1)
    statements = _counted(queue)

    assert await queue.pop(timeout=2.5) is None

    assert statements() <= 4


def _counted(queue: Queue) -> Callable[[], int]:
    backend: Any = queue._store.backend
    count = 0

    def counted(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def counting(call: Any) -> Any:
            nonlocal count
            count += 1
            return await run(call)

        return counting

    for lanes in (backend._lanes, backend._readers):
        lanes.run = counted(lanes.run)
    return lambda: count


@pytest.mark.rule("POP-3", "DELAY-1")
async def test_news_of_a_job_due_in_a_moment_wakes_a_waiting_pop_for_it(
    postgres_url: str, queue: Queue, mine: asyncpg.Connection
) -> None:
    async with connect(postgres_url) as waiting:
        await listening(waiting, mine)
        popping = asyncio.create_task(waiting.pop(timeout=10))
        await asyncio.sleep(0.03)  # it must be waiting, and there is nothing to see that by

        await queue.push(Note("x"), delay=0.2)

        assert await popping is not None


@pytest.mark.rule("POP-3")
async def test_a_batch_of_jobs_due_now_and_later_wakes_a_waiting_pop_at_once(
    backend: PostgresBackend,
) -> None:
    assert await numbers(backend, 1) == []
    waiting = asyncio.create_task(backend.wait(["default"], 30))
    await asyncio.sleep(0.03)  # it must be waiting, and there is nothing to see that by

    await backend.push([*messages(1), *messages(1, first=2, delay=600)])

    async with asyncio.timeout(5):
        await waiting


# -- lost replies ---------------------------------------------------------------------------------------


@pytest.mark.rule("POP-6", "CALL-1")
async def test_what_a_sweep_reserved_when_its_reply_was_lost_is_given_back(
    postgres_url: str, backend: PostgresBackend, mine: asyncpg.Connection
) -> None:
    await backend.push(messages(3))
    for _ in range(3):
        async with mine.transaction():
            # The sweep's first statement waits here until it is cancelled; afterwards it runs to its end.
            await mine.execute(f"LOCK TABLE {table(postgres_url)} IN ACCESS EXCLUSIVE MODE")
            sweeping = asyncio.create_task(backend.pop(["default"], 2))
            await eventually(lambda: _waits_for_a_lock(postgres_url))
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

        async def all_back() -> None:
            taken = await backend.pop(["default"], 3)
            await backend.release([Releasing(item, counted=False) for item in taken])
            assert [(int(item.id, 16), item.attempt) for item in taken] == [(1, 1), (2, 1), (3, 1)]

        await eventually(all_back)


async def _waits_for_a_lock(postgres_url: str) -> bool:
    connection = await asyncpg.connect(postgres.url())
    try:
        return bool(
            await connection.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass",
                table(postgres_url),
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
async def test_a_pooler_that_swallows_settings_is_recognised_by_its_lost_statements() -> None:
    queues = [connect(postgres.fresh_url(pgbouncer.swallowing_url())) for _ in range(6)]

    async def use_them() -> None:
        for queue in queues:
            await queue.open()
            await queue.migrate()
        for _ in range(50):
            await asyncio.gather(*(queue.size() for queue in queues))

    with pytest.raises(StoreRefused, match=r"pgbouncer=true"):
        await use_them()
    for queue in queues:
        await queue.aclose()


@pytest.mark.usefixtures("pgbouncer_reachable")
@pytest.mark.rule("PUSH-3", "POP-5")
async def test_many_connections_share_pgbouncers_few(postgres_url: str) -> None:
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
