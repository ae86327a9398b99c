"""Pushes inside the application's own SQLite transaction (PUSH-8)."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aqueue import InvalidQueueArgument, Queue, StoreRefused, connect, job


@job(name="sqlite.note")
class Note:
    text: str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def queue(path: Path) -> AsyncIterator[Queue]:
    async with connect(f"sqlite:///{path}") as queue:
        yield queue


@pytest.fixture
def mine(path: Path, queue: Queue) -> Iterator[sqlite3.Connection]:
    """The application's own connection to the same file, with a table of its own."""
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        yield connection


@pytest.mark.rule("PUSH-8")
async def test_a_push_is_committed_with_the_callers_transaction(
    queue: Queue, mine: sqlite3.Connection
) -> None:
    with mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        await queue.push(Note("a"), connection=mine)
        assert await queue.size() == 0

    assert await queue.size() == 1


@pytest.mark.rule("PUSH-8")
async def test_a_push_is_rolled_back_with_the_callers_transaction(
    queue: Queue, mine: sqlite3.Connection
) -> None:
    mine.execute("INSERT INTO orders VALUES (1)")
    await queue.push_many([Note("a"), Note("b")], connection=mine)
    mine.rollback()

    assert await queue.size() == 0
    assert mine.execute("SELECT count(*) FROM orders").fetchone() == (0,)


@pytest.mark.rule("PUSH-8", "POP-3")
async def test_a_waiting_pop_sees_the_callers_commit(queue: Queue, mine: sqlite3.Connection) -> None:
    waiting = asyncio.create_task(queue.pop(timeout=30))
    with mine:
        await queue.push(Note("a"), connection=mine)

    delivery = await waiting

    assert delivery is not None
    assert delivery.args == {"text": "a"}


@pytest.mark.rule("PUSH-8")
async def test_a_connection_with_rows_and_texts_of_its_own_kind_is_as_good(
    queue: Queue, mine: sqlite3.Connection
) -> None:
    mine.row_factory = sqlite3.Row
    mine.text_factory = bytes
    with mine:
        await queue.push(Note("a"), connection=mine)

    assert await queue.size() == 1


@pytest.mark.rule("PUSH-8")
async def test_a_connection_that_would_commit_by_itself_must_have_begun(queue: Queue, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(InvalidQueueArgument, match="BEGIN"):
            await queue.push(Note("a"), connection=connection)

        connection.execute("BEGIN IMMEDIATE")
        await queue.push(Note("b"), connection=connection)
        connection.execute("COMMIT")

    assert await queue.size() == 1


@pytest.mark.rule("PUSH-8")
@pytest.mark.parametrize("other", [":memory:", "other.db"])
async def test_a_connection_to_another_database_is_refused(queue: Queue, tmp_path: Path, other: str) -> None:
    name = other if other == ":memory:" else str(tmp_path / other)
    with closing(sqlite3.connect(name)) as connection, pytest.raises(InvalidQueueArgument, match=r"jobs\.db"):
        await queue.push(Note("a"), connection=connection)


@pytest.mark.rule("PUSH-8")
async def test_what_is_no_connection_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidQueueArgument, match=r"sqlite3\.Connection"):
        await queue.push(Note("a"), connection=object())


@pytest.mark.rule("PUSH-8")
async def test_a_push_that_finds_the_database_locked_leaves_the_callers_transaction_alone(
    queue: Queue, mine: sqlite3.Connection, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        mine.execute("BEGIN")
        with pytest.raises(StoreRefused):
            await queue.push(Note("a"), connection=mine)
        other.execute("ROLLBACK")
        assert mine.in_transaction

    with mine:
        await queue.push(Note("a"), connection=mine)
    assert await queue.size() == 1
