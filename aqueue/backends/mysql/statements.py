"""The statements on jobs, as data.

What changes jobs finds them by their rows, which are locked in the order of their numbers, so that no two
settlements can deadlock; what claims jobs skips locked ones, so that no claim ever waits. Each statement
names its index: by another, or by none, it would lock rows that it has no business with. How many rows an
UPDATE says it has changed proves nothing, for it leaves out those that were so already: a locking SELECT
before it says which there are.
"""

from dataclasses import dataclass, fields

from aqueue.backends.mysql.literals import NOW
from aqueue.backends.mysql.schema import Names

BEGIN, COMMIT = "START TRANSACTION", "COMMIT"

PLACE = "SELECT @@hostname, @@port, @@datadir"
"""What tells one server from another; anybody may ask it."""

_PARTS = {
    "clock": NOW,
    "these": "seq IN ({seqs}) AND (seq, token) IN ({pairs})",
    "soon": f"{NOW} + 2000000",
    "the_end": f"{NOW} + FIELD(seq, {{seqs}})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatements:
    """The statements on jobs: the tables' names and `_PARTS` are filled in once, the rest for each call."""

    # Assignments see those before them, so `place` and `ready_at` may say `at`.
    push: str = """
        INSERT INTO {jobs} (queue, id, state, at, place, ready_at, payload) VALUES {rows}
        ON DUPLICATE KEY UPDATE state = state"""
    pushed_row: str = "({queue}, {id}, {state}, {clock} + {delay}, at, at, {payload})"

    # What ends later than anybody waits is of no interest, and there may be much of it.
    look: str = """
        SELECT {clock},
            EXISTS (SELECT 1 FROM {jobs} FORCE INDEX (next) WHERE queue = {queue} AND state = 0),
            (SELECT at FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 1 AND at <= {soon} ORDER BY at LIMIT 1),
            (SELECT at FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 2 AND at <= {soon} ORDER BY at LIMIT 1)"""

    due: str = """
        SELECT seq FROM {jobs} FORCE INDEX (next)
        WHERE queue = {queue} AND state = 1 AND at <= {now}
        ORDER BY at, seq LIMIT {most} FOR UPDATE SKIP LOCKED"""
    promote: str = """
        UPDATE {jobs} FORCE INDEX (PRIMARY)
        SET state = 0, ready_at = at, place = {the_end}, at = {the_end}
        WHERE seq IN ({seqs})"""

    expired: str = """
        SELECT seq FROM {jobs} FORCE INDEX (next)
        WHERE queue = {queue} AND state = 2 AND at <= {now}
        ORDER BY at, seq LIMIT {most} FOR UPDATE SKIP LOCKED"""
    take_back: str = """
        UPDATE {jobs} FORCE INDEX (PRIMARY)
        SET state = 0, token = NULL, ready_at = at, attempts = attempts + 1, lost = lost + 1,
            place = {the_end}, at = {the_end}
        WHERE seq IN ({seqs})"""

    claim: str = """
        SELECT seq, id, payload, attempts, lost, {clock} - ready_at, at FROM {jobs} FORCE INDEX (next)
        WHERE queue = {queue} AND state = 0 AND at >= {place}
        ORDER BY at, seq LIMIT {most} FOR UPDATE SKIP LOCKED"""
    reserve: str = """
        UPDATE {jobs} FORCE INDEX (PRIMARY) SET state = 2, token = {token}, at = {clock} + {lease}
        WHERE seq IN ({seqs})"""

    held: str = "SELECT seq, token FROM {jobs} FORCE INDEX (PRIMARY) WHERE {these} FOR UPDATE"
    ack: str = "DELETE j FROM {jobs} AS j FORCE INDEX (PRIMARY) WHERE {these}"
    extend: str = "UPDATE {jobs} FORCE INDEX (PRIMARY) SET at = {clock} + {lease} WHERE {these}"
    give_back: str = """
        UPDATE {jobs} FORCE INDEX (PRIMARY) SET state = 0, token = NULL, at = place WHERE {these}"""
    requeue: str = """
        UPDATE {jobs} FORCE INDEX (PRIMARY)
        SET state = 0, token = NULL, attempts = attempts + 1, lost = 0, ready_at = {clock},
            place = {the_end}, at = {the_end}
        WHERE {these}"""
    defer: str = """
        UPDATE {jobs} FORCE INDEX (PRIMARY)
        SET state = 1, token = NULL, attempts = attempts + {counted}, lost = lost * (1 - {counted}),
            at = {clock} + ELT(FIELD(seq, {seqs}), {delays})
        WHERE {these}"""

    unlocked: str = """
        SELECT seq, token, queue FROM {jobs} FORCE INDEX (PRIMARY) WHERE seq IN ({seqs})
        FOR UPDATE SKIP LOCKED"""

    stats: str = """
        SELECT (SELECT COUNT(*) FROM {jobs} FORCE INDEX (next) WHERE queue = {queue} AND state = 0),
            (SELECT COUNT(*) FROM {jobs} FORCE INDEX (next) WHERE queue = {queue} AND state = 1),
            (SELECT COUNT(*) FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 1 AND at <= {clock}),
            (SELECT COUNT(*) FROM {jobs} FORCE INDEX (next) WHERE queue = {queue} AND state = 2),
            (SELECT COUNT(*) FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 2 AND at <= {clock}),
            (SELECT COUNT(*) FROM {failed} WHERE queue = {queue}),
            {clock},
            (SELECT ready_at FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 0 ORDER BY at, seq LIMIT 1),
            (SELECT at FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 1 ORDER BY at LIMIT 1),
            (SELECT at FROM {jobs} FORCE INDEX (next)
                WHERE queue = {queue} AND state = 2 ORDER BY at LIMIT 1)"""

    clear: str = "DELETE j FROM {jobs} AS j FORCE INDEX (next) WHERE queue = {queue} AND state IN (0, 1)"


def job_statements(names: Names) -> JobStatements:
    """Return the statements with the names of the tables in their places."""
    templates = {each.name: str(each.default) for each in fields(JobStatements)}
    return JobStatements(**{name: names.fill(template, **_PARTS) for name, template in templates.items()})
