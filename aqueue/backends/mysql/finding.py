"""Where one job stands: statements as data, and what they answer as what the port speaks of."""

from aqueue.backends.mysql.connections import Session
from aqueue.backends.mysql.literals import NOW, name
from aqueue.backends.mysql.schema import DELAYED, LEASED, Names
from aqueue.port import Found

_MOST = 100_000
"""So many waiting jobs are counted for the job's place."""

_FIND = """
    SELECT seq, state, at, at - {clock}, {clock} - ready_at, attempts, lost FROM {jobs} FORCE INDEX (held)
    WHERE queue = {queue} AND id = {id}"""

_AHEAD = """
    SELECT COUNT(*) FROM (
        SELECT 1 FROM {jobs} FORCE INDEX (next)
        WHERE queue = {queue} AND state = 0 AND at <= {at} AND (at < {at} OR seq < {seq})
        ORDER BY at, seq LIMIT {most}) ahead"""


async def find(session: Session, names: Names, queue: str, id: str) -> Found | None:
    """Return where the job stands; None where the queue doesn't hold it."""
    statement = names.fill(_FIND, clock=NOW, queue=name(queue), id=name(id))
    [looked] = await session.run(statement)
    if not looked.rows:
        return None
    seq, state, at, ends_in, waited, attempts, lost = looked.rows[0]
    if state == DELAYED:
        return Found(due_in=ends_in / 1e6, attempts=attempts, lost=lost)
    if state == LEASED:
        return Found(held_for=ends_in / 1e6, attempts=attempts, lost=lost)
    parts = {"queue": name(queue), "at": str(at), "seq": str(seq), "most": str(_MOST + 1)}
    [counted] = await session.run(names.fill(_AHEAD, **parts))
    ahead = int(counted.rows[0][0])
    return Found(
        waited=max(0.0, waited / 1e6),
        ahead=ahead if ahead <= _MOST else None,
        attempts=attempts,
        lost=lost,
    )
