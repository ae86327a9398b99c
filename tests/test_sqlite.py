"""What is SQLite's own: its URL, its journal, its tables, its plans and its order."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aqueue import ConnectionFailed, InvalidQueueArgument, StoreRefused, connect, job
from aqueue.backends import _sqlite_file, _sqlite_jobs, sqlite
from aqueue.backends import _sqlite_schema as schema
from aqueue.backends._sqlite_file import DatabaseFile, is_wal_safe, journal_mode
from aqueue.port import FailedRecord, Message, Position, Releasing, StoreOptions
from aqueue.urls import parse_url

OLD_SQLITE = not is_wal_safe(sqlite3.sqlite_version_info)


@job(name="sqlite.note")
class Note:
    text: str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def backend_on(path: Path) -> sqlite.SQLiteBackend:
    return sqlite.from_url(parse_url(f"sqlite:///{path}"), StoreOptions(lease=60.0, clock=time.time))


def message(id: str, *, queue: str = "default", delay: float = 0.0) -> Message:
    return Message(id, queue, b"x" * 200, delay)


# -- the URL --------------------------------------------------------------------------------------------


async def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async with connect("sqlite:///here.db"), connect(f"sqlite:///{tmp_path}/there.db"):
        pass

    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "there.db").exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/jobs.db"])
def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidQueueArgument, match="sqlite:///"):
        connect(url)


@pytest.mark.parametrize("option", ["journal=off", "synchronous=off", "table=jobs"])
def test_an_unknown_option_or_value_is_refused_with_the_known_ones(option: str) -> None:
    with pytest.raises(InvalidQueueArgument, match=r"rollback|extra|journal, synchronous"):
        connect(f"sqlite:///jobs.db?{option}")


async def test_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidQueueArgument, match="no directory"):
        await connect(f"sqlite:///{tmp_path}/absent/jobs.db").open()


async def test_a_file_that_is_no_database_is_refused_untouched(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)

    with pytest.raises(ConnectionFailed):
        await connect(f"sqlite:///{path}").open()

    assert path.read_bytes() == b"not a database" * 100


# -- durability and the journal -------------------------------------------------------------------------


@pytest.mark.rule("PUSH-3")
@pytest.mark.parametrize(("asked", "level"), [(None, 2), ("normal", 1), ("full", 2), ("extra", 3)])
def test_every_commit_is_synced_unless_the_url_says_otherwise(
    path: Path, asked: str | None, level: int
) -> None:
    option = f"?synchronous={asked}" if asked else ""
    database = _sqlite_file.from_url(parse_url(f"sqlite:///{path}{option}"))

    with closing(database.connect()) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)


@pytest.mark.parametrize(
    ("asked", "found", "version", "mode"),
    [
        (None, "delete", (3, 40, 1), "persist"),
        (None, "delete", (3, 51, 2), "persist"),
        (None, "delete", (3, 51, 3), "wal"),
        (None, "delete", (3, 52, 0), "persist"),
        (None, "delete", (3, 53, 0), "wal"),
        (None, "wal", (3, 40, 1), "wal"),
        ("wal", "delete", (3, 40, 1), "wal"),
        ("rollback", "wal", (3, 40, 1), "persist"),
        ("rollback", "delete", (3, 53, 0), "persist"),
    ],
)
def test_wal_is_the_default_only_where_several_writers_cannot_damage_it(
    asked: str | None, found: str, version: tuple[int, ...], mode: str
) -> None:
    assert journal_mode(asked, found, version) == mode


def test_the_file_gets_the_journal_that_was_decided(path: Path) -> None:
    with closing(DatabaseFile(path=path, journal="wal").connect()) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(DatabaseFile(path=path, journal="rollback").connect()) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("persist",)


@pytest.mark.skipif(not OLD_SQLITE, reason="this SQLite's WAL is sound, so there is nothing to warn of")
async def test_wal_on_an_old_sqlite_warns_whoever_chose_it(path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"3\.51\.3"):
        await asked_for_wal(path)
    with pytest.warns(RuntimeWarning, match=r"3\.51\.3"):
        async with connect(f"sqlite:///{path}"):
            pass


async def asked_for_wal(path: Path) -> None:
    async with connect(f"sqlite:///{path}?journal=wal") as queue:
        await queue.push(Note("a"))
        assert await queue.size() == 1


# -- the tables -----------------------------------------------------------------------------------------


async def test_many_open_a_new_file_at_once(path: Path) -> None:
    backends = [backend_on(path) for _ in range(8)]

    await asyncio.gather(*[backend.open() for backend in backends])
    await asyncio.gather(*[backend.migrate() for backend in backends])
    await asyncio.gather(*[backend.aclose() for backend in backends])

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM aqueue_schema").fetchall() == [(1,), (2,)]


async def test_tables_of_a_newer_aqueue_are_left_alone(path: Path) -> None:
    async with connect(f"sqlite:///{path}"):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO aqueue_schema VALUES (99, 0)")

    with pytest.raises(StoreRefused, match="upgrade aqueue-jobs"):
        await connect(f"sqlite:///{path}").open()


async def test_the_applications_own_tables_and_version_stay_as_they_are(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE jobs (mine TEXT)")
        connection.execute("PRAGMA user_version = 7")

    async with connect(f"sqlite:///{path}") as queue:
        await queue.push(Note("a"))

    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql NOT NULL")]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
        assert [name for name in names if not name.startswith("aqueue_")] == ["jobs"]


async def test_one_id_that_fails_on_two_queues_at_once_is_listed_twice(path: Path) -> None:
    backend = sqlite.SQLiteBackend(DatabaseFile(path=path), lease=60.0, clock=lambda: 1000.0)
    await backend.open()
    record = FailedRecord(
        id="a", name="n", queue="one", payload=b"{}", attempts=1, lost=0, reason="error", delivery="d"
    )

    await backend.keep([record, replace_queue(record, "two")])
    first = await backend.failed_page(queue=None, job=None, after=None, limit=1)
    position = Position(first[0].failed_at, first[0].id)
    second = await backend.failed_page(queue=None, job=None, after=position, limit=1)
    await backend.aclose()

    assert [found.queue for found in (*first, *second)] == ["one", "two"]


def replace_queue(record: FailedRecord, queue: str) -> FailedRecord:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return FailedRecord(**{**fields, "queue": queue})


# -- the plans ------------------------------------------------------------------------------------------

STATEMENTS = (
    {
        name: text
        for name, value in vars(schema).items()
        for text in ([value] if isinstance(value, str) else value if name == "CLEAR" else [])
        if name.isupper() and not name.startswith("_") and name != "VERSIONS"
    }
    | {
        f"{of.__name__} {queue} {job}": of(queue=queue, job=job)
        for of in (schema.failed_page, schema.failed_count)
        for queue in (False, True)
        for job in (False, True)
    }
    | {
        f"{of.__name__} {queue}": of(queue=queue)
        for of in (schema.failed_past, schema.failed_seen, schema.failed_purge)
        for queue in (False, True)
    }
)

# What may be: counting what is counted, taking the first few in order, sorting one job's few records.
ALLOWED = {
    "FAILED_GET": ["USE TEMP B-TREE FOR ORDER BY"],
    "failed_purge False": ["SCAN aqueue_failed USING COVERING INDEX aqueue_failed_all"],
    "failed_seen False": ["SCAN aqueue_failed USING COVERING INDEX aqueue_failed_all"],
    "failed_count False False": ["SCAN aqueue_failed USING COVERING INDEX aqueue_failed_all"],
}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A database with many jobs and statistics about them, which may mislead the planner."""
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    with closing(DatabaseFile(path=path).connect()) as connection:
        connection.execute("BEGIN IMMEDIATE")
        schema.migrate(connection, 0.0)
        connection.executemany(schema.PUSH, [("default", f"{i}", b"x", i % 3 % 2, 0.0) for i in range(3000)])
        connection.execute("COMMIT")
        connection.execute("ANALYZE")
        yield connection


