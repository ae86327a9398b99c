"""Bringing the schema up to date: once per deploy, from however many processes at once."""

import asyncpg

from aqueue.backends.postgres import schema
from aqueue.backends.postgres.schema import Names


async def version(connection: asyncpg.Connection, names: Names) -> int:
    """Return which version the database has; 0 for none. Raises `StoreRefused` if it is a newer one."""
    found = 0
    if await connection.fetchval(schema.HAS_VERSIONS, names.fill("{versions}")):
        found = await connection.fetchval(names.fill(schema.VERSION))
    schema.pending(found)
    return found


async def migrate(connection: asyncpg.Connection, names: Names) -> None:
    """Take the steps that are missing, in one transaction, while every other migration waits its turn.

    A database that is up to date is only read, so that an application may call this without the right to
    create tables.
    """
    if not schema.pending(await version(connection, names)):
        return
    await connection.execute("BEGIN")
    try:
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.fetchval(schema.LOCK, names.lock)
        if not await connection.fetchval(schema.HAS_SCHEMA, names.fill("{schema}")):
            await connection.execute(names.fill(schema.SCHEMA))
        await connection.execute(names.fill(schema.VERSIONS))
        for number, step in schema.pending(await version(connection, names)):
            await connection.execute(names.fill(step))
            await connection.execute(names.fill(schema.TAKEN.replace("{version}", str(number))))
        await connection.execute("COMMIT")
    except asyncpg.PostgresError:
        await connection.execute("ROLLBACK")
        raise
