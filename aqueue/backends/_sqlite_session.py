"""One SQLite connection and the whole transactions that run on it; everything here happens on one thread.

SQLite's own busy handler is off, because it sleeps where nothing can end it: a lock that another
connection holds is asked for again in short pauses, for as long as somebody still wants the answer.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from secrets import SystemRandom
from typing import NamedTuple

from aqueue.port import NotDispatched, Refused

PATIENCE = 5.0
"""How many seconds a call waits for another connection's lock; sqlite3's own default."""

_uniform = SystemRandom().uniform


class Work:
    """One function for the thread, and the future of its answer.

    `glance`, a read, may answer a write in its place without the write lock; None means that it can't.
    """

    __slots__ = ("act", "answer", "expires", "glance", "withdrawn", "writes")

    def __init__(
        self,
        act: Callable[[sqlite3.Connection], object],
        answer: "asyncio.Future[object]",
        *,
        writes: bool,
        glance: Callable[[sqlite3.Connection], object | None] | None = None,
    ) -> None:
        self.act = act
        self.answer = answer
        self.writes = writes
        self.glance = glance
        self.expires = time.monotonic() + PATIENCE
        self.withdrawn = False


class Outcome(NamedTuple):
    """What became of one piece of work."""

    work: Work
    result: object
    error: Exception | None = None


class Session:
    """A connection, made when it is first needed and again after an error that left it in doubt."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self.last_moment = float("inf")

    def close(self) -> None:
        """Close the connection, which rolls back what is not committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def is_hopeless(self, work: Work) -> bool:
        """Whether waiting longer for a lock is of no use to this work."""
        return work.withdrawn or time.monotonic() >= min(work.expires, self.last_moment)

    def read(self, work: Work, act: Callable[[sqlite3.Connection], object]) -> Outcome:
        """Run a function that only reads; another connection's commit under way is waited for."""
        pause = pauses()
        while True:
            try:
                return Outcome(work, act(self._open()))
            except sqlite3.Error as error:
                if not is_busy(error):
                    return Outcome(work, None, verdict(Refused, error))
                if self.is_hopeless(work):
                    return Outcome(work, None, verdict(NotDispatched, error))
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, not to this thread
                return Outcome(work, None, error)
            time.sleep(next(pause))

    def begin(self) -> Exception | None:
        """Take the write lock; or return why not, nothing having been written."""
        try:
            self._open().execute("BEGIN IMMEDIATE")
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, not to this thread
            if not is_busy(error):
                self.close()
            return error
        return None

    def transact(self, works: Sequence[Work]) -> list[Outcome]:
        """Run each work in the transaction that began, commit, and answer; one that fails spoils no other."""
        connection = self._open()
        try:
            outcomes = [_step(connection, work) for work in works]
        except sqlite3.Error as error:
            self._roll_back()
            return [Outcome(work, None, verdict(Refused, error)) for work in works]
        try:
            self._commit(connection)
        except sqlite3.Error as error:
            return self._uncommitted(works, error)
        return outcomes

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit; readers of the old pages are waited for, and SQLite meanwhile lets no new ones in."""
        until = time.monotonic() + PATIENCE
        pause = pauses()
        while True:
            try:
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= min(until, self.last_moment):
                    raise
            else:
                return
            time.sleep(next(pause))

    def _uncommitted(self, works: Sequence[Work], error: sqlite3.Error) -> list[Outcome]:
        """Roll back what could not be committed, and say what that proves to each."""
        self._roll_back()
        if _code(error) == sqlite3.SQLITE_IOERR:  # the commit mark may have reached the disk
            self.close()
            return [Outcome(work, None, error) for work in works]
        kind = NotDispatched if is_busy(error) else Refused
        return [Outcome(work, None, verdict(kind, error)) for work in works]

    def _roll_back(self) -> None:
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection


def _step(connection: sqlite3.Connection, work: Work) -> Outcome:
    if work.withdrawn:
        return Outcome(work, None, NotDispatched("withdrawn before it began"))
    connection.execute("SAVEPOINT step")
    try:
        result = work.act(connection)
    except Exception as error:
        if not connection.in_transaction:  # a full disk, say: SQLite has undone the others' steps as well
            raise sqlite3.OperationalError(f"the transaction was rolled back: {error}") from error
        connection.execute("ROLLBACK TO step")
        connection.execute("RELEASE step")
        return Outcome(work, None, verdict(Refused, error))
    connection.execute("RELEASE step")
    return Outcome(work, result)


def verdict(kind: type[Exception], error: Exception) -> Exception:
    """Return what a driver's error proves, anew for each caller; what is not the driver's is unchanged."""
    if not isinstance(error, sqlite3.Error):
        return error
    proved = kind(str(error))
    proved.__cause__ = error
    return proved


def pauses() -> Iterator[float]:
    """Yield growing, jittered pauses in seconds, none so long that a stop would notice."""
    pause = 0.0005
    while True:
        yield pause * _uniform(0.5, 1.0)
        pause = min(pause * 1.5, 0.02)


def is_busy(error: Exception) -> bool:
    """Whether another connection's lock is all that is wrong."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def _code(error: Exception) -> int | None:
    """Return SQLite's primary result code; errors that the module raises by itself have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None
