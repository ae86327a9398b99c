"""What the tests of PostgreSQL share: bare backends, messages, and looks behind the scenes."""

import re
import time
from typing import Any

import asyncpg

from aqueue import Queue, job
from aqueue.backends.postgres import PostgresBackend, from_url
from aqueue.port import Message, StoreOptions
from aqueue.testing import eventually
from aqueue.urls import parse_url


@job(name="postgres.note")
class Note:
    text: str


def backend_on(url: str, lease: float = 60.0) -> PostgresBackend:
    return from_url(parse_url(url), StoreOptions(lease=lease, clock=time.time))


def messages(count: int, *, queue: str = "default", first: int = 1, delay: float = 0.0) -> list[Message]:
    return [Message(f"{number:032x}", queue, b"x" * 200, delay) for number in range(first, first + count)]


def table(url: str, name: str = "jobs") -> str:
    found = re.search(r"table=(\w+)", url)
    assert found is not None
    return f"public.{found[1]}_{name}"


async def numbers(backend: PostgresBackend, limit: int, *queues: str) -> list[int]:
    return [int(item.id, 16) for item in await backend.pop(queues or ("default",), limit)]


async def listening(queue: Queue, mine: asyncpg.Connection) -> None:
    """Wait until the queue's own listener is connected."""
    backend: Any = queue._store.backend
    await backend.wait(["default"], 0.01)

    async def is_listening() -> bool:
        return bool(
            await mine.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1",
                f"%{backend._channel}%",
            )
        )

    await eventually(is_listening)
