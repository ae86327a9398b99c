"""Connections of our own: a few, opened when needed, dropped at the first doubt.

Getting a connection and using it are two steps, so that a failure of the first is known to have sent
nothing (PUSH-4). One that was cancelled, timed out or broke is cut off, with which the server undoes what it
began and had not committed, and the next call opens another. asyncmy's own pool loses connections to
cancellations, so nothing of it is used.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from secrets import randbelow
from typing import Any, NamedTuple, TypeVar

from asyncmy.connection import Connection
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from aqueue.backends.mysql.troubles import REPEATABLE, meaning, number
from aqueue.port import NotDispatched, Refused

T = TypeVar("T")
Row = tuple[Any, ...]

_CONNECT_WITHIN = 5.0
_GOODBYE = 1.0
_IDLE = 10.0
_INSIST_FOR = 5.0
_LONGEST_PAUSE = 0.2

# A client that is gone without a word, its machine switched off, must not keep rows locked for the eight
# hours that are the servers' default: after 30 seconds without a statement its transaction is undone. Waits
# for locks are short, because they are repeated. Notes, such as that a table exists, are of no interest.
_SET_UP = (
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_notes = 0",
    "SET SESSION wait_timeout = 30, innodb_lock_wait_timeout = 3, lock_wait_timeout = 3",
    "SELECT @@max_allowed_packet, VERSION()",
)


class Result(NamedTuple):
    """What one statement answered."""

    rows: tuple[Row, ...]
    affected: int


class Session:
    """One connection, set up as every statement here expects it."""

    def __init__(self, connection: Connection) -> None:
        self.version = ""
        self.used_at = 0.0
        self._connection = connection
        self._longest = 1 << 20

    async def set_up(self) -> None:
        """Make the connection's settings ours, whatever the server's defaults are."""
        *_, asked = await self.run(*_SET_UP)
        self._longest, self.version = int(asked.rows[0][0]), str(asked.rows[0][1])

    async def run(self, *statements: str) -> list[Result]:
        """Run statements one after the other, in one round trip, and return what each answered.

        The first that fails ends it: those after it are not run.
        """
        text = ";".join(statements)
        if len(text) >= self._longest:  # statements are ASCII
            raise Refused(
                f"{len(text)} bytes in one statement are more than the server's max_allowed_packet of "
                f"{self._longest}"
            )
        cursor = self._connection.cursor()
        await cursor.execute(text)
        results = [await _result(cursor)]
        while await cursor.nextset():
            results.append(await _result(cursor))
        return results

    def is_alive(self) -> bool:
        """Whether the other side has not hung up, for all that the event loop has heard."""
        return not self._connection._stream_broken  # type: ignore[attr-defined]  # missing in the driver's stubs

    def cut(self) -> None:
        """End the connection at once; what it had not committed is undone."""
        transport = getattr(self._connection, "_transport", None)
        self._connection.close()
        if transport is not None:
            transport.abort()  # closing alone would wait for a silent server to read what was written

    async def say_goodbye(self) -> None:
        """End the connection in order."""
        with suppress(Exception):  # it is cut off all the same
            async with asyncio.timeout(_GOODBYE):
                await self._connection.ensure_closed()
        self.cut()


class Connections:
    """Up to `limit` sessions, each used by one call at a time; the last used is the first used again."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], limit: int) -> None:
        self._connect = connect
        self._turns = asyncio.Semaphore(limit)
        self._free: list[Session] = []
        self._busy: set[Session] = set()
        self._connecting: set[asyncio.Task[Session]] = set()

    async def run(self, call: Callable[[Session], Awaitable[T]]) -> T:
        """Make one call on a session that nobody else uses meanwhile; again if a lock came between.

        Raises `NotDispatched` if there is no connection to be had, `Refused` or `StoreRefused` where the
        server did nothing; other errors are the driver's. Cancelling cuts the connection off.
        """
        async with self._turns:
            session = await self._take()
            self._busy.add(session)
            try:
                result = await _insist(session, call)
            except Exception as error:
                session.cut()
                proved = meaning(error)
                if proved is error:
                    raise
                raise proved from error
            except BaseException:
                session.cut()
                raise
            finally:
                self._busy.discard(session)
            session.used_at = asyncio.get_running_loop().time()
            self._free.append(session)
            return result

    async def aclose(self) -> None:
        """Say goodbye to the free connections, and cut off those still in use."""
        for task in self._connecting:
            task.cancel()
        for session in self._busy:
            session.cut()
        free, self._free = self._free, []
        await asyncio.gather(*(session.say_goodbye() for session in free))

    async def _take(self) -> Session:
        """Return a usable session; one that has long been idle is about to be ended by the server."""
        oldest = asyncio.get_running_loop().time() - _IDLE
        usable = [session for session in self._free if session.used_at > oldest and session.is_alive()]
        for session in set(self._free).difference(usable):
            session.cut()
        self._free = usable
        return self._free.pop() if self._free else await self._connected()

    async def _connected(self) -> Session:
        """Connect in a task of its own: the driver swallows cancellations while it connects."""
        task = asyncio.create_task(self._new_session())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        try:
            await asyncio.wait({task}, timeout=_CONNECT_WITHIN)
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_cut_what_came_late)
        if not task.done():
            raise NotDispatched(f"can't connect: no answer within {_CONNECT_WITHIN:g} s")
        try:
            return task.result()
        except asyncio.CancelledError:
            raise NotDispatched("can't connect: the queue is being closed") from None
        except (OSError, MySQLError) as error:
            raise NotDispatched(f"can't connect: {type(error).__name__} {number(error)}") from error

    async def _new_session(self) -> Session:
        session = Session(await self._connect())
        try:
            await session.set_up()
        except BaseException:
            session.cut()
            raise
        return session


async def _insist(session: Session, call: Callable[[Session], Awaitable[T]]) -> T:
    """Repeat a call that wrote nothing because of a deadlock or a lock held too long (case O-35)."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + _INSIST_FOR, 0.002
    while True:
        try:
            return await call(session)
        except MySQLError as error:
            if number(error) not in REPEATABLE or loop.time() > deadline:
                raise
        # A deadlock has undone the transaction; a lock wait only its last statement.
        await session.run("ROLLBACK")
        await asyncio.sleep(pause * (0.5 + randbelow(1000) / 1000))
        pause = min(pause * 2, _LONGEST_PAUSE)


async def _result(cursor: Cursor) -> Result:
    affected = cursor.rowcount
    return Result(tuple(await cursor.fetchall()), affected if isinstance(affected, int) else 0)


def _cut_what_came_late(task: "asyncio.Task[Session]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().cut()
