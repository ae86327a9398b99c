"""Looking through a SQLite store as functions of a connection; they take nothing and write nothing."""

import sqlite3

from aqueue.backends._sqlite_schema import DELAYED, LEASED
from aqueue.port import Held, Standing

_PAGE = """
    SELECT id, CASE WHEN :head IS NULL THEN CAST(payload AS BLOB)
            ELSE substr(CAST(payload AS BLOB), 1, :head) END, state, ready_at, lease_until
    FROM aqueue_jobs INDEXED BY aqueue_held
    WHERE queue = :queue AND id > :after ORDER BY id LIMIT :limit"""

# Each step is one look into the index, however many jobs a queue has.
_QUEUES = """
    WITH RECURSIVE held(queue) AS (
        SELECT (SELECT min(queue) FROM aqueue_jobs INDEXED BY aqueue_held)
        UNION ALL
        SELECT (SELECT min(queue) FROM aqueue_jobs INDEXED BY aqueue_held WHERE queue > held.queue)
        FROM held WHERE queue IS NOT NULL
    ), failed(queue) AS (
        SELECT (SELECT min(queue) FROM aqueue_failed INDEXED BY aqueue_failed_queue)
        UNION ALL
        SELECT (SELECT min(queue) FROM aqueue_failed INDEXED BY aqueue_failed_queue
            WHERE queue > failed.queue)
        FROM failed WHERE queue IS NOT NULL
    )
    SELECT queue FROM held WHERE queue IS NOT NULL
    UNION SELECT queue FROM failed WHERE queue IS NOT NULL"""


def page(
    connection: sqlite3.Connection, queue: str, *, after: str | None, limit: int, head: int | None, now: float
) -> list[Held]:
    """Return a page of the queue's jobs by id, as the next pop would find them."""
    values = {"queue": queue, "after": after or "", "limit": limit, "head": head}
    return [_held(row, queue, now) for row in connection.execute(_PAGE, values)]


def queues(connection: sqlite3.Connection) -> list[str]:
    """Return the queues that hold jobs, or failed ones."""
    return [name for (name,) in connection.execute(_QUEUES)]


def _held(row: tuple[str, bytes, int, float, float | None], queue: str, now: float) -> Held:
    id, payload, state, ready_at, lease_until = row
    if state == DELAYED and ready_at > now:
        return Held(id, queue, payload, Standing.DELAYED, ready_at - now)
    if state == LEASED and lease_until is not None and lease_until > now:
        return Held(id, queue, payload, Standing.LEASED)
    return Held(id, queue, payload, Standing.READY)
