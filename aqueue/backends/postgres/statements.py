"""The statements on jobs, as data.

Batches travel as arrays, one statement each, which commits by itself. The arrays are of text, whatever they
hold, and payloads come as one string of bytes: of these the driver knows how to encode them, while for other
arrays it would first ask the server, on each new connection, with a query that may take seconds to compile.

Rows are locked for a claim with SKIP LOCKED, so no claim ever waits, and settlements lock theirs in the order
of their arrays, which the caller sorts, so that no two of them can deadlock.
"""

from dataclasses import dataclass

from aqueue.backends.postgres.schema import Names

# Probes the queues in list order and stops at the limit: a nested loop, each queue in the order of its index,
# ahead of the mark first and, where asked, behind it.
_FOUND = """
    SELECT w.place, j.at FROM wanted w CROSS JOIN LATERAL (
        SELECT at FROM (
            SELECT ctid AS at FROM {jobs}
            WHERE state = 0 AND queue = w.queue AND seq > w.mark
            ORDER BY seq LIMIT $LIMIT FOR UPDATE SKIP LOCKED
        ) ahead
        UNION ALL
        SELECT at FROM (
            SELECT ctid AS at FROM {jobs}
            WHERE w.behind AND state = 0 AND queue = w.queue AND seq <= w.mark
            ORDER BY seq LIMIT $LIMIT FOR UPDATE SKIP LOCKED
        ) passed
    ) j
    LIMIT $LIMIT
"""

# A claim reserves what is ready, and that is all: for a queue that is busy, between two sweeps.
_CLAIM = """
WITH wanted AS MATERIALIZED (
    SELECT queue, mark::bigint, false AS behind, place
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (queue, mark, place)
),
found AS MATERIALIZED ({found})
UPDATE {jobs} j SET state = 2, token = $4, lease_until = {now} + $5
FROM found WHERE j.ctid = found.at
RETURNING found.place, seq, id, payload, attempts + 1, lost, greatest(0, {now} - ready_at)
"""

# A sweep reads its clock once, makes due jobs ready, takes lost ones back, and reserves. All parts see the
# same snapshot: what became ready in this sweep is handed out by the next, which its caller makes at once.
_SWEEP = """
WITH clock AS MATERIALIZED (SELECT {now} AS now),
wanted AS MATERIALIZED (
    SELECT queue, mark::bigint, since::float8, behind::bool, place
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
        WITH ORDINALITY AS w (queue, mark, since, behind, place)
),
due AS MATERIALIZED (
    SELECT j.at FROM wanted w CROSS JOIN LATERAL (
        SELECT ctid AS at FROM {jobs}
        WHERE state = 1 AND queue = w.queue AND ready_at > w.since AND ready_at <= (SELECT now FROM clock)
        ORDER BY ready_at, seq LIMIT 100 FOR UPDATE SKIP LOCKED
    ) j
),
promoted AS (
    UPDATE {jobs} SET state = 0, seq = nextval('{places}') FROM due WHERE {jobs}.ctid = due.at RETURNING 1
),
expired AS MATERIALIZED (
    SELECT j.at FROM wanted w CROSS JOIN LATERAL (
        SELECT ctid AS at FROM {jobs}
        WHERE state = 2 AND queue = w.queue
            AND lease_until > w.since AND lease_until <= (SELECT now FROM clock)
        ORDER BY lease_until LIMIT 100 FOR UPDATE SKIP LOCKED
    ) j
),
taken_back AS (
    UPDATE {jobs} SET state = 0, seq = nextval('{places}'), ready_at = lease_until,
        attempts = attempts + 1, lost = lost + 1, token = NULL, lease_until = NULL
    FROM expired WHERE {jobs}.ctid = expired.at RETURNING 1
),
found AS MATERIALIZED ({found}),
taken AS (
    UPDATE {jobs} SET state = 2, token = $6, lease_until = (SELECT now FROM clock) + $7
    FROM found WHERE {jobs}.ctid = found.at
    RETURNING found.place, seq, id, payload, attempts, lost, ready_at
)
SELECT place, seq, id, payload, attempts + 1, lost, greatest(0, now - ready_at), now, {now} - now,
    (SELECT count(*) FROM promoted) + (SELECT count(*) FROM taken_back),
    (SELECT min(j.ready_at) - (SELECT now FROM clock) FROM wanted w CROSS JOIN LATERAL (
        SELECT ready_at FROM {jobs}
        WHERE state = 1 AND queue = w.queue AND ready_at > (SELECT now FROM clock)
        ORDER BY ready_at LIMIT 1) j)
FROM clock LEFT JOIN taken ON true ORDER BY place, seq
"""

# A due time within the longest pause is part of the news, so that whoever waits wakes for it.
NEWS = "SELECT pg_notify($1, queue || CASE WHEN min(due) > 0 THEN ' ' || min(due) ELSE '' END)"
NEWS_OF = "GROUP BY queue HAVING min(due) < 1"

_PUSH = """
WITH stored AS (
    INSERT INTO {jobs} (queue, id, payload, state, ready_at)
    SELECT queue, id, substring($4::bytea FROM start::int FOR length::int),
        CASE WHEN delay::float8 > 0 THEN 1 ELSE 0 END, {now} + delay::float8
    FROM unnest($2::text[], $3::text[], $5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS g (queue, id, start, length, delay, place)
    ORDER BY place
    ON CONFLICT (queue, id) DO NOTHING
    RETURNING queue, CASE state WHEN 0 THEN 0 ELSE ready_at - {now} END AS due
)
{news} FROM stored {news_of}
"""

_ACK = """
DELETE FROM {jobs} j
USING unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS g (queue, id, token, place)
WHERE j.queue = g.queue AND j.id = g.id AND j.token = g.token::bigint
RETURNING g.place
"""

_EXTEND = """
UPDATE {jobs} j SET lease_until = {now} + $4
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS g (queue, id, token, place)
WHERE j.queue = g.queue AND j.id = g.id AND j.token = g.token::bigint
RETURNING g.place
"""

_RELEASE = """
WITH put_back AS (
    UPDATE {jobs} j SET
        state = CASE WHEN g.delay > 0 THEN 1 ELSE 0 END,
        seq = CASE WHEN g.counted OR g.delay > 0 THEN nextval('{places}') ELSE j.seq END,
        ready_at = CASE WHEN g.counted OR g.delay > 0 THEN {now} + g.delay ELSE j.ready_at END,
        attempts = attempts + CASE WHEN g.counted THEN 1 ELSE 0 END,
        lost = CASE WHEN g.counted THEN 0 ELSE lost END,
        token = NULL, lease_until = NULL
    FROM (
        SELECT queue, id, token::bigint, delay::float8, counted::bool, place
        FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
            WITH ORDINALITY AS h (queue, id, token, delay, counted, place)
    ) g
    WHERE j.queue = g.queue AND j.id = g.id AND j.token = g.token
    RETURNING g.place, j.queue, j.seq, g.delay AS due
), news AS ({news} FROM put_back {news_of})
SELECT place, seq, (SELECT count(*) FROM news) FROM put_back
"""

_GIVE_BACK = """
UPDATE {jobs} SET state = 0, token = NULL, lease_until = NULL
WHERE state = 2 AND queue = ANY($1::text[]) AND token = $2
RETURNING queue, seq
"""

_LOOK = """
WITH clock AS MATERIALIZED (SELECT {now} AS now), wanted AS MATERIALIZED (SELECT unnest($1::text[]) AS queue)
SELECT EXISTS (
        SELECT 1 FROM wanted w CROSS JOIN LATERAL (
            SELECT 1 FROM {jobs} WHERE state = 0 AND queue = w.queue LIMIT 1) j),
    (SELECT min(j.ready_at) FROM wanted w CROSS JOIN LATERAL (
        SELECT ready_at FROM {jobs} WHERE state = 1 AND queue = w.queue ORDER BY ready_at LIMIT 1) j) - now,
    (SELECT min(j.lease_until) FROM wanted w CROSS JOIN LATERAL (
        SELECT lease_until FROM {jobs}
        WHERE state = 2 AND queue = w.queue ORDER BY lease_until LIMIT 1) j) - now
FROM clock
"""

_STATS = """
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT (SELECT count(*) FROM {jobs} WHERE state = 0 AND queue = $1),
    (SELECT count(*) FROM {jobs} WHERE state = 1 AND queue = $1),
    (SELECT count(*) FROM {jobs} WHERE state = 1 AND queue = $1 AND ready_at <= (SELECT now FROM clock)),
    (SELECT count(*) FROM {jobs} WHERE state = 2 AND queue = $1),
    (SELECT count(*) FROM {jobs} WHERE state = 2 AND queue = $1 AND lease_until <= (SELECT now FROM clock)),
    (SELECT count(*) FROM {failed} WHERE queue = $1),
    now - least(
        (SELECT ready_at FROM {jobs} WHERE state = 0 AND queue = $1 ORDER BY seq LIMIT 1),
        (SELECT ready_at FROM {jobs} WHERE state = 1 AND queue = $1 AND ready_at <= (SELECT now FROM clock)
            ORDER BY ready_at LIMIT 1),
        (SELECT lease_until FROM {jobs}
            WHERE state = 2 AND queue = $1 AND lease_until <= (SELECT now FROM clock)
            ORDER BY lease_until LIMIT 1))
FROM clock
"""

_CLEAR = """
WITH ready AS (DELETE FROM {jobs} WHERE state = 0 AND queue = $1 RETURNING 1),
delayed AS (DELETE FROM {jobs} WHERE state = 1 AND queue = $1 RETURNING 1)
SELECT (SELECT count(*) FROM ready) + (SELECT count(*) FROM delayed)
"""

PLACE = "SELECT current_database() || ' ' || pg_postmaster_start_time()"
"""What tells one server's database from another's, at least until a restart; anybody may ask it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatements:
    """The statements on jobs, for one set of names."""

    push: str
    claim: str
    sweep: str
    ack: str
    extend: str
    release: str
    give_back: str
    look: str
    stats: str
    clear: str


def job_statements(names: Names) -> JobStatements:
    """Return the statements with the names in their places."""
    news = {"news": NEWS, "news_of": NEWS_OF}
    return JobStatements(
        push=names.fill(_PUSH, **news),
        claim=names.fill(_CLAIM, found=_FOUND.replace("$LIMIT", "$3")),
        sweep=names.fill(_SWEEP, found=_FOUND.replace("$LIMIT", "$5")),
        ack=names.fill(_ACK),
        extend=names.fill(_EXTEND),
        release=names.fill(_RELEASE, **news),
        give_back=names.fill(_GIVE_BACK),
        look=names.fill(_LOOK),
        stats=names.fill(_STATS),
        clear=names.fill(_CLEAR),
    )
