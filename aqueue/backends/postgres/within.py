"""Pushing inside the caller's own transaction, whoever began it (PUSH-8).

The caller's connection must lead to the queue's own database and be in a transaction; both are checked before
anything is written. SQLAlchemy is told apart by its classes' names, so that it need not be installed.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakSet

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from aqueue.backends.postgres.statements import PLACE
from aqueue.errors import InvalidQueueArgument

_TAKES = (
    "connection= takes an asyncpg connection in a transaction, or a SQLAlchemy AsyncConnection or "
    "AsyncSession over asyncpg"
)


class Transaction(Protocol):
    """A caller's connection, made to look the same."""

    async def fetch(self, statement: str, *arguments: object) -> Any:
        """Run a statement inside the caller's transaction and return its rows."""


class Callers:
    """Callers' connections: which can be used, and which have been checked."""

    def __init__(self, place: Callable[[], Awaitable[str]]) -> None:
        self._place = place
        self._known_place = ""
        self._checked: WeakSet[asyncpg.Connection] = WeakSet()

    async def usable(self, connection: object) -> Transaction:
        """Return the connection as fit for a push, or raise `InvalidQueueArgument`."""
        if isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
            await self._check(connection, connection)
            return connection
        if _is_sqlalchemy(connection, "AsyncSession"):
            connection = await _connection_of(connection)
        if _is_sqlalchemy(connection, "AsyncConnection"):
            through = _ThroughSQLAlchemy(connection)
            await self._check(await through.begin(), through)
            return through
        raise InvalidQueueArgument(f"{_TAKES}, not {type(connection).__name__}")

    async def _check(self, driver: Any, transaction: Transaction) -> None:
        if not driver.is_in_transaction():
            raise InvalidQueueArgument("connection= is not in a transaction: begin one first")
        if type(driver) is asyncpg.Connection and driver in self._checked:
            return
        [row] = await transaction.fetch(PLACE)
        if row[0] != self._known_place:
            self._known_place = await self._place()  # the server may have been restarted since it was asked
        if row[0] != self._known_place:
            raise InvalidQueueArgument("connection= leads to another database than the queue's own")
        if type(driver) is asyncpg.Connection:  # a pool's stand-in is another each time
            self._checked.add(driver)


class _ThroughSQLAlchemy:
    """SQLAlchemy begins the driver's transaction with its own first statement, so all go through it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self) -> Any:
        """Return the driver's connection, in whatever transaction SQLAlchemy gives it."""
        raw = await self._connection.get_raw_connection()
        driver = raw.driver_connection
        if not isinstance(driver, asyncpg.Connection):
            raise InvalidQueueArgument(f"{_TAKES}, not over {type(driver).__name__}")
        await self.fetch("SELECT 1")
        return driver

    async def fetch(self, statement: str, *arguments: object) -> Any:
        result = await self._connection.exec_driver_sql(statement, arguments)
        return result.fetchall()


async def _connection_of(session: Any) -> object:
    connection: object = await session.connection()
    return connection


def _is_sqlalchemy(connection: object, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.startswith("sqlalchemy.ext.asyncio")
        for kind in type(connection).__mro__
    )
