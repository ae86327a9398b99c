"""A simulated process: it runs one coroutine, step by step, until it dies at a given suspension."""

import asyncio
import contextlib
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from aqueue.testing.effects import Life, current_life

_BURIAL = 5.0
_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)


class ProcessLife:
    """Runs `work` in a task of its own, up to its suspension number `dies_at`, and no further.

    What it had started, tasks of its own, dies with it. `bury` lets its cleanup run after all, and then
    `close`, so that nothing is left open; by then nobody looks any more. `is_cancelled` makes it a death by
    cancellation instead, with the cleanup at once.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, None],
        close: Callable[[], Awaitable[None]],
        *,
        dies_at: int,
        is_cancelled: bool,
    ) -> None:
        self.where = "handled, before the ack"
        self.has_returned = False
        self._work = work
        self._close = close
        self._dies_at = dies_at
        self._is_cancelled = is_cancelled
        self._life = Life()
        self._burial = asyncio.Event()
        self._death = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def live_until_death(self) -> None:
        """Return when the process is dead: at its last suspension, or because its work was done."""
        before = asyncio.all_tasks()
        self._task = asyncio.create_task(self._live())
        await self._death.wait()
        if not self._is_cancelled:
            self._life.is_over = True
        await _end(asyncio.all_tasks() - before - {self._task})

    async def bury(self) -> None:
        """Let the cleanup of what died run, for at most five seconds, its effects unrecorded."""
        self._life.is_over = True
        self._burial.set()
        if self._task is None:
            self._work.close()
        else:
            await _end({self._task}, is_asked=True)

    async def _live(self) -> None:
        current_life.set(self._life)
        try:
            self.has_returned = await _Steps(self._work, most=self._dies_at)
            if not self.has_returned:
                self.where = _where(self._work)
                if self._is_cancelled:
                    await _cancelled(self._work)
        finally:
            self._death.set()
        await self._lie_still()
        if not self.has_returned and not self._is_cancelled:
            await _cancelled(self._work)
        with contextlib.suppress(Exception):
            await self._close()

    async def _lie_still(self) -> None:
        """Wait for the burial, whatever timers the handler had set on this task."""
        while not self._burial.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self._burial.wait()


class _Steps:
    """Awaiting it runs a coroutine to its end, or to its suspension number `most`; says whether it ended."""

    def __init__(
        self, work: Coroutine[Any, Any, None], *, most: int | None = None, thrown: BaseException | None = None
    ) -> None:
        self._work = work
        self._most = most
        self._thrown = thrown

    def __await__(self) -> Generator[Any, Any, bool]:
        thrown, suspensions = self._thrown, 0
        while True:
            try:
                waits_for = self._work.send(None) if thrown is None else self._work.throw(thrown)
            except StopIteration:
                return True
            suspensions += 1
            if suspensions == self._most:
                return False  # what it waits for is never given to the task, so nothing resumes it
            thrown = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - cancellation and all belong to the coroutine
                thrown = error


async def _cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Cancel the coroutine where it stands, and run it to its end, whatever it raises there."""
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await _Steps(work, thrown=asyncio.CancelledError())


async def _end(tasks: "set[asyncio.Task[Any]]", *, is_asked: bool = False) -> None:
    if not is_asked:
        for task in tasks:
            task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_BURIAL)


def _where(work: Coroutine[Any, Any, Any]) -> str:
    """Return the innermost line of the user's own code at which a coroutine is suspended."""
    frames = list(_frames(work))
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(_NOT_THE_USERS)]
    frame = (own or frames)[-1]
    name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {name}"


def _frames(awaited: Any) -> Iterator[FrameType]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
