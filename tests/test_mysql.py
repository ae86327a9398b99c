"""What is MySQL's and MariaDB's own: URLs, tables and plans, every trap of theirs, callers' transactions."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pytest
from asyncmy.connection import Connection
from servers import mysql
from servers.reach import check_reachable
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from aqueue import InvalidQueueArgument, Queue, StoreRefused, connect, job
from aqueue.backends.mysql import MySQLBackend, from_url, literals, migration, migration_sql, schema
from aqueue.backends.mysql.browsing import browsing_statements
from aqueue.backends.mysql.connections import Session
from aqueue.backends.mysql.failed import Filter
from aqueue.backends.mysql.jobs import Receipt, these
from aqueue.backends.mysql.marks import Marks
from aqueue.backends.mysql.troubles import is_refusal
from aqueue.connection import open_backend
from aqueue.port import FailedRecord, Failing, Message, Releasing, Reserved, StoreOptions, Verdict
from aqueue.testing import eventually
from aqueue.urls import parse_url

pytestmark = pytest.mark.usefixtures("reachable")


@job(name="mysql.note")
class Note:
    text: str


@pytest.fixture(scope="module")
def reachable() -> None:
    check_reachable("mysql", mysql.unreachable())


@pytest.fixture
def url(reachable: None) -> str:
    return mysql.fresh_url()


@pytest.fixture
async def queue(url: str) -> AsyncIterator[Queue]:
    async with connect(url) as queue:
        await queue.migrate()
        yield queue


@pytest.fixture
async def backend(url: str) -> AsyncIterator[MySQLBackend]:
    backend = backend_on(url)
    await backend.open()
    await backend.migrate()
    yield backend
    await backend.aclose()


@pytest.fixture
async def mine(reachable: None) -> AsyncIterator[Connection]:
    """The application's own connection to the same database; it commits what it is told to commit."""
    connection = await connected(mysql.url())
    yield connection
    await connection.ensure_closed()


async def connected(url: str, **options: Any) -> Connection:
    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.removeprefix("/"),
        **options,
    )


