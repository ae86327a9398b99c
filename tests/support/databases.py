"""Whole databases of a test's own, for applications that keep their tables beside aqueue's."""

from urllib.parse import urlsplit
from uuid import uuid4

import asyncmy
import asyncpg
from servers import mysql, postgres


async def fresh_postgres() -> str:
    """Create an empty PostgreSQL database; return its URL, which is SQLAlchemy's and aqueue's alike."""
    name = f"app_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return urlsplit(postgres.url())._replace(scheme="postgresql+asyncpg", path=f"/{name}").geturl()


async def fresh_mysql() -> str:
    """Create an empty MySQL or MariaDB database; return its URL, which is SQLAlchemy's and aqueue's alike."""
    name = f"app_{uuid4().hex[:12]}"
    url = urlsplit(mysql.url())
    connection = await asyncmy.connect(
        host=url.hostname, port=url.port or 3306, user=url.username, password=url.password or ""
    )
    async with connection.cursor() as cursor:
        await cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    await connection.ensure_closed()
    return url._replace(scheme="mysql+asyncmy", path=f"/{name}").geturl()
