"""Which versions of servers and drivers a store's verdict is about."""

import asyncio
import re
import sqlite3
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from urllib.parse import urlsplit

import aiormq
import asyncmy
import asyncpg
from servers import mysql, pgbouncer, postgres, rabbitmq, redis


def version_of(store: str) -> str:
    """Return the versions in words: the server's, then the driver's."""
    return _VERSIONS[store]()


def _redis() -> str:
    return f"Redis {_of_program(redis.redis_program())}, redis-py {version('redis')}"


def _rabbitmq() -> str:
    return f"RabbitMQ {asyncio.run(_ask_rabbitmq())}, aio-pika {version('aio-pika')}"


def _postgres() -> str:
    return f"PostgreSQL {asyncio.run(_ask_postgres())}, asyncpg {version('asyncpg')}"


_VERSIONS: dict[str, Callable[[], str]] = {
    "file": lambda: "a local disk",
    "memory": lambda: "",
    "mysql": lambda: f"MariaDB {asyncio.run(_ask_mysql())}, asyncmy {version('asyncmy')}",
    "postgres": _postgres,
    "pgbouncer": lambda: f"PgBouncer {_of_program(pgbouncer._program())}, {_postgres()}",
    "rabbitmq": lambda: f"{_rabbitmq()}, quorum queues",
    "rabbitmq-classic": lambda: f"{_rabbitmq()}, classic queues",
    "redis": _redis,
    "redis-cluster": _redis,
    "redis-sentinel": _redis,
    "valkey": lambda: f"Valkey {_of_program(redis.valkey_program())}, redis-py {version('redis')}",
    "sqlite": lambda: f"SQLite {sqlite3.sqlite_version}",
    "sqs": lambda: f"ministack {version('ministack')}, aiobotocore {version('aiobotocore')}",
    "sqs-moto": lambda: f"moto {version('moto')}, aiobotocore {version('aiobotocore')}",
}


def _of_program(program: str | None) -> str:
    assert program is not None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+(?:\.\d+)?", said)
    return found[0] if found else "of unknown version"


async def _ask_postgres() -> str:
    connection = await asyncpg.connect(postgres.url())
    try:
        said: str = await connection.fetchval("SHOW server_version")
    finally:
        await connection.close()
    return said.split(maxsplit=1)[0]


async def _ask_mysql() -> str:
    url = urlsplit(mysql.url())
    connection = await asyncmy.connect(
        host=url.hostname, port=url.port or 3306, user=url.username, password=url.password or ""
    )
    async with connection.cursor() as cursor:
        await cursor.execute("SELECT VERSION()")
        (said,) = await cursor.fetchone()
    await connection.ensure_closed()
    return str(said).split("-")[0]


async def _ask_rabbitmq() -> str:
    url = urlsplit(rabbitmq.fresh_url("quorum"))._replace(query="").geturl()
    connection = await aiormq.connect(url)
    try:
        said = connection.server_properties["version"]
    finally:
        await connection.close()
    return said.decode() if isinstance(said, bytes) else str(said)
