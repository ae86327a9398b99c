"""A process that changes notes: `python -m support.note_process race|count URL DIRECTORY NAME`.

`race` waits for the file `go`, then writes the same notes as everybody else in the same order, and leaves a
file of those it won. `count` adds one to a note, with a job of that number, until it is killed.
"""

import asyncio
import sys
from pathlib import Path

from aqueue import Queue, connect
from aqueue.notes import Change, Decision, Note
from aqueue.port import Message

ROUNDS = 60
TURNS = 40
COUNTER = "test:counter"


def job_number(number: int) -> Message:
    """Return a job that has this number as its id."""
    return Message(f"{number:032x}", "default", b"x" * 50)


def one_more(note: Note) -> Decision[int]:
    """Count one more, with a job of that number."""
    number = int(note.value or b"0") + 1
    return Change(value=b"%d" % number, messages=(job_number(number),), result=number)


async def race(queue: Queue, directory: Path, name: str) -> None:
    """Write every note that nobody else has written yet, then count together."""
    (directory / f"ready-{name}").touch()
    while not (directory / "go").exists():
        await asyncio.sleep(0.001)
    won = [
        number
        for number in range(ROUNDS)
        if await queue.notes.write(
            "races", f"round:{number}", name.encode(), expected="", messages=[_prize(number)]
        )
    ]
    for _ in range(TURNS):
        await queue.notes.change("default", COUNTER, one_more)
    (directory / f"won-{name}").write_text(" ".join(map(str, won)))


def _prize(number: int) -> Message:
    return Message(f"{number:032x}", "races", b"x" * 50)


async def main(mode: str, url: str, directory: str, name: str) -> None:
    """Do as the arguments say."""
    async with connect(url, call_timeout=30) as queue:
        if mode == "race":
            await race(queue, Path(directory), name)
        else:
            (Path(directory) / f"ready-{name}").touch()
            while True:
                await queue.notes.change("default", COUNTER, one_more)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
