"""The verbs on notes: each one transaction, in which the rows are locked before anything is decided."""

from collections.abc import Sequence

from aqueue.backends.mysql import jobs
from aqueue.backends.mysql.connections import Row, Session
from aqueue.backends.mysql.note_statements import NoteStatements, these
from aqueue.backends.mysql.statements import BEGIN, COMMIT, JobStatements
from aqueue.port import Answer, Note, NoteKey, Noting, Verdict


async def read(session: Session, sql: NoteStatements, keys: Sequence[NoteKey]) -> list[Note]:
    """Read the notes in one round trip."""
    clock, found = await session.run(sql.clock, sql.read.format(these=these(keys)))
    now = clock.rows[0][0] / 1e6
    said = {_key(row): row[2:] for row in found.rows}
    return [_note(said.get(at), now) for at in keys]


async def write(
    session: Session,
    sql: NoteStatements,
    job_sql: JobStatements,
    batch: Sequence[Noting],
    forgetting: int,
) -> list[Answer]:
    """Write the notes that still are what their writers read, and push their jobs, in one transaction.

    Up to `forgetting` notes that are over are deleted along with it, of those that nobody has locked.
    """
    keys = [noting.at for noting in batch]
    over = [sql.over.format(limit=forgetting)] if forgetting else []
    _, _, locked, *past = await session.run(BEGIN, *sql.locking(keys), *over)
    tokens = {_key(row): row[2].decode() for row in locked.rows}
    written = [noting for noting in batch if tokens[noting.at] == noting.expected]
    messages = [message for noting in written for message in noting.messages]
    forgotten = {_key(row) for found in past for row in found.rows}.difference(keys)
    await session.run(
        *([sql.forget.format(these=these(sorted(forgotten)))] if forgotten else []),
        *map(sql.writing, written),
        *([jobs.push(job_sql, messages)] if messages else []),
        COMMIT,
    )
    kept = {noting.at for noting in written}
    return [Verdict.SETTLED if noting.at in kept else Verdict.STALE for noting in batch]


def _key(row: Row) -> NoteKey:
    return NoteKey(row[0].decode(), row[1].decode())


def _note(said: Row | None, now: float) -> Note:
    return Note(None, "", now) if said is None else Note(said[0], said[1].decode(), now)
