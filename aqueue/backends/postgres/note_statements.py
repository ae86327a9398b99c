"""The statements on notes, as data. Each does for a whole batch what has to be done in one step (NOTE-2).

A write is one of two: of notes that are expected to be absent, which inserts, and of notes with a token,
which updates. Either takes the locks of its notes in the order of its arrays, which the caller sorts, before
it stores a job, so that no two of them can deadlock; one that did both could. A removal leaves a note whose
time is over, so that it takes the same lock. What is over is deleted along with a write now and then.
"""

from dataclasses import dataclass

from aqueue.backends.postgres.schema import Names
from aqueue.backends.postgres.statements import NEWS, NEWS_OF

_READ = """
SELECT n.value, n.token, {now}
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS g (queue, key, place)
LEFT JOIN {notes} n ON n.queue = g.queue AND n.key = g.key AND (n.until IS NULL OR n.until > {now})
ORDER BY place
"""

_WRITE = """
WITH wanted AS MATERIALIZED (
    SELECT queue, key, expected, token, substring($6::bytea FROM start::int FOR length::int) AS value,
        CASE lasts WHEN '' THEN NULL WHEN 'over' THEN '-infinity'::float8 ELSE {now} + lasts::float8 END
            AS until,
        place
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $7::text[], $8::text[], $9::text[])
        WITH ORDINALITY AS g (queue, key, expected, token, start, length, lasts, place)
),
{written},
stored AS (
    INSERT INTO {jobs} (queue, id, payload, state, ready_at)
    SELECT w.queue, id, substring($12::bytea FROM start::int FOR length::int),
        CASE WHEN delay::float8 > 0 THEN 1 ELSE 0 END, {now} + delay::float8
    FROM unnest($10::text[], $11::text[], $13::text[], $14::text[], $15::text[])
        WITH ORDINALITY AS g (note, id, start, length, delay, place)
    JOIN written w ON w.place = g.note::bigint
    ORDER BY g.place
    ON CONFLICT (queue, id) DO NOTHING
    RETURNING queue, CASE state WHEN 0 THEN 0 ELSE ready_at - {now} END AS due
),
news AS ({news} FROM stored {news_of}){forgotten}
SELECT place, (SELECT count(*) FROM news) FROM written
"""

_INSERTED = """
inserted AS (
    INSERT INTO {notes} AS n (queue, key, value, token, until)
    SELECT queue, key, value, token, until FROM wanted ORDER BY place
    ON CONFLICT (queue, key) DO UPDATE
        SET value = excluded.value, token = excluded.token, until = excluded.until
    WHERE n.until <= {now}
    RETURNING n.queue, n.key
),
written AS MATERIALIZED (
    SELECT place, w.queue FROM wanted w JOIN inserted i ON i.queue = w.queue AND i.key = w.key
)
"""

_UPDATED = """
locked AS MATERIALIZED (
    SELECT w.place FROM wanted w JOIN {notes} n ON n.queue = w.queue AND n.key = w.key
    ORDER BY w.place FOR UPDATE OF n
),
written AS (
    UPDATE {notes} n SET value = w.value, token = w.token, until = w.until
    FROM wanted w JOIN locked USING (place)
    WHERE n.queue = w.queue AND n.key = w.key AND n.token = w.expected
        AND (n.until IS NULL OR n.until > {now})
    RETURNING w.place, n.queue
)
"""

# Never one that this statement writes: it must not touch a row twice.
_FORGOTTEN = """,
forgotten AS (
    DELETE FROM {notes} WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM {notes} WHERE until <= {now} AND (queue, key) NOT IN (SELECT queue, key FROM wanted)
        ORDER BY until LIMIT $16 FOR UPDATE SKIP LOCKED))
)
"""
_NOTHING_FORGOTTEN = """,
forgotten AS (SELECT $16::bigint)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStatements:
    """The statements on notes, for one set of names.

    `writes` by whether notes are expected there already, and whether those that are over are deleted too.
    """

    read: str
    writes: dict[tuple[bool, bool], str]


def note_statements(names: Names) -> NoteStatements:
    """Return the statements with the names in their places."""
    return NoteStatements(
        read=names.fill(_READ),
        writes={
            (is_there, forgets): names.fill(
                _WRITE,
                written=_UPDATED if is_there else _INSERTED,
                forgotten=_FORGOTTEN if forgets else _NOTHING_FORGOTTEN,
                news=NEWS,
                news_of=NEWS_OF,
            )
            for is_there in (False, True)
            for forgets in (False, True)
        },
    )
