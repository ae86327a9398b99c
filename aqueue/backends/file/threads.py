"""Threads that do the work on files, so that the event loop never waits for a disk.

What waits when a thread is free is handed to it at once. An answer goes back to the loop it was asked from.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple, Protocol

from aqueue.port import NotDispatched

_LAST_MOMENT = 0.5
_HUNG = 2.0


class Watch(Protocol):
    """Something to look at between the pieces of work."""

    def pause(self) -> float | None:
        """Return how many seconds the thread may sleep before it looks; None if nobody waits for that."""

    def look(self) -> None:
        """Look, if it is time to."""


class Work:
    """Something to do, and the future of its answer. `withdrawn` says that nobody waits for it any more."""

    __slots__ = ("act", "answer", "withdrawn")

    def __init__(self, act: object, answer: "asyncio.Future[object]") -> None:
        self.act = act
        self.answer = answer
        self.withdrawn = False


class Outcome(NamedTuple):
    """What became of one piece of work."""

    work: Work
    result: object
    error: BaseException | None = None


class FileThread:
    """A thread with an inbox. It belongs to the event loop that makes it, and starts at once.

    It is a daemon: a store that nobody closed never keeps the interpreter from ending.
    """

    def __init__(
        self,
        name: str,
        serve: "Callable[[Sequence[Work], Callable[[Sequence[Outcome]], None]], None]",
        *,
        watch: Watch | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._serve = serve
        self._watch = watch
        self._close = close
        self._accepts = True
        self._stopping = False
        self._last_moment = float("inf")
        Thread(target=self._run, name=name, daemon=True).start()

    async def do(self, act: object, *, undo: Callable[[object], object] | None = None) -> object:
        """Hand something over, and return what it comes to.

        Cancelling before the thread took it withdraws it; afterwards `undo` is called with the result that
        nobody took.
        """
        work = self._work(act)
        try:
            return await asyncio.shield(work.answer)
        except asyncio.CancelledError:
            work.withdrawn = True
            work.answer.add_done_callback(partial(_abandoned, undo))
            raise

    def post(self, act: object) -> "asyncio.Future[object]":
        """Hand over something that nobody need wait for."""
        work = self._work(act)
        work.answer.add_done_callback(_retrieve)
        return work.answer

    def nudge(self) -> None:
        """Make a sleeping thread look at what it should watch."""
        self._inbox.put(None)

    def is_hopeless(self) -> bool:
        """Whether waiting any longer for a lock would keep the store from closing."""
        return time.monotonic() >= self._last_moment

    async def stop(self, last: object) -> None:
        """Finish what waits, do the last, and end; a thread that hangs in the disk is left behind."""
        self._last_moment = time.monotonic() + _LAST_MOMENT
        try:
            await asyncio.wait({self.post(last)}, timeout=_HUNG)
        finally:
            self._accepts = False
            self._stopping = True
            self.nudge()
        await asyncio.wait({self._ended}, timeout=_HUNG)

    def _work(self, act: object) -> Work:
        if not self._accepts:
            raise NotDispatched("the directory is closed")
        work = Work(act, self._loop.create_future())
        self._inbox.put(work)
        return work

    def _run(self) -> None:
        try:
            while (works := self._take_in()) or not self._stopping:
                if works:
                    self._try_to_serve(works)
                if self._watch is not None:
                    self._watch.look()
        finally:
            self._close()
            self._tell(partial(_end, self._ended))

    def _try_to_serve(self, works: Sequence[Work]) -> None:
        """Let nobody wait for ever for an answer, whatever goes wrong."""
        try:
            self._serve(works, self._deliver)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, not to this thread
            self._deliver([Outcome(work, None, error) for work in works])

    def _take_in(self) -> list[Work]:
        """Take in everything that waits; with nothing there, wait for it, or until it is time to look."""
        works: list[Work] = []
        pause = 0 if self._stopping else self._watch.pause() if self._watch is not None else None
        try:
            work = self._inbox.get(timeout=pause) if pause != 0 else self._inbox.get_nowait()
            while True:
                if work is not None:
                    works.append(work)
                work = self._inbox.get_nowait()
        except Empty:
            return works

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            self._tell(partial(_hand_over, outcomes))

    def _tell(self, news: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(news)
        except RuntimeError:  # the loop is closed, and with it everyone who could ask or be told
            self._stopping = True


def _hand_over(outcomes: Sequence[Outcome]) -> None:
    for work, result, error in outcomes:
        if work.answer.done():
            continue
        if error is not None:
            work.answer.set_exception(error)
        else:
            work.answer.set_result(result)


def _abandoned(undo: "Callable[[object], object] | None", answer: "asyncio.Future[object]") -> None:
    if _retrieve(answer) is None and undo is not None:
        undo(answer.result())


def _retrieve(answer: "asyncio.Future[object]") -> BaseException | None:
    """Look at an error that nobody waits for, so that asyncio doesn't report it as forgotten."""
    return asyncio.CancelledError() if answer.cancelled() else answer.exception()


def _end(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