@pytest.mark.rule("POP-8", "FAIL-2")
@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_no_statement_reads_a_whole_table_or_sorts(crowded: sqlite3.Connection, name: str) -> None:
    plan = plan_of(crowded, STATEMENTS[name])

    unbounded = [step for step in plan if re.match(r"SCAN aqueue|USE TEMP B-TREE", step)]
    assert unbounded == ALLOWED.get(name, []), plan


@pytest.mark.rule("SIZE-1")
def test_counting_reads_indexes_only(crowded: sqlite3.Connection) -> None:
    reads = [step for step in plan_of(crowded, schema.STATS) if step.startswith("SEARCH")]

    assert [step for step in reads if "COVERING" not in step] == [
        "SEARCH aqueue_jobs USING INDEX aqueue_ready (queue=? AND state=?)"  # the first ready job's row
    ]


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    names = set(re.findall(r":(\w+)", statement))
    values: object = dict.fromkeys(names, 0) if names else [0] * statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)  # type: ignore[arg-type]  # either kind
    return [str(row[3]) for row in rows]


@pytest.mark.rule("POP-8")
@pytest.mark.parametrize("state", ["waiting", "delayed", "leased"])
async def test_a_pop_takes_as_many_steps_whatever_stands_in_the_queue(tmp_path: Path, state: str) -> None:
    few = await steps_of_a_pop(tmp_path / "few.db", state, 300)
    many = await steps_of_a_pop(tmp_path / "many.db", state, 30_000)

    assert many <= few * 1.1


async def steps_of_a_pop(path: Path, state: str, jobs: int) -> int:
    backend = backend_on(path)
    await backend.open()
    batch = [message(f"{i}", delay=9.0 if state == "delayed" else 0.0) for i in range(jobs)]
    await backend.push(batch)
    if state == "leased":
        await backend.pop(["default"], jobs)
    await backend.push([message(f"ready {i}") for i in range(100)])
    await backend.aclose()
    return count_steps(path)


def count_steps(path: Path) -> int:
    """Count SQLite's own virtual instructions, which no busy machine can change."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(DatabaseFile(path=path).connect()) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.set_progress_handler(step, 10)
        assert len(_sqlite_jobs.pop(connection, ["default"], 50, now=time.time(), lease=60.0)) == 50
        connection.set_progress_handler(None, 0)
        connection.execute("ROLLBACK")
    return steps


# -- the order of jobs ----------------------------------------------------------------------------------


async def test_what_is_given_back_keeps_its_place_and_what_is_released_goes_last(path: Path) -> None:
    backend = backend_on(path)
    await backend.open()
    await backend.push([message(id) for id in "abcd"])
    a, b, c = await backend.pop(["default"], 3)

    await backend.release(
        [
            Releasing(c, counted=False),
            Releasing(a, counted=True),
            Releasing(b, counted=False),
        ]
    )
    order = [reserved.id for reserved in await backend.pop(["default"], 10)]
    await backend.aclose()

    assert order == ["b", "c", "d", "a"]
