"""What the checks on notes share: a key, jobs to go with it, and what a store without notes must say."""

import os
from typing import Any

from aqueue.errors import NotesMissing
from aqueue.notes import Change, Decide, Decision, Note
from aqueue.port import KeepsNotes, Message, NoteKey, Noting
from aqueue.queue import Queue
from aqueue.testing.contract.harness import DEFAULT, Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.samples import envelope, job_id

KEY = "check:note"


async def refuses_notes(harness: Harness, queue: Queue) -> bool:
    """Hold a store that keeps no notes to saying so, whatever is asked of them; False for one that does."""
    if harness.keeps_notes:
        return False
    with raises(NotesMissing, "reading a note") as caught:
        await queue.notes.read(DEFAULT, KEY)
    assert harness.capabilities.system in str(caught.error), "the error doesn't name the store"
    with raises(NotesMissing, "writing a note"):
        await queue.notes.write(DEFAULT, KEY, b"x", expected="")
    with raises(NotesMissing, "changing a note"):
        await queue.notes.change(DEFAULT, KEY, one_more)
    return True


async def note_keeper(harness: Harness) -> KeepsNotes:
    """Return an open backend that keeps notes."""
    backend = await harness.backend()
    assert isinstance(backend, KeepsNotes)
    return backend


async def says(queue: Queue, key: str = KEY, *, name: str = DEFAULT) -> bytes | None:
    """Return what the note says, None where there is none."""
    return (await queue.notes.read(name, key)).value


async def is_absent(queue: Queue) -> bool:
    """Say whether there is no note."""
    note = await queue.notes.read(DEFAULT, KEY)
    return note.value is None and note.token == ""


def one_more(note: Note) -> Decision[int]:
    """Decide to count one more, and answer with the number."""
    number = int(note.value or b"0") + 1
    return Change(value=b"%d" % number, result=number)


def always(decision: Decision[None]) -> Decide[None]:
    """Return what decides so whatever the note says."""
    return lambda _: decision


def message(number: int, *, delay: float = 0.0, name: str = DEFAULT) -> Message:
    """Return a job to push with a note."""
    id = job_id(number)
    return Message(id, name, envelope(id), delay)


def noting(key: str, value: bytes | None, *, expected: str = "", **options: Any) -> Noting:
    """Return a write for the port, with a token of its own."""
    token = os.urandom(16).hex()
    return Noting(at=NoteKey(DEFAULT, key), value=value, token=token, expected=expected, **options)
