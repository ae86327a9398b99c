"""Pushing inside the caller's own transaction, whoever began it (PUSH-8).

The caller's connection must lead to the queue's own server and be in a transaction; both are checked before
anything is written. SQLAlchemy is told apart by its classes' names, so that it need not be installed.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakSet

from asyncmy.connection import Connection

from aqueue.backends.mysql.statements import PLACE
from aqueue.errors import InvalidQueueArgument

_TAKES = (
    "connection= takes an asyncmy connection in a transaction, or a SQLAlchemy AsyncConnection or "
    "AsyncSession over asyncmy"
)

Place = tuple[Any, ...]


class Transaction(Protocol):
    """A caller's connection, made to look the same."""

    async def ask(self, statement: str) -> Place:
        """Run a statement inside the caller's transaction and return its first row."""

    async def write(self, statement: str) -> None:
        """Run a statement inside the caller's transaction."""


class Callers:
    """Callers' connections: which can be used, and which have been checked."""

    def __init__(self, place: Callable[[], Awaitable[Place]]) -> None:
        self._place = place
        self._known_place: Place = ()
        self._checked: WeakSet[Connection] = WeakSet()

    async def usable(self, connection: object) -> Transaction:
        """Return the connection as fit for a push, or raise `InvalidQueueArgument`."""
        if isinstance(connection, Connection):
            transaction: Transaction = _Plain(connection)
            await self._check(connection, transaction)
            return transaction
        if _is_sqlalchemy(connection, "AsyncSession"):
            connection = await _connection_of(connection)
        if _is_sqlalchemy(connection, "AsyncConnection"):
            through = _ThroughSQLAlchemy(connection)
            await self._check(await through.driver(), through)
            return through
        raise InvalidQueueArgument(f"{_TAKES}, not {type(connection).__name__}")

    async def _check(self, driver: Connection, transaction: Transaction) -> None:
        """The server says with each answer whether a transaction is open, so it is asked something first.

        Without autocommit, the driver's own default, every statement belongs to one.
        """
        place = () if driver in self._checked else await transaction.ask(PLACE)
        if driver.get_autocommit() and not driver.get_transaction_status():
            raise InvalidQueueArgument("connection= is not in a transaction: begin one first")
        if not place:
            return
        if place != self._known_place:
            self._known_place = await self._place()
        if place != self._known_place:
            raise InvalidQueueArgument("connection= leads to another server than the queue's own")
        self._checked.add(driver)


class _Plain:
    """An asyncmy connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, statement: str) -> Place:
        async with self._connection.cursor() as cursor:
            await cursor.execute(statement)
            return tuple(await cursor.fetchone())

    async def write(self, statement: str) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.execute(statement)


class _ThroughSQLAlchemy:
    """SQLAlchemy begins its transaction with its own first statement, so all go through it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def driver(self) -> Connection:
        """Return the driver's connection."""
        raw = await self._connection.get_raw_connection()
        driver = raw.driver_connection
        if not isinstance(driver, Connection):
            raise InvalidQueueArgument(f"{_TAKES}, not over {type(driver).__name__}")
        return driver

    async def ask(self, statement: str) -> Place:
        return tuple((await self._connection.exec_driver_sql(statement)).fetchone())

    async def write(self, statement: str) -> None:
        await self._connection.exec_driver_sql(statement)


async def _connection_of(session: Any) -> object:
    connection: object = await session.connection()
    return connection


def _is_sqlalchemy(connection: object, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.startswith("sqlalchemy.ext.asyncio")
        for kind in type(connection).__mro__
    )
