"""Notes in tables and keys: tables of an older aqueue are upgraded, and what is over is removed for good."""

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
from backends import STORES, StoreUnderTest
from servers import mysql, postgres
from servers.reach import check_reachable
from servers.redis import fresh_redis_url, redis_missing

from aqueue import Queue, StoreRefused, connect, job
from aqueue.backends import _sqlite_schema
from aqueue.backends.mysql import schema as mysql_schema
from aqueue.backends.mysql.note_statements import these
from aqueue.backends.postgres import notes as postgres_notes
from aqueue.backends.postgres import schema as postgres_schema
from aqueue.notes import Change, Decision, Note
from aqueue.port import Message, NoteKey, Noting
from aqueue.testing import eventually


@job(name="tables.letter")
class Letter:
    text: str


Ask = Callable[[str, str], Awaitable[list[Any]]]
"""Runs a statement on the store at a URL, on a connection of its own, and returns what it answered."""


async def ask_sqlite(url: str, statement: str) -> list[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


async def ask_postgres(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(postgres.url())
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


async def ask_mysql(url: str, statement: str) -> list[Any]:
    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.removeprefix("/"),
        autocommit=True,
    )
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall())
    finally:
        await connection.ensure_closed()


def first_steps_of_sqlite(url: str) -> list[str]:
    taken = "INSERT INTO aqueue_schema VALUES (1, 0.0)"
    return [_sqlite_schema.VERSIONS, *_sqlite_schema.STEPS[0], taken]


def first_steps_of_postgres(url: str) -> list[str]:
    names = postgres_schema.Names(table=prefix_in(url))
    step = [part for part in names.fill(postgres_schema.STEPS[0]).split(";\n") if part.strip()]
    taken = names.fill(postgres_schema.TAKEN.replace("{version}", "1"))
    return [names.fill(postgres_schema.VERSIONS), *step, taken]


def first_steps_of_mysql(url: str) -> list[str]:
    database = urlsplit(url).path.removeprefix("/")
    names = mysql_schema.Names(schema=database, table=prefix_in(url))
    versions, *step, taken = (mysql_schema.VERSIONS, *mysql_schema.STEPS[0], mysql_schema.TAKEN % 1)
    return [names.fill(statement) for statement in (versions, *step, taken)]


def prefix_in(url: str) -> str:
    found = re.search(r"table=(\w+)", url)
    return found[1] if found else "aqueue"


@dataclass(frozen=True)
class Tables:
    """How to look into the tables of one kind of store, and what made those of version 1."""

    ask: Ask
    first_steps: Callable[[str], list[str]]
    migrates_on_open: bool = False


TABLES = {
    "sqlite": Tables(ask_sqlite, first_steps_of_sqlite, migrates_on_open=True),
    "postgres": Tables(ask_postgres, first_steps_of_postgres),
    "mysql": Tables(ask_mysql, first_steps_of_mysql),
}
_STORES = [pytest.param(store, id=store.name) for store in STORES if store.name in TABLES]
each_store = pytest.mark.parametrize("store", _STORES)


@pytest.fixture
def url(store: StoreUnderTest, tmp_path: Path) -> str:
    check_reachable(store.name, store.unreachable())
    return store.fresh_url(tmp_path)


@each_store
@pytest.mark.rule("NOTE-1")
async def test_tables_of_an_older_aqueue_are_upgraded_with_their_jobs(
    store: StoreUnderTest, url: str
) -> None:
    tables = TABLES[store.name]
    for statement in tables.first_steps(url):
        await tables.ask(url, statement)
    insert = (
        "INSERT INTO {}_jobs (queue, id, payload, state, ready_at{}) VALUES ('default', '{}', '{}', 0, 1{})"
    )
    more = (", at, place", ", 1, 1") if store.name == "mysql" else ("", "")
    await tables.ask(url, insert.format(prefix_in(url), more[0], "f" * 32, "{}", more[1]))

    async with connect(url) as queue, connect(url) as other:
        if not tables.migrates_on_open:
            assert await queue.push(Letter("x")), "jobs go on as before"
            with pytest.raises(StoreRefused, match="aqueue migrate"):
                await queue.notes.read("default", "test:note")
        await asyncio.gather(*(each.migrate() for each in (queue, other) * 3))

        assert await other.notes.write("default", "test:note", b"x", expected="")
        assert (await queue.notes.read("default", "test:note")).value == b"x"
        assert await queue.size() == (1 if tables.migrates_on_open else 2)