async def ask(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        return list(await cursor.fetchall())


async def settings(backend: MySQLBackend, *names: str) -> list[Any]:
    async def asked(session: Session) -> list[Any]:
        [result] = await session.run("SELECT " + ", ".join(names))
        return list(result.rows[0])

    return await backend._run(asked)


def backend_on(url: str, lease: float = 60.0) -> MySQLBackend:
    return from_url(parse_url(url), StoreOptions(lease=lease, clock=time.time))


def messages(count: int, *, queue: str = "default", first: int = 1, delay: float = 0.0) -> list[Message]:
    return [Message(f"{number:032x}", queue, b"x" * 200, delay) for number in range(first, first + count)]


def table(url: str, name: str = "jobs") -> str:
    found = re.search(r"table=(\w+)", url)
    assert found is not None
    return f"{found[1]}_{name}"


async def numbers(backend: MySQLBackend, limit: int, *queues: str) -> list[int]:
    return [int(item.id, 16) for item in await backend.pop(queues or ("default",), limit)]


def failing(item: Reserved, **texts: Any) -> Failing:
    record = FailedRecord(
        id=item.id,
        name="note",
        queue=item.queue,
        payload=item.payload,
        attempts=1,
        lost=0,
        reason="error",
        delivery=str(item.receipt),
    )
    return Failing(
        item,
        type(record)(**{name: texts.get(name, getattr(record, name)) for name in record.__struct_fields__}),
    )


# -- the URL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+asyncmy"])
async def test_every_usual_scheme_leads_here(scheme: str, url: str) -> None:
    async with connect(url.replace("mysql", scheme, 1)) as queue:
        await queue.migrate()
        await queue.push(Note("x"))
        assert await queue.size() == 1


@pytest.mark.parametrize(
    "option", ["schema=a-b", "table=a`b", "table=1st", "schema=", f"table={'x' * 41}", "ssl_mode=maybe"]
)
def test_a_name_unfit_for_a_statement_is_refused(option: str) -> None:
    with pytest.raises(InvalidQueueArgument, match=option.split("=", maxsplit=1)[0]):
        connect(f"mysql://localhost/test?{option}")


@pytest.mark.parametrize("path", ["", "/", "/a`b", "/a/b", f"/{'x' * 65}"])
def test_a_url_without_a_usable_database_is_refused(path: str) -> None:
    with pytest.raises(InvalidQueueArgument, match="names a database"):
        connect(f"mysql://localhost{path}")


def test_an_unknown_option_or_a_second_host_is_refused() -> None:
    with pytest.raises(InvalidQueueArgument, match=r"schema.*ssl_mode.*table.*unix_socket"):
        connect("mysql://localhost/test?pool=3")
    with pytest.raises(InvalidQueueArgument, match="one host"):
        connect("mysql://one,two/test")


def test_what_the_url_says_reaches_the_driver_and_its_secrets_nobody_else() -> None:
    address = backend_on("mariadb://me:p%40ss%2F@[::1]:3307/my-jobs?unix_socket=/run/s")._address

    assert (address.host, address.port, address.database) == ("::1", 3307, "my-jobs")
    assert (address.user, address.password, address.unix_socket) == ("me", "p@ss/", "/run/s")
    assert "p@ss" not in repr(address)


def test_tls_is_verified_as_far_as_the_mode_says() -> None:
    modes = {
        mode: backend_on(f"mysql://localhost/test?ssl_mode={mode}")._address.tls
        for mode in ("disabled", "required", "verify_ca", "verify_identity")
    }

    assert modes["disabled"] is None
    seen = {
        mode: (tls.verify_mode.name, tls.check_hostname) for mode, tls in modes.items() if tls is not None
    }
    assert seen == {
        "required": ("CERT_NONE", False),
        "verify_ca": ("CERT_REQUIRED", False),
        "verify_identity": ("CERT_REQUIRED", True),
    }
    with pytest.raises(InvalidQueueArgument, match="ssl_mode"):
        connect("mysql://localhost/test?ssl_ca=/nowhere")
    with pytest.raises(InvalidQueueArgument, match="can't be read"):
        connect("mysql://localhost/test?ssl_mode=verify_ca&ssl_ca=/nowhere")


async def test_several_tables_and_databases_share_a_server_and_nothing_else(
    url: str, mine: Connection
) -> None:
    other_schema = table(url, "elsewhere")
    await ask(mine, f"CREATE DATABASE {other_schema}")
    async with connect(url) as one, connect(f"{url}&schema={other_schema}") as other:
        await one.migrate()
        await other.migrate()
        await one.push(Note("x"))

        assert (await one.size(), await other.size()) == (1, 0)


@pytest.mark.rule("PUSH-4")
async def test_why_there_is_no_connection_is_told_by_number_and_without_secrets(url: str) -> None:
    wrong_password, wrong_database = url.replace("s3cret", "guess"), url.replace("/jobs", "/nothing")
    for wrong, code in ((wrong_password, 1045), (wrong_database, 1049)):
        with pytest.raises(Exception, match=f"never sent.*{code}") as caught:
            await connect(wrong).open()
        assert type(caught.value).__name__ == "ConnectionFailed"
        assert "guess" not in str(caught.value)


# -- the tables -----------------------------------------------------------------------------------------


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


async def test_a_migration_that_was_interrupted_is_finished_by_the_next(url: str, mine: Connection) -> None:
    names = backend_on(url)._address.names
    await ask(mine, names.fill(schema.VERSIONS))
    await ask(mine, names.fill(schema.STEPS[0][0]))

    async with connect(url) as queue:
        await queue.migrate()
        await queue.push(Note("x"))
        assert (await queue.stats()).failed == 0


async def test_a_migration_under_way_elsewhere_is_waited_for_and_then_named(
    url: str, mine: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_PATIENCE", 1)
    await ask(mine, f"SELECT GET_LOCK('{backend_on(url)._address.names.lock}', 0)")
    async with connect(url) as queue:
        with pytest.raises(StoreRefused, match="another migration"):
            await queue.migrate()


async def test_tables_of_a_newer_aqueue_are_refused(url: str, queue: Queue, mine: Connection) -> None:
    await ask(mine, f"INSERT INTO {table(url, 'schema')} (version) VALUES (99)")
    await mine.commit()

    with pytest.raises(StoreRefused, match=r"version 99.*upgrade aqueue-jobs"):
        await connect(url).open()
    with pytest.raises(StoreRefused, match="version 99"):
        await queue.migrate()


async def test_the_printed_steps_do_what_migrate_does(url: str, mine: Connection) -> None:
    for statement in migration_sql(url).split(";\n"):
        if statement:
            await ask(mine, statement)
    await mine.commit()

    async with connect(url) as queue:
        await queue.push(Note("x"))
        await queue.migrate()  # finds nothing to do
        assert await queue.size() == 1
    assert "step 1" not in migration_sql(url, after=1)
    with pytest.raises(InvalidQueueArgument):
        migration_sql(url, after=len(schema.STEPS) + 1)


async def test_migrating_what_is_current_needs_no_right_to_create(
    url: str, queue: Queue, mine: Connection
) -> None:
    name = f"w_{table(url)}"
    await ask(mine, f"CREATE USER {name}@'%' IDENTIFIED BY 'limited'")
    for part in ("jobs", "failed", "schema"):
        await ask(mine, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table(url, part)} TO {name}@'%'")

    async with connect(re.sub(r"//[^@]*@", f"//{name}:limited@", url)) as limited:
        await limited.migrate()
        await limited.push(Note("x"))
        delivery = await limited.pop(timeout=5)
        assert delivery is not None
        await limited.fail(delivery)


def test_a_released_step_never_changes() -> None:
    assert len(schema.STEPS) == 2
    assert "state TINYINT NOT NULL" in schema.STEPS[0][0]
    assert "until BIGINT NULL" in schema.STEPS[1][0]


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("8.0.36", True), ("8.4.0-log", True), ("9.7.4", True), ("5.7.44", False),
        ("10.11.19-MariaDB-0+deb12u1", True), ("11.8.9-MariaDB", True), ("10.6.0-MariaDB", True),
        ("10.5.27-MariaDB", False), ("8.0-aurora", True), ("strange", True),
    ],
)  # fmt: skip
def test_a_server_that_can_t_skip_locked_rows_is_told_by_its_version(version: str, supported: bool) -> None:
    assert migration.is_supported(version) is supported


