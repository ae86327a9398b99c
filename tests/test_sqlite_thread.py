"""The thread that owns SQLite's connection: shared commits, waiting for locks, cancelling, closing."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aqueue import ConnectionFailed, connect, job
from aqueue.backends import _sqlite_session as session
from aqueue.backends._sqlite_file import DatabaseFile
from aqueue.backends._sqlite_thread import DatabaseThread
from aqueue.backends.sqlite import SQLiteBackend
from aqueue.port import Message, NotDispatched, Refused
from aqueue.testing import eventually


@job(name="sqlite.note")
class Note:
    text: str


class Unwatched:
    """Nobody waits for anything to be seen."""

    def pause(self) -> float | None:
        return None

    def look(self) -> None:
        return None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def connects(path: Path) -> Callable[[], sqlite3.Connection]:
    """A way to connect to a file with one small table, in rollback mode."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE items (value INTEGER NOT NULL)")
    return DatabaseFile(path=path, journal="rollback").connect


@pytest.fixture
async def thread(connects: Callable[[], sqlite3.Connection]) -> AsyncIterator[DatabaseThread]:
    thread = DatabaseThread(connects, Unwatched())
    yield thread
    await thread.stop()


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's connection, or the application's."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


def insert(value: int | None) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: connection.execute("INSERT INTO items VALUES (?)", (value,)).rowcount


