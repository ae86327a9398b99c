"""The statements on failed jobs, as data."""

from dataclasses import dataclass

from aqueue.backends.postgres.schema import Names

_NOW = "date_part('epoch', clock_timestamp())"

_RECORD = """id, name, queue, payload, attempts, lost, reason, error_type, error, traceback, pushed_at, failed_at,
    worker, delivery"""

_GIVEN = """unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::int[], $6::int[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::float8[], $12::text[], $13::text[]) WITH ORDINALITY AS r (
        id, name, queue, payload, attempts, lost, reason, error_type, error, traceback, pushed_at, worker,
        delivery, place)"""

# A position in the list is a time and an id. The same id may fail on two queues at once, so each record of a
# batch gets a time of its own, and one that would not be later than the id's last is moved past it.
_KEEP = f"""
    INSERT INTO {{failed}} ({_RECORD})
    SELECT r.id, name, r.queue, payload, attempts, lost, reason, error_type, error, traceback, pushed_at,
        greatest({_NOW} + r.place * 1e-6,
            (SELECT max(f.failed_at) + 1e-6 FROM {{failed}} f WHERE f.id = r.id AND f.queue <> r.queue)),
        worker, delivery
    FROM RECORDS
    ON CONFLICT (id, queue) DO UPDATE SET
        name = excluded.name, payload = excluded.payload, attempts = excluded.attempts, lost = excluded.lost,
        reason = excluded.reason, error_type = excluded.error_type, error = excluded.error,
        traceback = excluded.traceback, pushed_at = excluded.pushed_at, failed_at = excluded.failed_at,
        worker = excluded.worker, delivery = excluded.delivery
    WHERE {{failed}}.delivery <> excluded.delivery
"""

_FAIL = f"""
WITH given AS MATERIALIZED (SELECT * FROM {_GIVEN}),
gone AS (
    DELETE FROM {{jobs}} j
    USING unnest($14::text[], $15::text[], $16::bigint[]) WITH ORDINALITY AS g (queue, id, token, place)
    WHERE j.queue = g.queue AND j.id = g.id AND j.token = g.token
    RETURNING g.place
), kept AS ({_KEEP.replace("RECORDS", "given r JOIN gone ON gone.place = r.place ORDER BY r.place")})
SELECT place FROM gone
"""

_GET = f"SELECT {_RECORD} FROM {{failed}} WHERE id = $1 ORDER BY failed_at LIMIT 1"

_GONE = "DELETE FROM {failed} WHERE id = $1 AND queue = $2 AND failed_at = $3 AND delivery = $4 RETURNING 1"

_RETRY = f"""
WITH gone AS ({_GONE}), put_back AS (
    INSERT INTO {{jobs}} (queue, id, payload, state, ready_at) SELECT $5, $6, $7, 0, {_NOW} FROM gone
    ON CONFLICT (queue, id) DO NOTHING
), news AS (SELECT pg_notify($8, $5) FROM gone)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM news)
"""

_PURGE = f"""
WITH surplus AS (SELECT greatest(
    (SELECT count(*) FROM (
        SELECT 1 FROM {{failed}} WHERE failed_at <= {_NOW} - $1::float8 ORDER BY failed_at LIMIT $3) past),
    (SELECT count(*) FROM (SELECT 1 FROM {{failed}} LIMIT $2::bigint + $3) seen) - $2) AS count)
DELETE FROM {{failed}} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM {{failed}} ORDER BY failed_at, id
    LIMIT (SELECT greatest(0, least(count, $3)) FROM surplus) FOR UPDATE SKIP LOCKED))
RETURNING 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStatements:
    """The statements on failed jobs, for one set of names; `pages` and `counts` by which filters are given."""

    fail: str
    keep: str
    pages: dict[tuple[bool, bool], str]
    counts: dict[tuple[bool, bool], str]
    get: str
    retry: str
    discard: str
    purge: str


def failed_statements(names: Names) -> FailedStatements:
    """Return the statements with the names in their places."""
    filters = [(queue, job) for queue in (False, True) for job in (False, True)]
    return FailedStatements(
        fail=names.fill(_FAIL),
        keep=names.fill(_KEEP.replace("RECORDS", f"{_GIVEN} ORDER BY place")),
        pages={wanted: names.fill(_page(*wanted)) for wanted in filters},
        counts={wanted: names.fill(_count(*wanted)) for wanted in filters},
        get=names.fill(_GET),
        retry=names.fill(_RETRY),
        discard=names.fill(_GONE),
        purge=names.fill(_PURGE),
    )


def _page(queue: bool, job: bool) -> str:  # noqa: FBT001 - a key of the table above
    """Each filter reads its own index from the position on."""
    return f"""
        SELECT {_RECORD} FROM {{failed}}
        WHERE {_wanted(queue, job)} AND (failed_at, id) > ($3::float8, $4::text)
        ORDER BY failed_at, id LIMIT $5"""


def _count(queue: bool, job: bool) -> str:  # noqa: FBT001 - a key of the table above
    return f"SELECT count(*) FROM {{failed}} WHERE {_wanted(queue, job)}"


def _wanted(queue: bool, job: bool) -> str:  # noqa: FBT001 - a key of the table above
    """Every parameter is mentioned, whether it filters or not, so that all forms take the same ones."""
    by_queue = "queue = $1" if queue else "$1::text IS NULL"
    by_job = "name = $2" if job else "$2::text IS NULL"
    return f"{by_queue} AND {by_job}"
