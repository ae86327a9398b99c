"""What the testing kit gives back, as a type checker sees it."""

from collections.abc import Callable
from typing import Any, assert_type

from aqueue import job
from aqueue.testing import (
    CrashReport,
    Drained,
    Effects,
    MemoryQueue,
    Pushed,
    assert_pushed,
    crash_at_every_await,
    drain,
    in_virtual_time,
    pushed,
    run_in_virtual_time,
)


@job
class Note:
    text: str

    async def handle(self) -> None: ...


@job
async def note(text: str) -> None: ...


@in_virtual_time
async def waits(seconds: float) -> int:
    return 1


async def one() -> str:
    return "one"


async def the_kit() -> None:
    queue = MemoryQueue()
    assert_type(await pushed(queue, Note), list[Pushed[Note]])
    assert_type(await pushed(queue, note), list[Pushed[Any]])
    assert_type((await pushed(queue, Note))[0].job.text, str)
    assert_type(await assert_pushed(queue, Note, {"text": "x"}, delay=1), list[Pushed[Any]])
    assert_type(await drain(queue, [Note]), Drained)
    assert_type(await crash_at_every_await(Note("x"), [Note], effects=Effects()), CrashReport)
    await crash_at_every_await(Note("x"), [Note], effects=lambda: ["row"])


assert_type(waits(2.0), int)
takes_seconds: Callable[[float], int] = waits
assert_type(run_in_virtual_time(one()), str)
