"""Bringing the tables up to date: once per deploy, from however many processes at once."""

from aqueue.backends.mysql import schema
from aqueue.backends.mysql.connections import Session
from aqueue.backends.mysql.literals import name
from aqueue.backends.mysql.schema import Names
from aqueue.errors import StoreRefused
from aqueue.port import Refused

_PATIENCE = 8

_HAS_VERSIONS = """
SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = CONVERT({schema} USING utf8mb4) AND table_name = CONVERT({table} USING utf8mb4)
"""


async def check_server(session: Session) -> None:
    """Raise `StoreRefused` for a server too old to skip locked rows."""
    if not is_supported(session.version):
        raise StoreRefused(f"aqueue needs MySQL 8 or MariaDB 10.6, or newer, not {session.version}")


def is_supported(version: str) -> bool:
    """Whether a server that calls itself this can skip locked rows."""
    number = version.partition("-")[0].split(".")
    if not all(part.isdigit() for part in number[:2]) or len(number) < 2:
        return True  # an unusual name is no proof
    needed = (10, 6) if "mariadb" in version.lower() else (8, 0)
    return (int(number[0]), int(number[1])) >= needed


async def version(session: Session, names: Names) -> int:
    """Return which version the tables have; 0 for none. Raises `StoreRefused` if it is a newer one."""
    table = name(f"{names.table}_schema")
    [exists] = await session.run(_HAS_VERSIONS.format(schema=name(names.schema), table=table))
    if not exists.rows[0][0]:
        return 0
    [found] = await session.run(names.fill(schema.VERSION))
    number = int(found.rows[0][0])
    schema.pending(number)
    return number


async def migrate(session: Session, names: Names) -> None:
    """Take the steps that are missing while every other migration waits its turn.

    The lock is this connection's and ends with it. Tables that are up to date are only read, so that an
    application may call this without the right to create any.
    """
    if not schema.pending(await version(session, names)):
        return
    lock = name(names.lock)
    [locked] = await session.run(f"SELECT GET_LOCK({lock}, {_PATIENCE})")
    if locked.rows[0][0] != 1:
        raise Refused(f"another migration of these tables has been under way for {_PATIENCE} s")
    await session.run(names.fill(schema.VERSIONS))
    for number, step in schema.pending(await version(session, names)):
        for statement in step:
            await session.run(names.fill(statement))
        await session.run(names.fill(schema.TAKEN % number))
    await session.run(f"SELECT RELEASE_LOCK({lock})")