# -- plans ----------------------------------------------------------------------------------------------


async def plan(backend: MySQLBackend, statement: str) -> list[tuple[Any, ...]]:
    async def explained(session: Session) -> list[tuple[Any, ...]]:
        [result] = await session.run(f"EXPLAIN {statement}")
        return list(result.rows)

    return await backend._run(explained)


async def fill(connection: Connection, url: str, count: int) -> None:
    for statement in (
        f"TRUNCATE {table(url)}",
        f"""INSERT INTO {table(url)} (queue, id, state, at, place, ready_at, payload)
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
        SELECT 'default', MD5(a.n * 1000 + b.n), s.n, a.n * 1000 + b.n + s.n * 4e15, 1, 1, 'x'
        FROM n AS a JOIN n AS b JOIN (SELECT 0 AS n UNION ALL SELECT 1) AS s ON a.n <= {count // 1000}
        WHERE MOD(b.n, 2) = s.n""",
    ):
        await ask(connection, statement)
    await connection.commit()


@pytest.mark.rule("POP-8")
async def test_every_statement_on_jobs_finds_them_by_an_index(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    await fill(mine, url, 20_000)
    sql, default = backend._sql, literals.name("default")
    claim = sql.claim.format(queue=default, place=0, most=10)
    ours = these([Receipt(number, 7) for number in range(1, 40)])
    plans = {
        "next": [
            sql.look.format(queue=default),
            claim,
            sql.due.format(queue=default, now=10, most=100),
            sql.expired.format(queue=default, now=10, most=100),
            sql.stats.format(queue=default),
            sql.clear.format(queue=default),
        ],
        "PRIMARY": [
            sql.held.format(**ours),
            sql.ack.format(**ours),
            sql.extend.format(lease=1, **ours),
            sql.give_back.format(**ours),
            sql.requeue.format(**ours),
            sql.defer.format(counted=1, delays=ours["seqs"], **ours),
            sql.reserve.format(token=1, lease=1, seqs=ours["seqs"]),
            sql.promote.format(**ours),
            sql.unlocked.format(**ours),
        ],
        "held": [browsing_statements(backend._address.names).page_of("default", None, 10, None)],
    }

    for index, statements in plans.items():
        for statement in statements:
            for _, _, place, kind, _, key, *_, extra in await plan(backend, statement):
                if place in (table(url), "j"):
                    assert (kind, key) in {("ref", index), ("range", index)}, statement
                assert "filesort" not in (extra or ""), statement
                assert "temporary" not in (extra or ""), statement


@pytest.mark.rule("POP-8")
async def test_a_pop_touches_as_many_rows_however_many_wait(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    touched = []
    for backlog in (2_000, 60_000):
        await fill(mine, url, backlog)
        before = await _rows_read(backend)
        assert len(await backend.pop(["high", "default"], 10)) == 10
        touched.append(await _rows_read(backend) - before)

    assert touched[1] <= touched[0] + 5 < 50


async def _rows_read(backend: MySQLBackend) -> int:
    async def counted(session: Session) -> int:
        [result] = await session.run("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for name, value in result.rows if "rnd" not in name)

    assert backend._connections is not None
    assert len(backend._connections._free) == 1  # so that the pop is on the same session
    return await backend._run(counted)


@pytest.mark.rule("FAIL-2")
async def test_every_page_of_failed_jobs_reads_its_own_index(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    await ask(
        mine,
        f"""INSERT INTO {table(url, "failed")}
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
        SELECT MD5(a.n * 1000 + b.n), CONCAT('job', MOD(b.n, 7)), CONCAT('queue', MOD(b.n, 5)), '', 1, 0,
            'error', '', '', '', NULL, a.n * 1000 + b.n, '', ''
        FROM n AS a JOIN n AS b ON a.n <= 10""",
    )
    await mine.commit()

    for by_queue, by_job in ((False, False), (True, False), (False, True), (True, True)):
        wanted = Filter("queue1" if by_queue else None, "job1" if by_job else None)
        index = backend._failed_sql.index(by_queue, by_job)
        statement = backend._failed_sql.page.format(
            index=index, wanted=wanted.condition(), failed_at=5000, id="x'00'", limit=20
        )
        [(*_, key, _, _, _, extra)] = await plan(backend, statement)
        assert key == index
        assert "filesort" not in extra


# -- low-water marks ------------------------------------------------------------------------------------


def test_sweeps_look_everywhere_while_it_is_cheap() -> None:
    marks = Marks()
    marks.swept({"q": 7}, 0.001, 0.0, is_whole=True)

    assert marks.starts(["q"], 0.0) is None


def test_slow_sweeps_look_everywhere_for_a_tenth_of_the_time() -> None:
    marks = Marks()
    for now in (0.0, 1.0):
        marks.swept({"q": 7}, 0.05, now, is_whole=True)

    assert marks.starts(["q", "other"], 1.4) == {"q": 7, "other": 0}
    marks.swept({"q": 9}, 0.001, 1.4, is_whole=False)
    assert marks.starts(["q"], 1.4) == {"q": 9}
    assert marks.starts(["q"], 1.6) is None


def test_one_slow_sweep_by_chance_changes_nothing() -> None:
    marks = Marks()
    marks.swept({}, 0.001, 0.0, is_whole=True)
    marks.swept({}, 0.500, 1.0, is_whole=True)

    assert marks.starts(["q"], 1.0) is None


def test_a_job_that_went_back_to_its_place_is_looked_for_there() -> None:
    marks = Marks()
    for now in (0.0, 1.0):
        marks.swept({"q": 7}, 0.05, now, is_whole=True)

    marks.returned("q")

    assert marks.starts(["q"], 1.1) == {"q": 0}


@pytest.mark.rule("POP-2", "POP-8")
async def test_what_stands_behind_the_mark_is_found_when_its_turn_comes(
    url: str, backend: MySQLBackend
) -> None:
    other = backend_on(url)
    await other.open()
    for number in range(1, 7):
        await backend.push(messages(1, first=number))
    await backend.push(messages(1, first=7, delay=0.2))
    held = await other.pop(["default"], 2)
    for _ in range(2):
        backend._marks.swept({}, 0.2, asyncio.get_running_loop().time(), is_whole=True)
    assert await numbers(backend, 2) == [3, 4]

    await other.release([Releasing(item, counted=False) for item in held])

    assert await numbers(backend, 1) == [5]
    found: list[int] = []

    async def all_found() -> bool:
        found.extend(await numbers(backend, 1))
        return len(found) == 4

    await eventually(all_found)
    assert sorted(found) == [1, 2, 6, 7]
    await other.aclose()


# -- traps ----------------------------------------------------------------------------------------------


async def test_a_session_is_set_up_whatever_the_server_s_defaults_are(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    """The variable of the isolation level has two names, one of which MariaDB 10.11 doesn't know."""
    isolation = (
        await ask(mine, "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')")
    )[0]

    found = await settings(
        backend, "@@autocommit", f"@@{isolation[0]}", "@@collation_connection", "@@wait_timeout", "@@sql_mode"
    )

    assert found[:4] == [1, "READ-COMMITTED", "utf8mb4_bin", 30]
    assert "NO_BACKSLASH_ESCAPES" not in found[4]


@pytest.mark.rule("PUSH-3")
async def test_a_push_is_committed_though_the_driver_would_not(
    url: str, queue: Queue, mine: Connection
) -> None:
    await queue.push(Note("x"))

    assert not mine.get_autocommit(), "the driver's default has changed"
    assert await ask(mine, f"SELECT COUNT(*) FROM {table(url)}") == [(1,)]


async def test_names_and_ids_compare_byte_by_byte_and_without_padding(backend: MySQLBackend) -> None:
    await backend.push(messages(1, queue="Mail"))
    await backend.push(messages(1, queue="mail", first=2))
    await backend.push([Message(id, "ids", b"") for id in ("a", "a ", "A", "ä", "a\0")])

    assert await numbers(backend, 5, "mail") == [2]
    assert await numbers(backend, 5, "Mail") == [1]
    assert [item.id for item in await backend.pop(["ids"], 9)] == ["a", "a ", "A", "ä", "a\0"]
    assert await backend.pop(["mail "], 5) == []


@pytest.mark.rule("LEASE-3", "FENCE-1")
async def test_a_renewal_that_changes_nothing_is_no_stale_one(backend: MySQLBackend) -> None:
    """An UPDATE counts the rows it changed, not those it found."""
    await backend.push(messages(2))
    taken = list(await backend.pop(["default"], 2))

    async def stop_the_clock(session: Session) -> None:
        await session.run("SET timestamp = 2000000000.5")

    await backend._run(stop_the_clock)
    assert (await settings(backend, "UTC_TIMESTAMP(6)")) == (await settings(backend, "UTC_TIMESTAMP(6)"))

    for _ in range(2):
        assert await backend.extend(taken) == [Verdict.SETTLED] * 2


@pytest.mark.rule("FENCE-2")
async def test_a_delivery_settled_twice_in_one_batch_is_settled_once(backend: MySQLBackend) -> None:
    await backend.push(messages(3))
    one, two, three = await backend.pop(["default"], 3)
    foreign = Reserved("f" * 32, "default", b"", "another store's receipt", 1)

    assert await backend.ack([one, foreign, one]) == [Verdict.SETTLED, Verdict.STALE, Verdict.STALE]
    released = [Releasing(two), Releasing(two, delay=5), Releasing(one)]
    assert await backend.release(released) == [Verdict.SETTLED, Verdict.STALE, Verdict.STALE]
    assert await backend.fail([failing(three), failing(three)]) == [Verdict.SETTLED, Verdict.STALE]
    assert await backend.ack([foreign]) == await backend.fail([failing(foreign)]) == [Verdict.STALE]


@pytest.mark.rule("FAIL-3")
async def test_no_text_is_too_strange_for_a_failure(backend: MySQLBackend) -> None:
    texts = [
        "\0 NUL",
        "'; DROP TABLE jobs; -- \\' \\",
        "\ud800 alone",
        "😀 ä",
        "%s {} %(a)s",
        "x" * 65536,
        "",
    ]
    await backend.push(messages(len(texts)))
    taken = list(await backend.pop(["default"], len(texts)))
    batch = [
        failing(item, error=text, reason=text, traceback=text, worker=text, name=(text or "-") * 3)
        for item, text in zip(taken, texts, strict=True)
    ]

    assert await backend.fail(batch) == [Verdict.SETTLED] * len(texts)

    kept = await backend.failed_page(queue="default", job=None, after=None, limit=99)
    assert [record.error for record in kept] == [text.replace("\ud800", "?") for text in texts]
    assert [len(record.name) for record in kept] == [min(512, len(item.record.name)) for item in batch]
    assert len(await backend.failed_page(queue=None, job="x" * 3 * 65536, after=None, limit=9)) == 1


async def test_every_byte_of_a_payload_comes_back(backend: MySQLBackend) -> None:
    payloads = [bytes(range(256)) * 9, b"", b"'\\\"%s\0", "😀".encode()]
    await backend.push(
        [Message(f"{number:032x}", "default", payload) for number, payload in enumerate(payloads)]
    )

    assert [item.payload for item in await backend.pop(["default"], 9)] == payloads


async def test_a_statement_too_long_for_the_server_is_refused_before_it_is_sent(
    backend: MySQLBackend,
) -> None:
    [longest] = await settings(backend, "@@max_allowed_packet")
    before = await settings(backend, "CONNECTION_ID()")
    with pytest.raises(Exception, match="max_allowed_packet"):
        await backend.push([Message("f" * 32, "default", b"x" * (longest // 2))])

    assert await backend.push(messages(1)) == [None]
    assert before


def test_every_number_is_told_for_what_it_proves() -> None:
    refused = [1044, 1062, 1205, 1213, 1290, 1366, 1406, 1114, 1792, 1146, 3819, 4025]
    unknown = [0, 2003, 2006, 2013, 2014, 1053, 1180, 1927, 4031]

    assert all(map(is_refusal, refused))
    assert not any(map(is_refusal, unknown))


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


@pytest.mark.rule("DELAY-1")
async def test_a_time_zone_of_the_server_changes_no_time(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    await ask(mine, "SET time_zone = '+05:30'")
    await backend.push_within(mine, messages(1, delay=3600))
    await mine.commit()

    [(left,)] = await ask(mine, f"SELECT at - {literals.NOW} FROM {table(url)}")

    assert 3500e6 < left <= 3600e6


async def test_the_longest_delay_there_is_is_stored(backend: MySQLBackend) -> None:
    await backend.push(messages(1, delay=1e300))

    assert (await backend.stats("default")).delayed == 1


# -- order ----------------------------------------------------------------------------------------------


async def test_what_becomes_ready_together_keeps_its_order(backend: MySQLBackend) -> None:
    await backend.push(messages(30))
    taken = list(await backend.pop(["default"], 30))
    mixed = taken[::3] + taken[1::3] + taken[2::3]

    await backend.release([Releasing(item) for item in mixed])
    assert await numbers(backend, 30) == [int(item.id, 16) for item in mixed]


async def test_jobs_due_together_come_in_the_order_in_which_they_fell_due(backend: MySQLBackend) -> None:
    await backend.push(
        [*messages(1, delay=0.3), *messages(1, first=2, delay=0.1), *messages(1, first=3, delay=0.2)]
    )
    await asyncio.sleep(0.4)

    assert await numbers(backend, 3) == [2, 3, 1]


@pytest.mark.rule("POP-5", "DELAY-1")
async def test_a_sweep_that_claims_twice_takes_nothing_twice(backend: MySQLBackend) -> None:
    """After a full sweep the next claims before it looks, and again if something has fallen due."""
    await backend.push(messages(4))
    await backend.push(messages(2, first=5, delay=0.1))
    assert await numbers(backend, 2) == [1, 2]
    await asyncio.sleep(0.15)

    taken = list(await backend.pop(["default"], 9))

    assert [int(item.id, 16) for item in taken] == [3, 4, 5, 6]
    assert await backend.ack(taken) == [Verdict.SETTLED] * 4


# -- pushing inside the application's transaction --------------------------------------------------------


@pytest.mark.rule("PUSH-8")
@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_job_comes_and_goes_with_an_asyncmy_transaction(queue: Queue, autocommit: bool) -> None:
    mine = await connected(mysql.url(), autocommit=autocommit)
    for commits in (False, True):
        if autocommit:
            await mine.begin()
        await queue.push_many([Note("a"), Note("b")], connection=mine)
        assert await queue.size() == 0

        await (mine.commit() if commits else mine.rollback())

        assert await queue.size() == (2 if commits else 0)
    await mine.ensure_closed()


@pytest.mark.rule("PUSH-8")
async def test_a_transaction_begun_in_words_will_do(queue: Queue) -> None:
    mine = await connected(mysql.url(), autocommit=True)
    await ask(mine, "START TRANSACTION")
    await queue.push(Note("a"), connection=mine)
    await ask(mine, "ROLLBACK")

    assert await queue.size() == 0
    with pytest.raises(InvalidQueueArgument, match="not in a transaction"):
        await queue.push(Note("a"), connection=mine)
    await mine.ensure_closed()


@pytest.mark.rule("PUSH-8")
async def test_the_caller_s_settings_change_nothing_of_what_is_stored(queue: Queue) -> None:
    mine = await connected(mysql.url(), autocommit=True, charset="latin1")
    await ask(mine, "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES', time_zone = '-08:00'")
    await mine.begin()
    await queue.push(Note("it's a \\ \" 😀"), connection=mine)
    await mine.commit()

    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    assert delivery.job(Note).text == "it's a \\ \" 😀"
    await mine.ensure_closed()


@pytest.mark.rule("PUSH-8")
async def test_a_job_shares_a_sqlalchemy_sessions_fate(queue: Queue) -> None:
    engine = create_async_engine(mysql.url().replace("mysql://", "mysql+asyncmy://", 1))
    async with AsyncSession(engine) as session:
        await queue.push(Note("x 100%"), connection=session)
        await session.rollback()
        assert await queue.size() == 0
        await queue.push_many([Note("y %s"), Note("z")], connection=session)
        assert await queue.size() == 0
        await session.commit()
    async with engine.begin() as connection:
        await queue.push(Note("x"), connection=connection)
    async with engine.connect() as connection:
        await queue.push(Note("x"), connection=connection)  # and nobody commits it
    await engine.dispose()

    assert await queue.size() == 3


@pytest.mark.rule("PUSH-8")
async def test_a_connection_that_commits_by_itself_is_refused(queue: Queue) -> None:
    mine = await connected(mysql.url(), autocommit=True)
    engine = create_async_engine(
        mysql.url().replace("mysql://", "mysql+asyncmy://", 1), isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as connection:
        for unfit in (mine, connection):
            with pytest.raises(InvalidQueueArgument, match="transaction"):
                await queue.push(Note("x"), connection=unfit)
    with pytest.raises(InvalidQueueArgument, match="asyncmy"):
        await queue.push(Note("x"), connection=object())
    await engine.dispose()
    await mine.ensure_closed()

    assert await queue.size() == 0


@pytest.mark.rule("PUSH-8", "PUSH-10")
async def test_a_caller_s_connection_may_have_another_database_for_its_own(
    queue: Queue, url: str, mine: Connection
) -> None:
    other = table(url, "other")
    await ask(mine, f"CREATE DATABASE {other}")
    await mine.select_db(other)
    for _ in range(2):
        await queue.push(Note("x"), id="f" * 32, connection=mine)
    await mine.commit()

    assert await queue.size() == 1


@pytest.mark.rule("PUSH-8")
async def test_what_the_server_says_of_a_caller_s_push_reaches_the_caller(url: str, mine: Connection) -> None:
    async with connect(url) as queue:
        with pytest.raises(StoreRefused, match="aqueue migrate"):
            await queue.push(Note("x"), connection=mine)


# -- waiting --------------------------------------------------------------------------------------------


@pytest.mark.rule("POP-7")
async def test_an_idle_pop_sends_one_statement_a_second(queue: Queue) -> None:
    await queue.pop(timeout=0.1)
    statements = _counted(queue)

    assert await queue.pop(timeout=2.5) is None

    assert statements() <= 4


def _counted(queue: Queue) -> Callable[[], int]:
    backend: Any = queue._store.backend
    connections, count = backend._connections, 0
    run = connections.run

    async def counting(call: Any) -> Any:
        nonlocal count
        count += 1
        return await run(call)

    connections.run = counting
    return lambda: count


@pytest.mark.rule("POP-3")
async def test_a_push_of_the_same_process_wakes_a_waiting_pop_at_once(queue: Queue) -> None:
    delays = []
    for _ in range(9):
        popping = asyncio.create_task(queue.pop(timeout=10))
        await asyncio.sleep(0.05)  # it must be waiting, and there is nothing to see that by
        pushed = time.monotonic()
        await queue.push(Note("x"))
        delivery = await popping
        delays.append(time.monotonic() - pushed)
        assert delivery is not None
        await queue.ack(delivery)

    assert sorted(delays)[4] < 0.5, "the median came by polling"


@pytest.mark.rule("POP-3", "DELAY-1")
async def test_a_job_about_to_be_due_is_waited_for(queue: Queue, url: str) -> None:
    async with connect(url) as elsewhere:
        await elsewhere.push(Note("x"), delay=0.4)
    started = time.monotonic()

    assert await queue.pop(timeout=10) is not None

    assert time.monotonic() - started < 0.9, "it came by polling"


# -- locks ----------------------------------------------------------------------------------------------


@pytest.mark.rule("FENCE-1", "LEASE-3")
async def test_settlements_of_the_same_jobs_in_any_order_never_deadlock(backend: MySQLBackend) -> None:
    await backend.push(messages(200))
    taken: list[Reserved] = list(await backend.pop(["default"], 200))

    for _ in range(10):
        answers = await asyncio.gather(
            backend.extend(taken), backend.extend(taken[::-1]), backend.extend(taken[100:] + taken[:100])
        )
        assert all(answer is Verdict.SETTLED for batch in answers for answer in batch)


@pytest.mark.rule("POP-5")
async def test_a_pop_waits_for_no_row_that_another_has_locked(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    await backend.push(messages(3))
    await ask(
        mine,
        f"SELECT seq FROM {table(url)} WHERE queue = 'default' AND id = '{messages(1)[0].id}' FOR UPDATE",
    )

    assert await numbers(backend, 3) == [2, 3]
    await mine.rollback()
    assert await numbers(backend, 3) == [1]


async def test_a_lock_held_for_a_while_is_outwaited_and_a_deadlock_repeated(
    url: str, backend: MySQLBackend, mine: Connection
) -> None:
    """Case O-35: neither wrote anything, so nobody needs to hear of them."""
    await backend.push(messages(2))
    first, second = await backend.pop(["default"], 2)
    await _give_up_waiting_soon(backend)
    await ask(mine, f"SELECT seq FROM {table(url)} WHERE queue = 'default' AND id = '{second.id}' FOR UPDATE")
    acking = asyncio.create_task(backend.ack([first, second]))
    await asyncio.sleep(1.5)  # longer than the session waits for a lock

    # Now it holds the first row and wants the second, and this wants them the other way round.
    first_row = f"SELECT seq FROM {table(url)} WHERE queue = 'default' AND id = '{first.id}' FOR UPDATE"
    await asyncio.gather(ask(mine, first_row), return_exceptions=True)
    await mine.rollback()

    assert await acking == [Verdict.SETTLED] * 2


async def _give_up_waiting_soon(backend: MySQLBackend) -> None:
    async def shorten(session: Session) -> None:
        await session.run("SET SESSION innodb_lock_wait_timeout = 1")

    await backend._run(shorten)


async def test_a_lock_held_for_too_long_is_a_refusal_in_time(
    url: str, backend: MySQLBackend, mine: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aqueue.backends.mysql.connections._INSIST_FOR", 0.5)
    await backend.push(messages(1))
    [item] = await backend.pop(["default"], 1)
    await _give_up_waiting_soon(backend)
    await ask(mine, f"SELECT seq FROM {table(url)} WHERE queue = 'default' AND id = '{item.id}' FOR UPDATE")

    with pytest.raises(Exception, match="1205"):
        await backend.ack([item])

    await mine.rollback()
    assert await backend.ack([item]) == [Verdict.SETTLED]
