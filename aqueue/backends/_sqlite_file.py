"""Which file, which journal, and a connection that is set up for both."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from aqueue.backends._sqlite_session import is_busy
from aqueue.errors import InvalidQueueArgument, QueueUnavailable
from aqueue.port import NotDispatched
from aqueue.urls import StoreURL, choice

_OLDEST = (3, 24, 0)
_SETTINGS = (
    "PRAGMA journal_size_limit = 8388608",  # what one large transaction may leave behind
    "PRAGMA cache_size = -20000",
    "PRAGMA temp_store = MEMORY",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFile:
    """A database file and how to write it; `journal` is `wal`, `rollback`, or None for what suits it."""

    path: Path
    journal: str | None = None
    synchronous: str = "full"

    def connect(self) -> sqlite3.Connection:
        """Open the file, made if it is missing, on the current thread.

        Raises `NotDispatched` if it can't be used; after a `sqlite3.Error`, a lock, another try may succeed.
        """
        if sqlite3.sqlite_version_info < _OLDEST:
            raise QueueUnavailable(
                f"sqlite:// needs SQLite 3.24, and this Python has {sqlite3.sqlite_version}"
            )
        if not self.path.parent.is_dir():
            raise InvalidQueueArgument(f"there is no directory {self.path.parent} to keep the database in")
        try:
            return self._connected()
        except sqlite3.Error as error:
            if is_busy(error):
                raise
            raise NotDispatched(f"can't use {self.path} as a database: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            self._set_journal(connection)
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_journal(self, connection: sqlite3.Connection) -> None:
        wanted = journal_mode(self.journal, _journal_of(connection), sqlite3.sqlite_version_info)
        got: str = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
        if got == wanted:
            return
        if self.journal is not None:
            raise NotDispatched(f"{self.path} can't have journal={self.journal}: SQLite says {got}")
        connection.execute("PRAGMA journal_mode = persist")  # not every file system can do WAL


def from_url(url: StoreURL) -> DatabaseFile:
    """Return the file that a `sqlite:///relative.db` or `sqlite:////absolute.db` URL means."""
    options = url.read_options(
        {"journal": choice("wal", "rollback"), "synchronous": choice("normal", "full", "extra")}
    )
    if url.hosts or url.username is not None:
        raise InvalidQueueArgument(
            "write sqlite:///relative.db or, with four slashes, sqlite:////absolute.db"
        )
    name = url.path.removeprefix("/")
    if name in ("", ":memory:"):
        raise InvalidQueueArgument("sqlite:// needs a file, as in sqlite:///jobs.db; use memory:// for none")
    return DatabaseFile(path=Path(name).resolve(), **options)


def journal_mode(asked: str | None, found: str, version: tuple[int, ...]) -> str:
    """Return the journal mode to set, given what the URL asks for and what the file is in already.

    WAL where it is safe. An older SQLite leaves a file in WAL that the application chose to have so, and
    otherwise uses a rollback journal: `persist` is the fastest, and unlike `delete` it needs no directory
    entry on disk before a commit is certain.
    """
    if asked == "wal" or (asked is None and (found == "wal" or is_wal_safe(version))):
        return "wal"
    return "persist"


def is_wal_safe(version: tuple[int, ...]) -> bool:
    """Whether WAL can't be damaged by several writers: fixed in 3.51.3; 3.52.0 was withdrawn."""
    return version >= (3, 51, 3) and version != (3, 52, 0)


def wal_warning(connection: sqlite3.Connection) -> str | None:
    """Return what to say about the connection's journal, if there is something to say."""
    if _journal_of(connection) != "wal" or is_wal_safe(sqlite3.sqlite_version_info):
        return None
    return (
        f"SQLite {sqlite3.sqlite_version} can damage a WAL database that several connections write at once: "
        "use SQLite 3.51.3 or newer, or journal=rollback in the URL"
    )


def check_usable(connection: object, path: Path) -> sqlite3.Connection:
    """Return the caller's connection if a job can be pushed in its transaction (PUSH-8)."""
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidQueueArgument(f"connection= takes a sqlite3.Connection, not {type(connection).__name__}")
    if not connection.in_transaction and _commits_by_itself(connection):
        raise InvalidQueueArgument("connection= commits by itself and is not in a transaction: BEGIN first")
    if not _is_to(connection, path):
        raise InvalidQueueArgument(f"connection= must be a connection to {path}, the queue's own database")
    return connection


def _commits_by_itself(connection: sqlite3.Connection) -> bool:
    """Python 3.12 has `autocommit`, whose legacy value leaves it to `isolation_level`."""
    autocommit = getattr(connection, "autocommit", None)
    return autocommit is True or (autocommit is not False and connection.isolation_level is None)


def _is_to(connection: sqlite3.Connection, path: Path) -> bool:
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        _, _, name = cursor.execute("PRAGMA database_list").fetchone()  # the first is the main one
    return bool(name) and Path(os.fsdecode(name)).samefile(path)


def _journal_of(connection: sqlite3.Connection) -> str:
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode
