"""What SQLite's errors prove about the call that met them (PUSH-4)."""

import sqlite3
import time
from pathlib import Path

import pytest

from aqueue import OutcomeUnknown, Queue, StoreRefused, connect, job
from aqueue.backends._sqlite_file import DatabaseFile
from aqueue.backends.sqlite import SQLiteBackend


@job(name="sqlite.note")
class Note:
    text: str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def backend_on(database: DatabaseFile) -> SQLiteBackend:
    return SQLiteBackend(database, lease=60.0, clock=time.time)


class SmallFile(DatabaseFile):
    """A disk that is full after a few pages."""

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute("PRAGMA max_page_count = 40")
        return connection


class ReadOnlyFile(DatabaseFile):
    """A file that may be read only."""

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute("PRAGMA query_only = ON")
        return connection


class LosingConnection(sqlite3.Connection):
    """A connection whose disk fails after the commit's mark was written, once."""

    losing = False

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        cursor = super().execute(sql, *arguments)  # type: ignore[arg-type]  # passed on as it came
        if sql == "COMMIT" and LosingConnection.losing:
            LosingConnection.losing = False
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return cursor


class LosingFile(DatabaseFile):
    """A file on such a disk."""

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=0, isolation_level=None, factory=LosingConnection)


@pytest.mark.rule("PUSH-4")
async def test_a_full_disk_refuses_and_what_fits_still_goes_in(path: Path) -> None:
    async with Queue(backend_on(SmallFile(path=path))) as queue:
        with pytest.raises(StoreRefused):
            await queue.push(Note("x" * 300_000))

        await queue.push(Note("small"))

        assert await queue.size() == 1


@pytest.mark.rule("PUSH-4")
async def test_a_file_that_cannot_be_written_refuses(path: Path) -> None:
    async with connect(f"sqlite:///{path}"):
        pass

    async with Queue(backend_on(ReadOnlyFile(path=path))) as queue:
        with pytest.raises(StoreRefused):
            await queue.push(Note("a"))


@pytest.mark.rule("PUSH-4", "PUSH-10")
async def test_an_io_error_from_the_commit_leaves_the_outcome_unknown(path: Path) -> None:
    async with Queue(backend_on(LosingFile(path=path))) as queue:
        LosingConnection.losing = True
        with pytest.raises(OutcomeUnknown) as caught:
            await queue.push(Note("a"))

        assert caught.value.job_id is not None
        await queue.push(Note("a"), id=caught.value.job_id)

        assert await queue.size() == 1