@each_store
@pytest.mark.rule("NOTE-1")
async def test_notes_that_are_over_leave_the_table(store: StoreUnderTest, url: str) -> None:
    tables = TABLES[store.name]
    async with connect(url) as queue:
        await queue.migrate()
        await write_many(queue, "short", seconds=0.2)
        await write_many(queue, "long", seconds=3600)
        await write_many(queue, "kept", seconds=None)
        for number in range(20):
            token = (await queue.notes.read("default", f"kept:{number}")).token
            assert await queue.notes.write("default", f"kept:{number}", None, expected=token)

        async def only_those_that_last() -> None:
            await queue.notes.change("default", "kept:30", touched)
            [(rows,)] = await tables.ask(url, f"SELECT count(*) FROM {prefix_in(url)}_notes")
            assert rows == 200 - 20, f"{rows} rows"

        await eventually(only_those_that_last, timeout=20)


@pytest.mark.rule("NOTE-1")
async def test_redis_removes_notes_by_itself() -> None:
    check_reachable("redis", redis_missing())
    async with connect(fresh_redis_url()) as queue:
        await write_many(queue, "short", seconds=0.2)
        await write_many(queue, "long", seconds=3600)
        await write_many(queue, "kept", seconds=None)
        backend: Any = queue._store.backend
        stem = backend._keys.note("default", "")

        async def only_those_that_last() -> None:
            found = await backend._client.scan(stem + b"*", lane=0)
            assert len(found) == 200

        await eventually(only_those_that_last, timeout=20)


async def write_many(queue: Queue, kind: str, *, seconds: float | None) -> None:
    written = await asyncio.gather(
        *(
            queue.notes.write("default", f"{kind}:{number}", b"x", expected="", seconds=seconds)
            for number in range(100)
        )
    )
    assert all(written)


def touched(note: Note) -> Decision[None]:
    return Change(value=note.value, result=None)


# -- plans ----------------------------------------------------------------------------------------------


@pytest.mark.rule("POP-8", "NOTE-1")
async def test_postgresql_finds_notes_by_their_keys_however_many_there_are() -> None:
    check_reachable("postgres", postgres.unreachable())
    url = postgres.fresh_url()
    notings = [noting(number, expected="f" * 32 if number % 2 else "") for number in range(10)]
    async with connect(url) as queue:
        await queue.migrate()
        await ask_postgres(
            url,
            f"INSERT INTO {prefix_in(url)}_notes SELECT 'default', 'n:' || n, 'x', repeat('f', 32), n "
            "FROM generate_series(1, 50000) n",
        )
        await ask_postgres(url, f"ANALYZE {prefix_in(url)}_notes")
        backend: Any = queue._store.backend
        sql, channel = backend._notes._sql, backend._channel
        reading = ([item.at.queue for item in notings], [item.at.key for item in notings])
        writing = postgres_notes.arguments(notings)
        plans = [
            await plan(backend, sql.read, *reading),
            *[await plan(backend, write, channel, *writing, 10) for write in sql.writes.values()],
        ]

    for text in plans:
        assert "Seq Scan" not in text, text
        assert re.search(r"noted|notes_end", text), text
        assert max(map(int, re.findall(r"Scan.*rows=(\d+)", text))) <= 20, text


async def plan(backend: Any, statement: str, *arguments: object) -> str:
    """Return the statement's plan as it is run; what it did is undone."""

    async def explain(connection: asyncpg.Connection) -> str:
        undone = connection.transaction()
        await undone.start()
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) {statement}", *arguments)
        await undone.rollback()
        return "\n".join(row[0] for row in rows)

    text: str = await backend._run(explain)
    return text


@pytest.mark.rule("POP-8", "NOTE-1")
async def test_mysql_finds_notes_by_their_keys() -> None:
    check_reachable("mysql", mysql.unreachable())
    url = mysql.fresh_url()
    keys = [NoteKey("default", f"n:{number}") for number in range(10)]
    async with connect(url) as queue:
        await queue.migrate()
        await write_many(queue, "n", seconds=3600)
        backend: Any = queue._store.backend
        sql = backend._note_sql
        statements = {
            sql.read.format(these=these(keys)): "PRIMARY",
            sql.locking(keys)[1]: "PRIMARY",
            sql.writing(noting(1)): "PRIMARY",
            sql.forget.format(these=these(keys)): "PRIMARY",
            sql.over.format(limit=10): "ending",
        }
        for statement, index in statements.items():
            rows = await ask_mysql(url, f"EXPLAIN {statement}")
            assert [(row[3], row[5]) for row in rows] == [("range", index)], (statement, rows)


def noting(number: int, expected: str = "f" * 32) -> Noting:
    return Noting(
        at=NoteKey("default", f"n:{number}"),
        value=b"x",
        token="e" * 32,
        expected=expected,
        seconds=60,
        messages=(Message(f"{number:032x}", "default", b"{}"),),
    )
