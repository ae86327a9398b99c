"""The verbs on jobs as functions of a SQLite connection, inside the caller's transaction."""

import sqlite3
from collections.abc import Sequence
from secrets import randbits
from typing import NamedTuple

from aqueue.backends import _sqlite_schema as sql
from aqueue.port import Answer, Message, QueueStats, Releasing, Reserved, Verdict

_MOVED_AT_ONCE = 100
_NEVER = float("inf")


class Receipt(NamedTuple):
    """One hand-out: the job's row, and a token that no other hand-out of that row has (FENCE-1)."""

    seq: int | None
    token: int | None

    def __str__(self) -> str:
        return f"{self.seq}-{self.token:x}"


_NOT_OURS = Receipt(None, None)


def push(connection: sqlite3.Connection, batch: Sequence[Message], now: float) -> None:
    """Insert each message, ready or delayed, unless its queue still holds its id (PUSH-10)."""
    connection.executemany(
        sql.PUSH,
        [
            (job.queue, job.id, job.payload, sql.DELAYED if job.delay > 0 else sql.READY, now + job.delay)
            for job in batch
        ],
    )


def next_time(connection: sqlite3.Connection, queues: Sequence[str]) -> float:
    """Return when a pop on these queues may find something: minus infinity for now, infinity for never."""
    soonest = _NEVER
    for queue in queues:
        is_ready, due, expiry = connection.execute(sql.LOOK, {"queue": queue}).fetchone()
        if is_ready:
            return -_NEVER
        soonest = min(soonest, _NEVER if due is None else due, _NEVER if expiry is None else expiry)
    return soonest


def pop(
    connection: sqlite3.Connection, queues: Sequence[str], limit: int, *, now: float, lease: float
) -> list[Reserved]:
    """Reserve up to `limit` jobs in list order; what is due or was lost becomes ready first."""
    taken: list[Reserved] = []
    for queue in queues:
        _make_ready(connection, queue, now, max(_MOVED_AT_ONCE, limit))
        taken += _reserve(connection, queue, limit - len(taken), now, lease)
        if len(taken) == limit:
            break
    return taken


def _make_ready(connection: sqlite3.Connection, queue: str, now: float, most: int) -> None:
    """Put due jobs (DELAY-1) and those whose lease ran out (LEASE-2) at the end of the queue."""
    _, due, expiry = connection.execute(sql.LOOK, {"queue": queue}).fetchone()
    if due is not None and due <= now:
        connection.executemany(sql.PROMOTE, connection.execute(sql.DUE, (queue, now, most)).fetchall())
    if expiry is not None and expiry <= now:
        connection.executemany(sql.TAKE_BACK, connection.execute(sql.EXPIRED, (queue, now, most)).fetchall())


def _reserve(
    connection: sqlite3.Connection, queue: str, limit: int, now: float, lease: float
) -> list[Reserved]:
    rows = connection.execute(sql.NEXT, (queue, limit)).fetchall()
    if not rows:
        return []
    token = randbits(63)
    connection.execute(sql.RESERVE, (token, now + lease, queue, rows[-1][0]))
    return [
        Reserved(id, queue, payload, Receipt(seq, token), attempts + 1, lost, max(0.0, now - ready_at))
        for seq, id, payload, attempts, lost, ready_at in rows
    ]


def ack(connection: sqlite3.Connection, batch: Sequence[Reserved]) -> list[Answer]:
    """Delete each job that this very delivery still holds."""
    cursor = connection.cursor()
    return [_verdict(cursor.execute(sql.ACK, _receipt(item))) for item in batch]


def release(connection: sqlite3.Connection, batch: Sequence[Releasing], now: float) -> list[Answer]:
    """Put each job back: delayed, at the end of its queue, or uncounted where it was."""
    cursor = connection.cursor()
    return [_verdict(_put_back(cursor, item, _receipt(item.reserved), now)) for item in batch]


def _put_back(cursor: sqlite3.Cursor, item: Releasing, receipt: Receipt, now: float) -> sqlite3.Cursor:
    if item.delay > 0:
        return cursor.execute(
            sql.DEFER, (now + item.delay, int(item.counted), int(not item.counted), *receipt)
        )
    if item.counted:
        return cursor.execute(sql.REQUEUE, (now, *receipt))
    return cursor.execute(sql.GIVE_BACK, receipt)


def extend(connection: sqlite3.Connection, batch: Sequence[Reserved], until: float) -> list[Answer]:
    """Move the end of each lease that this very delivery still holds."""
    cursor = connection.cursor()
    return [_verdict(cursor.execute(sql.EXTEND, (until, *_receipt(item)))) for item in batch]


def stats(connection: sqlite3.Connection, queue: str, now: float) -> QueueStats:
    """Count the jobs as the next pop would find them."""
    row = connection.execute(sql.STATS, {"queue": queue, "now": now}).fetchone()
    ready, delayed, due, leased, expired, failed, first_ready, first_due, first_expiry = row
    since = [at for at in (first_ready, first_due, first_expiry) if at is not None and at <= now]
    return QueueStats(
        ready=ready + due + expired,
        delayed=delayed - due,
        leased=leased - expired,
        failed=failed,
        oldest_age=now - min(since) if since else None,
    )


def clear(connection: sqlite3.Connection, queue: str) -> int:
    """Delete what nobody holds (CLEAR-1)."""
    return sum(connection.execute(statement, (queue,)).rowcount for statement in sql.CLEAR)


def _receipt(item: Reserved) -> Receipt:
    return item.receipt if isinstance(item.receipt, Receipt) else _NOT_OURS


def _verdict(cursor: sqlite3.Cursor) -> Verdict:
    return Verdict.SETTLED if cursor.rowcount else Verdict.STALE
