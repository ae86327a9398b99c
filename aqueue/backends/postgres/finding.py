"""Where one job stands: the statement as data, and a row as what the port speaks of."""

import asyncpg

from aqueue.backends.postgres.schema import DELAYED, LEASED, Names
from aqueue.port import Found

_MOST = 100_000
"""So many waiting jobs are counted for the job's place."""

_FIND = """
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT state, ready_at - now, lease_until - now, attempts, lost,
    CASE WHEN state = 0 THEN (SELECT count(*) FROM (
        SELECT 1 FROM {jobs} r WHERE r.state = 0 AND r.queue = $1 AND r.seq < j.seq
        ORDER BY r.seq LIMIT $3) ahead) ELSE 0 END
FROM {jobs} j, clock WHERE queue = $1 AND id = $2
"""


def finding_statement(names: Names) -> str:
    """Return the statement with the names in their places."""
    return names.fill(_FIND)


def arguments(queue: str, id: str) -> tuple[object, ...]:
    """Return the statement's arguments."""
    return queue, id, _MOST + 1


def found(row: asyncpg.Record) -> Found:
    """Return what the row says."""
    state, due_in, held_for, attempts, lost, ahead = row
    if state == DELAYED:
        return Found(due_in=due_in, attempts=attempts, lost=lost)
    if state == LEASED:
        return Found(held_for=held_for or 0.0, attempts=attempts, lost=lost)
    place = ahead if ahead <= _MOST else None
    return Found(waited=max(0.0, -due_in), ahead=place, attempts=attempts, lost=lost)
