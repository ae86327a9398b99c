"""What a type checker says about notes. Each `type: ignore` proves an error; never imported."""

from typing import assert_type

from aqueue import Queue
from aqueue.notes import Change, Decision, Leave, Note


def one_more(note: Note) -> Decision[int]:
    if note.value is None:
        return Leave(0)
    return Change(value=note.value + b"x", seconds=60, result=len(note.value))


def named(note: Note) -> Leave[str]:
    return Leave(note.token)


async def notes(queue: Queue) -> None:
    assert_type(await queue.notes.read("default", "a:b"), Note)
    assert_type(await queue.notes.write("default", "a:b", b"x", expected=""), bool)
    assert_type(await queue.notes.change("default", "a:b", one_more), int)
    assert_type(await queue.notes.change("default", "a:b", named), str)
    assert_type(await queue.notes.change("default", "a:b", lambda note: Leave(note.now)), float)

    await queue.notes.write("default", "a:b", b"x")  # type: ignore[call-arg]  # what does it replace?
    await queue.notes.change("default", "a:b", len)  # type: ignore[arg-type]  # decides nothing
    Change(value="text", result=None)  # type: ignore[arg-type]  # bytes
