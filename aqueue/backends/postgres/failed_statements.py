"""The statements on failed jobs, as data."""

from dataclasses import dataclass

from aqueue.backends.postgres.schema import Names

_RECORD = """
    id, name, queue, payload, attempts, lost, reason, error_type, error, traceback, pushed_at, failed_at,
    worker, delivery"""

_GIVEN = """unnest($1::text[], $2::text[], $3::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
        WITH ORDINALITY AS r (id, name, queue, start, length, attempts, lost, reason, error_type, error,
        traceback, pushed_at, worker, delivery, place)"""

# A position in the list is a time and an id. The same id may fail on two queues at once, so each record of a
# batch gets a time of its own, and one that would not be later than the id's last is moved past it.
_KEEP = """
    INSERT INTO {failed} ({record})
    SELECT r.id, name, r.queue, substring($4::bytea FROM start::int FOR length::int), attempts::int,
        lost::int, reason, error_type, error, traceback, pushed_at::float8,
        greatest({now} + r.place * 1e-6,
            (SELECT max(f.failed_at) + 1e-6 FROM {failed} f WHERE f.id = r.id AND f.queue <> r.queue)),
        worker, delivery
    FROM {records}
    ON CONFLICT (id, queue) DO UPDATE SET
        name = excluded.name, payload = excluded.payload, attempts = excluded.attempts, lost = excluded.lost,
        reason = excluded.reason, error_type = excluded.error_type, error = excluded.error,
        traceback = excluded.traceback, pushed_at = excluded.pushed_at, failed_at = excluded.failed_at,
        worker = excluded.worker, delivery = excluded.delivery
    WHERE {failed}.delivery <> excluded.delivery
"""

_FAIL = """
WITH given AS MATERIALIZED (SELECT * FROM {given}),
gone AS (
    DELETE FROM {jobs} j
    USING unnest($16::text[], $17::text[], $18::text[]) WITH ORDINALITY AS g (queue, id, token, place)
    WHERE j.queue = g.queue AND j.id = g.id AND j.token = g.token::bigint
    RETURNING g.place
), kept AS ({keep})
SELECT place FROM gone
"""

_PAGE = """
    SELECT {record} FROM {failed}
    WHERE {by_queue} AND {by_job} AND (failed_at, id) > ($3::float8, $4::text)
    ORDER BY failed_at, id LIMIT $5
"""

_COUNT = "SELECT count(*) FROM {failed} WHERE {by_queue} AND {by_job}"

# Every parameter is mentioned, whether it filters or not, so that all forms take the same ones.
_BY_QUEUE = {True: "queue = $1", False: "$1::text IS NULL"}
_BY_JOB = {True: "name = $2", False: "$2::text IS NULL"}

_GET = "SELECT {record} FROM {failed} WHERE id = $1 ORDER BY failed_at LIMIT 1"

_GONE = "DELETE FROM {failed} WHERE id = $1 AND queue = $2 AND failed_at = $3 AND delivery = $4 RETURNING 1"

_RETRY = """
WITH gone AS ({gone}), put_back AS (
    INSERT INTO {jobs} (queue, id, payload, state, ready_at) SELECT $5, $6, $7, 0, {now} FROM gone
    ON CONFLICT (queue, id) DO NOTHING
), news AS (SELECT pg_notify($8, $5) FROM gone)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM news)
"""

# The time is asked for in a subquery, since an index is not searched by a clock that goes on.
# A limit of NULL would be none at all.
_PURGE = """
WITH surplus AS (SELECT greatest(
    (SELECT count(*) FROM (
        SELECT 1 FROM {failed} WHERE {of_queue} AND failed_at <= (SELECT {now} - $1::float8)
        ORDER BY failed_at LIMIT CASE WHEN $1::float8 IS NULL THEN 0 ELSE $3::bigint END) past),
    (SELECT count(*) FROM (
        SELECT 1 FROM {failed} WHERE {of_queue} LIMIT coalesce($2::bigint + $3, 0)) seen) - $2) AS count)
DELETE FROM {failed} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM {failed} WHERE {of_queue} ORDER BY failed_at, id
    LIMIT (SELECT greatest(0, least(count, $3)) FROM surplus) FOR UPDATE SKIP LOCKED))
RETURNING 1
"""
_OF_QUEUE = {True: "queue = $4", False: "$4::text IS NULL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStatements:
    """The statements on failed jobs, for one set of names; some by what filters: queue, or queue and job."""

    fail: str
    keep: str
    pages: dict[tuple[bool, bool], str]
    counts: dict[tuple[bool, bool], str]
    get: str
    retry: str
    discard: str
    purges: dict[bool, str]


def failed_statements(names: Names) -> FailedStatements:
    """Return the statements with the names in their places."""
    keep = _KEEP.replace("{record}", _RECORD)
    failing = keep.replace("{records}", "given r JOIN gone ON gone.place = r.place ORDER BY r.place")
    filters = {
        (queue, job): {"record": _RECORD, "by_queue": _BY_QUEUE[queue], "by_job": _BY_JOB[job]}
        for queue in (False, True)
        for job in (False, True)
    }
    return FailedStatements(
        fail=names.fill(_FAIL, given=_GIVEN, keep=failing),
        keep=names.fill(keep, records=f"{_GIVEN} ORDER BY place"),
        pages={wanted: names.fill(_PAGE, **parts) for wanted, parts in filters.items()},
        counts={wanted: names.fill(_COUNT, **parts) for wanted, parts in filters.items()},
        get=names.fill(_GET, record=_RECORD),
        retry=names.fill(_RETRY, gone=_GONE),
        discard=names.fill(_GONE),
        purges={queue: names.fill(_PURGE, of_queue=of_queue) for queue, of_queue in _OF_QUEUE.items()},
    )