def items(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM items ORDER BY rowid")]


def commits(path: Path) -> int:
    """SQLite counts the commits of a rollback-mode database in its header."""
    return int.from_bytes(path.read_bytes()[24:28])


def message(id: str) -> Message:
    return Message(id, "default", b"x")


def backend_on(database: DatabaseFile, clock: Callable[[], float] = time.time) -> SQLiteBackend:
    return SQLiteBackend(database, lease=60.0, clock=clock)


# -- one commit for whatever waits ----------------------------------------------------------------------


@pytest.mark.rule("PUSH-6")
async def test_what_waits_for_the_lock_shares_one_commit(
    thread: DatabaseThread, other: sqlite3.Connection, path: Path
) -> None:
    before = commits(path)
    other.execute("BEGIN IMMEDIATE")
    writes = [asyncio.create_task(thread.write(insert(value))) for value in range(20)]
    await thread.read(items)
    other.execute("ROLLBACK")

    assert await asyncio.gather(*writes) == [1] * 20
    assert await thread.read(items) == list(range(20))
    assert commits(path) == before + 1


@pytest.mark.rule("PUSH-6")
async def test_one_that_fails_leaves_the_others_of_its_commit_alone(
    thread: DatabaseThread, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    writes = [asyncio.create_task(thread.write(insert(value))) for value in (1, None, 3)]
    await thread.read(items)
    other.execute("ROLLBACK")

    first, refused, third = await asyncio.gather(*writes, return_exceptions=True)

    assert (first, third) == (1, 1)
    assert isinstance(refused, Refused)
    assert isinstance(refused.__cause__, sqlite3.IntegrityError)
    assert await thread.read(items) == [1, 3]


@pytest.mark.rule("PUSH-3")
async def test_a_commit_that_fails_is_answered_to_everyone_in_it(
    connects: Callable[[], sqlite3.Connection], other: sqlite3.Connection
) -> None:
    def checking() -> sqlite3.Connection:
        connection = connects()
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    other.execute("CREATE TABLE owed (id INTEGER PRIMARY KEY)")
    other.execute("CREATE TABLE debts (item REFERENCES owed (id) DEFERRABLE INITIALLY DEFERRED)")
    thread = DatabaseThread(checking, Unwatched())
    other.execute("BEGIN IMMEDIATE")
    sound = asyncio.create_task(thread.write(insert(1)))
    spoiling = asyncio.create_task(thread.write(lambda c: c.execute("INSERT INTO debts VALUES (9)").rowcount))
    await thread.read(items)
    other.execute("ROLLBACK")

    answers = await asyncio.gather(sound, spoiling, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Refused, Refused]
    assert await thread.read(items) == []
    assert await thread.write(insert(2)) == 1
    await thread.stop()


async def test_a_defect_in_one_function_is_that_callers_alone(thread: DatabaseThread) -> None:
    def defect(_: sqlite3.Connection) -> None:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        await thread.write(defect)
    with pytest.raises(KeyError):
        await thread.read(defect)

    assert await thread.write(insert(1)) == 1


# -- waiting for another connection's lock --------------------------------------------------------------


async def test_a_lock_is_waited_for_while_the_loop_and_the_readers_go_on(
    path: Path, other: sqlite3.Connection
) -> None:
    async with connect(f"sqlite:///{path}?journal=rollback") as queue:
        other.execute("BEGIN IMMEDIATE")
        pushing = asyncio.create_task(queue.push(Note("a")))
        for _ in range(5):
            assert await queue.size() == 0
        assert not pushing.done()
        other.execute("ROLLBACK")

        await pushing

        assert await queue.size() == 1


@pytest.mark.rule("POP-7")
async def test_an_idle_pop_does_not_ask_for_the_write_lock(path: Path, other: sqlite3.Connection) -> None:
    async with connect(f"sqlite:///{path}?journal=rollback") as queue:
        other.execute("BEGIN IMMEDIATE")

        assert await queue.pop(timeout=0.05) is None

        other.execute("ROLLBACK")


async def test_a_commit_waits_for_those_who_still_read(path: Path, other: sqlite3.Connection) -> None:
    async with connect(f"sqlite:///{path}?journal=rollback") as queue:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM aqueue_jobs").fetchone() == (0,)
        pushing = asyncio.create_task(queue.push(Note("a")))
        await asyncio.sleep(0.05)
        assert other.execute("SELECT count(*) FROM aqueue_jobs").fetchone() == (0,)
        assert not pushing.done()
        other.execute("COMMIT")

        await pushing

        assert await queue.size() == 1


@pytest.mark.rule("PUSH-4")
async def test_a_lock_that_never_comes_is_a_push_that_was_never_sent(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(f"sqlite:///{path}") as queue:
        monkeypatch.setattr(session, "PATIENCE", 0.05)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(ConnectionFailed) as caught:
            await queue.push(Note("a"))

        other.execute("ROLLBACK")
        assert caught.value.job_id is not None
        assert await queue.size() == 0


@pytest.mark.rule("PUSH-6", "CALL-1")
async def test_a_call_cancelled_while_it_waits_for_the_lock_is_withdrawn(
    path: Path, other: sqlite3.Connection
) -> None:
    backend = backend_on(DatabaseFile(path=path))
    await backend.open()
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await backend.push([message("a")])
    other.execute("ROLLBACK")

    await backend.push([message("b")])

    assert [reserved.id for reserved in await backend.pop(["default"], 10)] == ["b"]
    await backend.aclose()


@pytest.mark.rule("STOP-1")
async def test_closing_does_not_wait_for_a_lock(path: Path, other: sqlite3.Connection) -> None:
    backend = backend_on(DatabaseFile(path=path))
    await backend.open()
    other.execute("BEGIN IMMEDIATE")
    pushing = asyncio.create_task(backend.push([message("a")]))
    await asyncio.sleep(0)

    async with asyncio.timeout(session.PATIENCE):
        await backend.aclose()
        with pytest.raises(NotDispatched):
            await pushing

    other.execute("ROLLBACK")


# -- cancelling and closing -----------------------------------------------------------------------------


class HeldClock:
    """A clock that stops whoever asks it for the time, on the thread, from one call on until it is let go."""

    def __init__(self) -> None:
        self.is_held = threading.Event()
        self._free = threading.Event()
        self._free.set()
        self._calls_left = 0

    def __call__(self) -> float:
        self._calls_left -= 1
        if self._calls_left == 0:
            self.is_held.set()
            self._free.wait()
        return time.time()

    def hold(self, at_call: int) -> None:
        self._calls_left = at_call
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()


# A pop asks for the time when it looks without the write lock, and again inside its transaction.
@pytest.mark.rule("POP-6", "ATT-1")
@pytest.mark.parametrize("at_call", [1, 2])
async def test_what_a_cancelled_pop_reserved_is_given_back(path: Path, at_call: int) -> None:
    clock = HeldClock()
    backend = backend_on(DatabaseFile(path=path), clock)
    await backend.open()
    await backend.push([message("a"), message("b")])
    await cancelled_pop(backend, clock, at_call)

    async def are_back() -> bool:
        return (await backend.stats("default")).ready == 2

    await eventually(are_back)
    again = await backend.pop(["default"], 10)
    await backend.aclose()
    assert [(reserved.id, reserved.attempt) for reserved in again] == [("a", 1), ("b", 1)]


@pytest.mark.rule("POP-6", "ATT-1")
@pytest.mark.parametrize("at_call", [1, 2])
async def test_closing_right_behind_a_cancelled_pop_still_gives_back(path: Path, at_call: int) -> None:
    clock = HeldClock()
    backend = backend_on(DatabaseFile(path=path), clock)
    await backend.open()
    await backend.push([message("a")])
    await cancelled_pop(backend, clock, at_call)
    await backend.aclose()

    await backend.open()
    again = await backend.pop(["default"], 10)
    await backend.aclose()

    assert [(reserved.id, reserved.attempt) for reserved in again] == [("a", 1)]


async def cancelled_pop(backend: SQLiteBackend, clock: HeldClock, at_call: int) -> None:
    clock.hold(at_call)
    popping = asyncio.create_task(backend.pop(["default"], 10))
    await eventually(clock.is_held.is_set)
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    clock.let_go()


async def test_a_waiting_pop_ends_when_the_store_closes(path: Path) -> None:
    backend = backend_on(DatabaseFile(path=path))
    await backend.open()
    assert await backend.pop(["default"], 1) == ()
    waiting = asyncio.create_task(backend.wait(["default"], 60.0))
    await asyncio.sleep(0)

    await backend.aclose()

    async with asyncio.timeout(5):
        await waiting


async def test_a_closed_store_has_no_thread_and_opens_again(path: Path) -> None:
    threads = set(threading.enumerate())
    backend = backend_on(DatabaseFile(path=path))

    for _ in range(2):
        await backend.open()
        await backend.push([message("a")])
        await backend.aclose()
        await backend.aclose()
        await eventually(lambda: set(threading.enumerate()) <= threads)
        with pytest.raises(NotDispatched):
            await backend.push([message("b")])


async def test_an_open_that_failed_leaves_no_thread(tmp_path: Path) -> None:
    threads = set(threading.enumerate())

    with pytest.raises(ValueError, match="no directory"):
        await connect(f"sqlite:///{tmp_path}/absent/jobs.db").open()

    await eventually(lambda: set(threading.enumerate()) <= threads)
