"""The verbs on failed jobs as functions of a SQLite connection, inside the caller's transaction."""

import sqlite3
from collections.abc import Sequence

import msgspec

from aqueue.backends import _sqlite_jobs as jobs
from aqueue.backends import _sqlite_schema as sql
from aqueue.port import Answer, FailedRecord, Failing, Message, Position, Verdict

_FIELDS = FailedRecord.__struct_fields__
_FIRST = Position(float("-inf"), "")


def fail(connection: sqlite3.Connection, batch: Sequence[Failing], now: float) -> list[Answer]:
    """Swap each job that this very delivery still holds for its record (FAIL-1)."""
    answers = jobs.ack(connection, [item.reserved for item in batch])
    keep(
        connection,
        [item.record for item, answer in zip(batch, answers, strict=True) if answer is Verdict.SETTLED],
        now,
    )
    return answers


def keep(connection: sqlite3.Connection, batch: Sequence[FailedRecord], now: float) -> None:
    """Store each record once; another delivery of the same job takes the place of the earlier one."""
    connection.executemany(
        sql.KEEP, [{**msgspec.structs.asdict(record), "failed_at": now} for record in batch]
    )


def page(
    connection: sqlite3.Connection, queue: str | None, job: str | None, after: Position | None, limit: int
) -> list[FailedRecord]:
    """Return the records after a position, oldest first."""
    failed_at, id = after or _FIRST
    statement = sql.failed_page(queue=queue is not None, job=job is not None)
    values = {"queue": queue, "job": job, "failed_at": failed_at, "id": id, "limit": limit}
    return [_record(row) for row in connection.execute(statement, values)]


def get(connection: sqlite3.Connection, id: str) -> FailedRecord | None:
    """Return the oldest record of a job."""
    row = connection.execute(sql.FAILED_GET, (id,)).fetchone()
    return _record(row) if row is not None else None


def count(connection: sqlite3.Connection, queue: str | None, job: str | None) -> int:
    """Count the records."""
    statement = sql.failed_count(queue=queue is not None, job=job is not None)
    counted: int = connection.execute(statement, {"queue": queue, "job": job}).fetchone()[0]
    return counted


def retry(connection: sqlite3.Connection, record: FailedRecord, message: Message, now: float) -> bool:
    """Swap exactly this record for a waiting job; False when it is gone."""
    if not discard(connection, record):
        return False
    jobs.push(connection, [message], now)
    return True


def discard(connection: sqlite3.Connection, record: FailedRecord) -> bool:
    """Delete exactly this record; False when it is gone."""
    values = (record.id, record.queue, record.failed_at, record.delivery)
    return connection.execute(sql.FAILED_FORGET, values).rowcount == 1


def purge(
    connection: sqlite3.Connection, queue: str | None, *, before: float | None, keep: int | None, limit: int
) -> int:
    """Delete up to `limit` of the oldest records, those from before a time or beyond a count."""
    of_queue = queue is not None
    surplus = 0
    if before is not None:
        values = {"queue": queue, "before": before, "limit": limit}
        surplus = connection.execute(sql.failed_past(queue=of_queue), values).fetchone()[0]
    if keep is not None:
        values = {"queue": queue, "limit": keep + limit}
        seen = connection.execute(sql.failed_seen(queue=of_queue), values).fetchone()[0]
        surplus = max(surplus, seen - keep)
    if surplus <= 0:
        return 0
    return connection.execute(sql.failed_purge(queue=of_queue), {"queue": queue, "limit": surplus}).rowcount


def _record(row: Sequence[object]) -> FailedRecord:
    return msgspec.convert(dict(zip(_FIELDS, row, strict=True)), FailedRecord)
