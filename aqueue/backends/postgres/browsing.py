"""Looking through the jobs and naming the queues: statements as data, and rows as what the port speaks of."""

from dataclasses import dataclass

import asyncpg

from aqueue.backends.postgres.schema import Names
from aqueue.port import Held, Standing

_WHOLE = 1 << 30
"""More bytes than any value can have."""

_PAGE = """
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT id, substring(payload FROM 1 FOR $4::int),
    CASE WHEN state = 1 AND ready_at > now THEN 1 WHEN state = 2 AND lease_until > now THEN 2 ELSE 0 END,
    ready_at - now
FROM {jobs}, clock WHERE queue = $1 AND id > $2 ORDER BY id LIMIT $3
"""

# Each step is one look into an index, however many jobs a queue has.
_QUEUES = """
WITH RECURSIVE held (queue) AS (
    SELECT (SELECT min(queue) FROM {jobs})
    UNION ALL
    SELECT (SELECT min(queue) FROM {jobs} j WHERE j.queue > held.queue) FROM held
    WHERE held.queue IS NOT NULL
), kept (queue) AS (
    SELECT (SELECT min(queue) FROM {failed})
    UNION ALL
    SELECT (SELECT min(queue) FROM {failed} f WHERE f.queue > kept.queue) FROM kept
    WHERE kept.queue IS NOT NULL
)
SELECT queue FROM held WHERE queue IS NOT NULL UNION SELECT queue FROM kept WHERE queue IS NOT NULL
"""

_STANDINGS = (Standing.READY, Standing.DELAYED, Standing.LEASED)


@dataclass(frozen=True, slots=True)
class BrowsingStatements:
    """The statements that only look, for one set of names."""

    page: str
    queues: str


def browsing_statements(names: Names) -> BrowsingStatements:
    """Return the statements with the names in their places."""
    return BrowsingStatements(names.fill(_PAGE), names.fill(_QUEUES))


def page_arguments(queue: str, after: str | None, limit: int, head: int | None) -> tuple[object, ...]:
    """Return the arguments of a page."""
    return queue, after or "", limit, _WHOLE if head is None else head


def held(row: asyncpg.Record, queue: str) -> Held:
    """Return what a row of a page shows."""
    id, payload, state, due_in = row
    return Held(id, queue, payload, _STANDINGS[state], due_in if state == 1 else 0.0)
