"""Where one job stands in a SQLite store, as a function of a connection; it takes and writes nothing."""

import sqlite3

from aqueue.backends._sqlite_schema import DELAYED, LEASED
from aqueue.port import Found

_MOST = 100_000
"""So many waiting jobs are counted for the job's place."""

_FIND = """
    SELECT seq, state, ready_at, lease_until, attempts, lost FROM aqueue_jobs INDEXED BY aqueue_held
    WHERE queue = ? AND id = ?"""

_AHEAD = """
    SELECT count(*) FROM (
        SELECT 1 FROM aqueue_jobs INDEXED BY aqueue_ready
        WHERE queue = ? AND state = 0 AND seq < ? LIMIT ?)"""


def find(connection: sqlite3.Connection, queue: str, id: str, *, now: float) -> Found | None:
    """Return where the job stands; None where the queue doesn't hold it."""
    row = connection.execute(_FIND, (queue, id)).fetchone()
    if row is None:
        return None
    seq, state, ready_at, lease_until, attempts, lost = row
    if state == DELAYED:
        return Found(due_in=ready_at - now, attempts=attempts, lost=lost)
    if state == LEASED:
        return Found(held_for=(lease_until or 0.0) - now, attempts=attempts, lost=lost)
    ahead = connection.execute(_AHEAD, (queue, seq, _MOST + 1)).fetchone()[0]
    return Found(
        waited=max(0.0, now - ready_at),
        ahead=ahead if ahead <= _MOST else None,
        attempts=attempts,
        lost=lost,
    )
