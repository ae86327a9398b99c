"""What the SQLite store keeps and the statements that use it, as data.

A job's row number is its place: ready jobs are handed out in the order of their rows, so a job that joins
the end of its queue again is given a new number, and one given back uncounted simply keeps its own. Ready,
delayed and leased jobs have an index each, which holds nothing else, so that a pop costs the same however
many jobs wait in the others (POP-8). Every statement names its index: without it the statement fails
instead of reading the whole table.
"""

import sqlite3

from aqueue.errors import StoreRefused

READY, DELAYED, LEASED = 0, 1, 2

VERSIONS = "CREATE TABLE IF NOT EXISTS aqueue_schema (version INTEGER PRIMARY KEY, at REAL NOT NULL)"

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE aqueue_jobs (
            seq INTEGER PRIMARY KEY,
            queue TEXT NOT NULL,
            id TEXT NOT NULL,
            payload BLOB NOT NULL,
            state INTEGER NOT NULL,  -- 0 ready, 1 delayed, 2 leased
            ready_at REAL NOT NULL,  -- seconds since 1970: since when, or when, it may be handed out
            attempts INTEGER NOT NULL DEFAULT 0,
            lost INTEGER NOT NULL DEFAULT 0,
            token INTEGER,  -- with seq, the receipt of the hand-out that holds it
            lease_until REAL
        )""",
        "CREATE UNIQUE INDEX aqueue_held ON aqueue_jobs (queue, id)",
        "CREATE INDEX aqueue_ready ON aqueue_jobs (queue, state) WHERE state = 0",
        "CREATE INDEX aqueue_delayed ON aqueue_jobs (queue, state, ready_at) WHERE state = 1",
        "CREATE INDEX aqueue_leased ON aqueue_jobs (queue, state, lease_until) WHERE state = 2",
        """CREATE TABLE aqueue_failed (
            id TEXT NOT NULL,
            name TEXT NOT NULL,
            queue TEXT NOT NULL,
            payload BLOB NOT NULL,
            attempts INTEGER NOT NULL,
            lost INTEGER NOT NULL,
            reason TEXT NOT NULL,
            error_type TEXT NOT NULL,
            error TEXT NOT NULL,
            traceback TEXT NOT NULL,
            pushed_at REAL,
            failed_at REAL NOT NULL,
            worker TEXT NOT NULL,
            delivery TEXT NOT NULL,
            PRIMARY KEY (id, queue)
        )""",
        "CREATE INDEX aqueue_failed_all ON aqueue_failed (failed_at, id)",
        "CREATE INDEX aqueue_failed_queue ON aqueue_failed (queue, failed_at, id)",
        "CREATE INDEX aqueue_failed_name ON aqueue_failed (name, failed_at, id)",
        "CREATE INDEX aqueue_failed_queue_name ON aqueue_failed (queue, name, failed_at, id)",
    ),
    (
        """CREATE TABLE aqueue_notes (
            queue TEXT NOT NULL,
            key TEXT NOT NULL,
            value BLOB NOT NULL,
            token TEXT NOT NULL,
            until REAL,  -- seconds since 1970
            PRIMARY KEY (queue, key)
        )""",
        "CREATE INDEX aqueue_notes_end ON aqueue_notes (until) WHERE until IS NOT NULL",
    ),
)
"""What brings the schema from each version to the next; a step that was released never changes."""

PUSH = """
    INSERT INTO aqueue_jobs (queue, id, payload, state, ready_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (queue, id) DO NOTHING"""

LOOK = """
    SELECT EXISTS (SELECT 1 FROM aqueue_jobs INDEXED BY aqueue_ready WHERE queue = :queue AND state = 0),
        (SELECT min(ready_at) FROM aqueue_jobs INDEXED BY aqueue_delayed WHERE queue = :queue AND state = 1),
        (SELECT min(lease_until) FROM aqueue_jobs INDEXED BY aqueue_leased WHERE queue = :queue AND state = 2)
    """

DUE = """
    SELECT seq FROM aqueue_jobs INDEXED BY aqueue_delayed
    WHERE queue = ? AND state = 1 AND ready_at <= ? ORDER BY ready_at, seq LIMIT ?"""

PROMOTE = """
    UPDATE aqueue_jobs SET seq = (SELECT max(seq) FROM aqueue_jobs) + 1, state = 0 WHERE seq = ?"""

EXPIRED = """
    SELECT seq FROM aqueue_jobs INDEXED BY aqueue_leased
    WHERE queue = ? AND state = 2 AND lease_until <= ? ORDER BY lease_until, seq LIMIT ?"""

TAKE_BACK = """
    UPDATE aqueue_jobs SET seq = (SELECT max(seq) FROM aqueue_jobs) + 1, state = 0, ready_at = lease_until,
        attempts = attempts + 1, lost = lost + 1, token = NULL, lease_until = NULL
    WHERE seq = ?"""

NEXT = """
    SELECT seq, id, CAST(payload AS BLOB), attempts, lost, ready_at FROM aqueue_jobs INDEXED BY aqueue_ready
    WHERE queue = ? AND state = 0 ORDER BY seq LIMIT ?"""

RESERVE = """
    UPDATE aqueue_jobs INDEXED BY aqueue_ready SET state = 2, token = ?, lease_until = ?
    WHERE queue = ? AND state = 0 AND seq <= ?"""

ACK = "DELETE FROM aqueue_jobs WHERE seq = ? AND token = ?"

EXTEND = "UPDATE aqueue_jobs SET lease_until = ? WHERE seq = ? AND token = ?"

GIVE_BACK = """
    UPDATE aqueue_jobs SET state = 0, token = NULL, lease_until = NULL WHERE seq = ? AND token = ?"""

REQUEUE = """
    UPDATE aqueue_jobs SET seq = (SELECT max(seq) FROM aqueue_jobs) + 1, state = 0, ready_at = ?,
        attempts = attempts + 1, lost = 0, token = NULL, lease_until = NULL
    WHERE seq = ? AND token = ?"""

DEFER = """
    UPDATE aqueue_jobs SET state = 1, ready_at = ?,
        attempts = attempts + ?, lost = lost * ?, token = NULL, lease_until = NULL
    WHERE seq = ? AND token = ?"""

STATS = """
    SELECT (SELECT count(*) FROM aqueue_jobs INDEXED BY aqueue_ready WHERE queue = :queue AND state = 0),
        (SELECT count(*) FROM aqueue_jobs INDEXED BY aqueue_delayed WHERE queue = :queue AND state = 1),
        (SELECT count(*) FROM aqueue_jobs INDEXED BY aqueue_delayed
            WHERE queue = :queue AND state = 1 AND ready_at <= :now),
        (SELECT count(*) FROM aqueue_jobs INDEXED BY aqueue_leased WHERE queue = :queue AND state = 2),
        (SELECT count(*) FROM aqueue_jobs INDEXED BY aqueue_leased
            WHERE queue = :queue AND state = 2 AND lease_until <= :now),
        (SELECT count(*) FROM aqueue_failed INDEXED BY aqueue_failed_queue WHERE queue = :queue),
        (SELECT ready_at FROM aqueue_jobs INDEXED BY aqueue_ready
            WHERE queue = :queue AND state = 0 ORDER BY seq LIMIT 1),
        (SELECT min(ready_at) FROM aqueue_jobs INDEXED BY aqueue_delayed WHERE queue = :queue AND state = 1),
        (SELECT min(lease_until) FROM aqueue_jobs INDEXED BY aqueue_leased WHERE queue = :queue AND state = 2)
    """

CLEAR = (
    "DELETE FROM aqueue_jobs INDEXED BY aqueue_ready WHERE queue = ? AND state = 0",
    "DELETE FROM aqueue_jobs INDEXED BY aqueue_delayed WHERE queue = ? AND state = 1",
)

_RECORD = """
    id, name, queue, CAST(payload AS BLOB), attempts, lost, reason, error_type, error, traceback, pushed_at,
    failed_at, worker, delivery"""

# One id may fail on two queues at the same instant, and a position in the list is a time and an id.
KEEP = """
    INSERT INTO aqueue_failed VALUES (
        :id, :name, :queue, :payload, :attempts, :lost, :reason, :error_type, :error, :traceback, :pushed_at,
        max(:failed_at, ifnull(
            (SELECT max(failed_at) + 1e-6 FROM aqueue_failed WHERE id = :id AND queue <> :queue), 0)),
        :worker, :delivery)
    ON CONFLICT (id, queue) DO UPDATE SET
        name = excluded.name, payload = excluded.payload, attempts = excluded.attempts, lost = excluded.lost,
        reason = excluded.reason, error_type = excluded.error_type, error = excluded.error,
        traceback = excluded.traceback, pushed_at = excluded.pushed_at, failed_at = excluded.failed_at,
        worker = excluded.worker, delivery = excluded.delivery
    WHERE delivery <> excluded.delivery"""

FAILED_GET = f"SELECT {_RECORD} FROM aqueue_failed WHERE id = ? ORDER BY failed_at LIMIT 1"  # noqa: S608 - constants

FAILED_FORGET = "DELETE FROM aqueue_failed WHERE id = ? AND queue = ? AND failed_at = ? AND delivery = ?"

_FAILED_INDEXES = {
    (False, False): "aqueue_failed_all",
    (True, False): "aqueue_failed_queue",
    (False, True): "aqueue_failed_name",
    (True, True): "aqueue_failed_queue_name",
}
"""The index in whose order the failed jobs stand, filtered by queue and by job."""


def failed_page(*, queue: bool, job: bool) -> str:
    """Return the statement that pages through the failed jobs, filtered as asked, each in its own index."""
    wanted = _wanted(queue=queue, job=job)
    return f"""
        SELECT {_RECORD} FROM aqueue_failed INDEXED BY {_FAILED_INDEXES[queue, job]}
        WHERE {wanted}(failed_at, id) > (:failed_at, :id) ORDER BY failed_at, id LIMIT :limit"""  # noqa: S608 - constants


def failed_count(*, queue: bool, job: bool) -> str:
    """Return the statement that counts the failed jobs, filtered as asked."""
    return f"SELECT count(*) FROM aqueue_failed WHERE {_wanted(queue=queue, job=job)}1"  # noqa: S608 - constants


def failed_past(*, queue: bool) -> str:
    """Return the statement that counts, up to a limit, the failed jobs from before a time."""
    return f"""
        SELECT count(*) FROM (
            SELECT 1 FROM aqueue_failed INDEXED BY {_FAILED_INDEXES[queue, False]}
            WHERE {_wanted(queue=queue, job=False)}failed_at <= :before LIMIT :limit)"""  # noqa: S608 - constants


def failed_seen(*, queue: bool) -> str:
    """Return the statement that counts the failed jobs up to a limit."""
    return f"""
        SELECT count(*) FROM (
            SELECT 1 FROM aqueue_failed INDEXED BY {_FAILED_INDEXES[queue, False]}
            WHERE {_wanted(queue=queue, job=False)}1 LIMIT :limit)"""  # noqa: S608 - constants


def failed_purge(*, queue: bool) -> str:
    """Return the statement that deletes the oldest failed jobs."""
    return f"""
        DELETE FROM aqueue_failed WHERE rowid IN (
            SELECT rowid FROM aqueue_failed INDEXED BY {_FAILED_INDEXES[queue, False]}
            WHERE {_wanted(queue=queue, job=False)}1 ORDER BY failed_at, id LIMIT :limit)"""  # noqa: S608 - constants


def _wanted(*, queue: bool, job: bool) -> str:
    return ("queue = :queue AND " if queue else "") + ("name = :job AND " if job else "")


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether every step has been taken; raises `StoreRefused` if a newer aqueue has taken more."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'aqueue_schema'").fetchone():
        return False
    return _version(connection) == len(STEPS)


def migrate(connection: sqlite3.Connection, now: float) -> None:
    """Take the steps that are missing, inside the caller's transaction; two that do it in turn do it once."""
    connection.execute(VERSIONS)
    for version, step in enumerate(STEPS[_version(connection) :], _version(connection) + 1):
        for statement in step:
            connection.execute(statement)
        connection.execute("INSERT INTO aqueue_schema VALUES (?, ?)", (version, now))


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("SELECT ifnull(max(version), 0) FROM aqueue_schema").fetchone()[0]
    if version > len(STEPS):
        raise StoreRefused(
            f"the database has aqueue's tables in version {version}, this aqueue knows {len(STEPS)}: "
            "upgrade aqueue-jobs"
        )
    return version
