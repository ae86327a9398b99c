"""The thread that owns one SQLite connection, where whatever waits is written in one commit (PUSH-6).

A transaction is a function, run on the thread between its BEGIN IMMEDIATE and its COMMIT: never across an
await. Everything that waits when the write lock is got shares the commit, and nobody is answered before
the commit succeeded (PUSH-3).
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol, TypeVar, cast

from aqueue.backends._sqlite_session import Outcome, Session, Work, is_busy, pauses, verdict
from aqueue.port import NotDispatched, Refused

T = TypeVar("T")

_LAST_MOMENT = 0.5
_HUNG = 2.0


class Watch(Protocol):
    """Something to look at between the pieces of work."""

    def pause(self) -> float | None:
        """Return how many seconds the thread may sleep before it looks; None if nobody waits for that."""

    def look(self) -> None:
        """Look, if it is time to."""


class DatabaseThread:
    """Runs functions on one connection. It belongs to the event loop that makes it, and starts at once.

    The thread is a daemon: a connection that nobody closed never keeps the interpreter from ending.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], watch: Watch) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._session = Session(connect)
        self._server = _Server(self._session, watch, self._loop, self._ended)
        self._accepts = True
        Thread(target=self._server.run, name="aqueue-sqlite", daemon=True).start()

    async def read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a function that only reads makes of the connection, without the write lock."""
        return cast("T", await _answer(self._work(act, writes=False), _retrieve))

    async def write(
        self,
        act: Callable[[sqlite3.Connection], T],
        *,
        glance: Callable[[sqlite3.Connection], T | None] | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Run a function inside a transaction and return its result once that is committed.

        Raises `NotDispatched` if the lock can't be got and `Refused` if the transaction was rolled back; a
        raw `sqlite3.Error` means that the commit's outcome is unknown. Cancelling before the transaction
        began withdraws the function; afterwards `undo` is called with the result that nobody took.
        """

        def abandoned(answer: "asyncio.Future[object]") -> None:
            if _retrieve(answer) is None and undo is not None:
                undo(cast("T", answer.result()))

        return cast("T", await _answer(self._work(act, writes=True, glance=glance), abandoned))

    def post(self, act: Callable[[sqlite3.Connection], object]) -> "asyncio.Future[object]":
        """Run a function inside a transaction that nobody need wait for."""
        work = self._work(act, writes=True)
        work.answer.add_done_callback(_retrieve)
        return work.answer

    def nudge(self) -> None:
        """Make a sleeping thread look at what it should watch."""
        self._server.inbox.put(None)

    async def stop(self) -> None:
        """Finish what waits, close the connection, end the thread; nothing waits for a lock much longer.

        A thread that hangs in the disk is left behind after a few seconds.
        """
        self._session.last_moment = time.monotonic() + _LAST_MOMENT
        try:
            # When this is answered, what came before is taken, or its undoing is posted behind it.
            await asyncio.wait({self.post(_nothing)}, timeout=_HUNG)
        finally:
            self._accepts = False
            self._server.stopping = True
            self.nudge()
        await asyncio.wait({self._ended}, timeout=_HUNG)

    def _work(
        self,
        act: Callable[[sqlite3.Connection], object],
        *,
        writes: bool,
        glance: Callable[[sqlite3.Connection], object | None] | None = None,
    ) -> Work:
        if not self._accepts:
            raise NotDispatched("the database is closed")
        work = Work(act, self._loop.create_future(), writes=writes, glance=glance)
        self._server.inbox.put(work)
        return work


class _Server:
    """The thread's own side: takes in what waits, serves it, and tells the loop once for all of it."""

    def __init__(
        self, session: Session, watch: Watch, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]"
    ) -> None:
        self.inbox: SimpleQueue[Work | None] = SimpleQueue()
        self.stopping = False
        self._session = session
        self._watch = watch
        self._loop = loop
        self._ended = ended
        self._reads: list[Work] = []
        self._writes: list[Work] = []

    def run(self) -> None:
        """Serve until told to stop and nothing is left."""
        try:
            while self._take_in(self._pause()) or not self.stopping:
                self._serve_reads()
                self._serve_writes()
                self._watch.look()
        finally:
            self._session.close()
            self._tell(partial(_end, self._ended))

    def _pause(self) -> float | None:
        """Return how long to sleep until something comes: not at all if something came behind the lock."""
        return 0 if self.stopping or self._reads or self._writes else self._watch.pause()

    def _take_in(self, pause: float | None) -> bool:
        """Take in everything that waits; with nothing there, wait up to `pause` seconds for something."""
        try:
            work = self.inbox.get(timeout=pause) if pause != 0 else self.inbox.get_nowait()
            while True:
                if work is not None:
                    (self._writes if work.writes else self._reads).append(work)
                work = self.inbox.get_nowait()
        except Empty:
            return bool(self._reads or self._writes)

    def _serve_reads(self) -> None:
        reads, self._reads = self._reads, []
        self._deliver([self._session.read(work, work.act) for work in reads])

    def _serve_writes(self) -> None:
        if all(work.glance is not None for work in self._writes):
            self._glance()
        if self._writes and self._lock():
            works, self._writes = self._writes, []
            self._deliver(self._session.transact(works))

    def _glance(self) -> None:
        """Answer what a read can answer: idle workers leave the write lock to those who write."""
        looks = [self._session.read(work, work.glance) for work in self._writes if work.glance is not None]
        answered = [look for look in looks if look.result is not None or look.error is not None]
        for look in answered:
            self._writes.remove(look.work)
        self._deliver(answered)

    def _lock(self) -> bool:
        """Take the write lock for whatever waits, late comers included; False if nothing waits any more."""
        pause = pauses()
        while self._writes:
            error = self._session.begin()
            self._take_in(0)
            if error is None:
                return True
            self._dismiss(error)
            self._serve_reads()
            time.sleep(next(pause))
        return False

    def _dismiss(self, error: Exception) -> None:
        """Answer those for whom the lock comes too late; every one, if it isn't a matter of time."""
        waits = is_busy(error)
        hopeless = [work for work in self._writes if not waits or self._session.is_hopeless(work)]
        for work in hopeless:
            self._writes.remove(work)
        kind = NotDispatched if waits else Refused
        self._deliver([Outcome(work, None, verdict(kind, error)) for work in hopeless])

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            self._tell(partial(_hand_over, outcomes))

    def _tell(self, news: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(news)
        except RuntimeError:  # the loop is closed, and with it everyone who could ask or be told
            self.stopping = True


async def _answer(work: Work, abandoned: "Callable[[asyncio.Future[object]], object]") -> object:
    try:
        return await asyncio.shield(work.answer)
    except asyncio.CancelledError:
        work.withdrawn = True
        work.answer.add_done_callback(abandoned)
        raise


def _hand_over(outcomes: Sequence[Outcome]) -> None:
    for work, result, error in outcomes:
        if work.answer.done():
            continue
        if error is not None:
            work.answer.set_exception(error)
        else:
            work.answer.set_result(result)


def _end(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def _retrieve(answer: "asyncio.Future[object]") -> BaseException | None:
    """Look at an error that nobody waits for, so that asyncio doesn't report it as forgotten."""
    return asyncio.CancelledError() if answer.cancelled() else answer.exception()


def _nothing(_: sqlite3.Connection) -> None:
    """What a closing database waits for: everything before it is done."""
