"""The verbs on notes as functions of a SQLite connection, inside the caller's transaction."""

import sqlite3
from collections.abc import Sequence

from aqueue.backends import _sqlite_jobs as jobs
from aqueue.port import Answer, Note, NoteKey, Noting, Verdict

_FORGOTTEN_AT_ONCE = 20

_READ = """
    SELECT CAST(value AS BLOB), token FROM aqueue_notes
    WHERE queue = ? AND key = ? AND (until IS NULL OR until > ?)"""

_WRITE = """
    INSERT INTO aqueue_notes (queue, key, value, token, until) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (queue, key) DO UPDATE SET
        value = excluded.value, token = excluded.token, until = excluded.until"""

_REMOVE = "DELETE FROM aqueue_notes WHERE queue = ? AND key = ?"

_FORGET = """
    DELETE FROM aqueue_notes WHERE rowid IN (
        SELECT rowid FROM aqueue_notes INDEXED BY aqueue_notes_end WHERE until <= ? ORDER BY until LIMIT ?)"""


def read(connection: sqlite3.Connection, keys: Sequence[NoteKey], now: float) -> list[Note]:
    """Return what each note says at this time."""
    return [_note(connection, at, now) for at in keys]


def write(connection: sqlite3.Connection, batch: Sequence[Noting], now: float) -> list[Answer]:
    """Write each note that still is what its writer read, and push its messages (NOTE-1, NOTE-2)."""
    answers: list[Answer] = []
    for noting in batch:
        is_stale = _note(connection, noting.at, now).token != noting.expected
        answers.append(Verdict.STALE if is_stale else Verdict.SETTLED)
        if is_stale:
            continue
        if noting.value is None:
            connection.execute(_REMOVE, noting.at)
        else:
            until = None if noting.seconds is None else now + noting.seconds
            connection.execute(_WRITE, (*noting.at, noting.value, noting.token, until))
        jobs.push(connection, noting.messages, now)
    connection.execute(_FORGET, (now, _FORGOTTEN_AT_ONCE + 2 * len(batch)))
    return answers


def _note(connection: sqlite3.Connection, at: NoteKey, now: float) -> Note:
    row = connection.execute(_READ, (*at, now)).fetchone()
    return Note(None, "", now) if row is None else Note(row[0], row[1], now)
