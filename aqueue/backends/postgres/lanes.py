"""Connections of our own: a few, opened when needed, never reset, dropped at the first doubt.

Getting a connection and using it are two steps, so that a failure of the first is known to have sent nothing
(PUSH-4). Each statement commits by itself, so a connection that answered is as good as new and the next call
may have it at once. One that was cancelled, timed out or broke is cut off, and the next call opens another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import asyncpg

from aqueue.backends.postgres.troubles import is_sound, refusal
from aqueue.errors import StoreRefused
from aqueue.port import NotDispatched

T = TypeVar("T")

Connect = Callable[[], Awaitable[asyncpg.Connection]]

_GOODBYE = 1.0


class Lanes:
    """Up to `limit` connections, each used by one call at a time; the last used is the first used again."""

    def __init__(self, connect: Connect, limit: int) -> None:
        self._connect = connect
        self._turns = asyncio.Semaphore(limit)
        self._free: list[asyncpg.Connection] = []
        self._all: set[asyncpg.Connection] = set()

    async def run(self, call: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Make one call on a connection that nobody else uses meanwhile.

        Raises `NotDispatched` if there is none to be had, `StoreRefused` where the mistake is in the set-up;
        other errors are the driver's. Cancelling cuts the connection off.
        """
        async with self._turns:
            connection = await self._take()
            try:
                result = await call(connection)
            except asyncpg.PostgresError as error:
                if is_sound(connection, error):
                    self._free.append(connection)
                else:
                    self._drop(connection)
                refused = refusal(error)
                if refused is not None:
                    raise refused from error
                raise
            except BaseException:
                self._drop(connection)
                raise
            self._free.append(connection)
            return result

    def holds(self, pid: int) -> bool:
        """Whether this server process serves one of these connections."""
        return any(not one.is_closed() and one.get_server_pid() == pid for one in self._all)

    async def aclose(self) -> None:
        """Say goodbye to the free connections, and cut off those still in use."""
        free, self._free = self._free, []
        for connection in self._all.difference(free):
            connection.terminate()
        self._all.clear()
        await asyncio.gather(*(_say_goodbye(connection) for connection in free))

    async def _take(self) -> asyncpg.Connection:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
            self._drop(connection)
        connection = await connected(self._connect)
        self._all.add(connection)
        return connection

    def _drop(self, connection: asyncpg.Connection) -> None:
        self._all.discard(connection)
        connection.terminate()


async def connected(connect: Connect) -> asyncpg.Connection:
    """Open a connection; raise `NotDispatched` if that fails, `StoreRefused` if it always will."""
    try:
        return await connect()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        refused = refusal(error)
        if isinstance(refused, StoreRefused):
            raise refused from error
        raise NotDispatched(f"can't connect: {type(error).__name__}") from error


async def _say_goodbye(connection: asyncpg.Connection) -> None:
    with suppress(Exception):  # it is cut off all the same
        await connection.close(timeout=_GOODBYE)
    if not connection.is_closed():
        connection.terminate()
