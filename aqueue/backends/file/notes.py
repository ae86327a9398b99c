"""The verbs on notes (NOTE-1, NOTE-2)."""

import time
from collections.abc import Sequence

from aqueue.backends.file.commit import Commit
from aqueue.backends.file.content import StoredNote, note_bytes, read_note, read_note_head
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import Draft, names_in
from aqueue.backends.file.jobs import answered, written
from aqueue.backends.file.names import MICRO, micros
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.refusal import refused
from aqueue.backends.file.session import Session
from aqueue.backends.file.steps import Erase, Move, Place, Step
from aqueue.port import Answer, NotDispatched, Note, NoteKey, Noting, Refused, Verdict

_LOOKED_AT_ONCE = 20
_ROUND = 30.0
"""Seconds from one look through all of a queue's notes to the next."""


def read(directory: Directory, keys: Sequence[NoteKey]) -> list[Note]:
    """Return what each note says; no lock is needed to look."""
    now = directory.now()
    return [_read(directory, at, now) for at in keys]


def _read(directory: Directory, at: NoteKey, now: int) -> Note:
    note = read_note(directory.layout.queue(at.queue).note(at.key))
    if note is None or not note.lasts(now):
        return Note(None, "", now / MICRO)
    return Note(note.value, note.token, now / MICRO)


class _Writing:
    """One note to be written: its drafts, and what became of it."""

    def __init__(self, directory: Directory, noting: Noting) -> None:
        self.noting = noting
        self.note = _note_draft(directory, noting)
        self.jobs = [directory.job_draft(message) for message in noting.messages]

    @property
    def drafts(self) -> list[Draft]:
        return [*self.jobs, *([self.note] if self.note is not None else [])]


def _note_draft(directory: Directory, noting: Noting) -> Draft | None:
    if noting.value is None:
        return None
    until = None if noting.seconds is None else directory.now() + micros(noting.seconds)
    data = note_bytes(StoredNote(noting.token, until, noting.value))
    return directory.draft("note", data, queue=noting.at.queue)


def write(commit: Commit, batch: Sequence[Noting]) -> Plan[list[Answer]]:
    """Write each note that still is what its writer read, and push its messages."""
    writings = [_Writing(commit.directory, noting) for noting in batch]
    drafts = [draft for writing in writings for draft in writing.drafts]
    yield from written(commit, drafts)
    answers: list[Answer] = [Verdict.STALE] * len(batch)
    for queue in {noting.at.queue for noting in batch}:
        of_queue = [at for at, noting in enumerate(batch) if noting.at.queue == queue]
        with answered(answers, of_queue), commit.locked([queue]) as sessions:
            settled = _write(sessions[queue], [writings[at] for at in of_queue])
            for at, is_settled in zip(of_queue, settled, strict=True):
                answers[at] = Verdict.SETTLED if is_settled else Verdict.STALE
    for writing, answer in zip(writings, answers, strict=True):
        if answer is Verdict.STALE or isinstance(answer, NotDispatched | Refused):
            for draft in writing.drafts:
                commit.discard(draft.path)
    return answers


def _write(session: Session, writings: Sequence[_Writing]) -> list[bool]:
    """Take all the steps in one, and say whose notes were written; one without jobs is whole by itself."""
    commit, now, seen = session.commit, session.commit.directory.now(), set[str]()
    steps: list[Step] = []
    settled: list[bool] = []
    for writing in writings:
        path = session.place.note(writing.noting.at.key)
        known = read_note(path)
        token = known.token if known is not None and known.lasts(now) else ""
        settled.append(token == writing.noting.expected)
        if settled[-1]:
            steps += _steps(session, writing, path, known, seen)
    if any(isinstance(step, Place) for step in steps):
        commit.perform([session], steps)
    elif steps:
        session.mark()
        _take_each(commit, steps)
    _forget_old(session, now)
    return settled


def _take_each(commit: Commit, steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps):
        try:
            commit.take(step)
        except OSError as error:
            if number:
                raise  # some were written, so nobody can say of which it is certain
            raise refused(error) from error


def _steps(
    session: Session, writing: _Writing, path: str, known: StoredNote | None, seen: set[str]
) -> list[Step]:
    commit = session.commit
    steps: list[Step] = []
    for message, draft in zip(writing.noting.messages, writing.jobs, strict=True):
        if message.id in seen or session.holds(message.id):
            commit.discard(draft.path)
        else:
            seen.add(message.id)
            steps.append(session.arrival_of(message, draft))
    relative = commit.layout.relative(path)
    if writing.note is not None:
        steps.append(Move(commit.layout.relative(writing.note.path), relative))
    elif known is not None:
        steps.append(Erase(relative, known.token))
    return steps


def _forget_old(session: Session, now: int) -> None:
    """Look at a few notes, going round and round, and remove those whose time is over."""
    rounds, name = session.commit.directory.rounds, session.place.name
    began, left = rounds.get(name, (float("-inf"), []))
    if not left:
        if time.monotonic() - began < _ROUND:
            return
        began, left = time.monotonic(), names_in(session.place.notes)
    for _ in range(min(_LOOKED_AT_ONCE, len(left))):
        path = f"{session.place.notes}/{left.pop()}"
        note = read_note_head(path)
        if note is not None and not note.lasts(now):
            session.commit.discard(path)
    rounds[name] = began, left
