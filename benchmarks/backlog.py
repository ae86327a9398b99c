"""What a pop costs with a million jobs waiting, among dead rows, and under an old snapshot (POP-8).

    python benchmarks/backlog.py sqlite
    python benchmarks/backlog.py file --jobs 100000
    python benchmarks/backlog.py postgres postgresql://user@host/database --jobs 1000000 --json result.json
    python benchmarks/backlog.py mysql mysql://user:password@host/database

Each cost is compared with that of a queue of 1,000 jobs, measured in turn with it, pop by pop, so that what
else the machine does concerns both. Nothing is asserted: the figures are for a reader.

* *waiting*: the backlog as it was filled.
* *dead rows*: after 50,000 jobs were popped and acked, before anything has cleaned up behind them.
* *old snapshot*: the same while another session holds a snapshot from before, as a long report does.
"""

import argparse
import asyncio
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from aqueue.connection import open_backend
from aqueue.port import Message, StoreOptions

QUEUE = "default"
PAYLOAD = b"x" * 200
SMALL = 1_000
DEAD = 50_000


class Filler(Protocol):
    """What no port can do: fill a queue at once, hold an old snapshot, remove the tables."""

    holds_snapshots: bool

    def url(self, name: str) -> str: ...
    async def fill(self, name: str, count: int) -> None: ...
    async def hold_snapshot(self) -> Callable[[], Awaitable[None]]: ...
    async def remove(self, name: str) -> None: ...


class Postgres:
    holds_snapshots = True

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, name: str) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}table={name}"

    async def fill(self, name: str, count: int) -> None:
        async with self._session() as session:
            await session.execute(
                f"""INSERT INTO "{name}_jobs" (queue, id, payload, state, ready_at)
                SELECT $1, md5(n::text), $2, 0, date_part('epoch', clock_timestamp())
                FROM generate_series(1, $3::int) n""",
                QUEUE,
                PAYLOAD,
                count,
                timeout=600,
            )
            await session.execute(f'VACUUM ANALYZE "{name}_jobs"', timeout=600)

    async def hold_snapshot(self) -> Callable[[], Awaitable[None]]:
        import asyncpg

        session = await asyncpg.connect(self._url)
        await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await session.execute("SELECT count(*) FROM pg_class")
        return session.close

    async def remove(self, name: str) -> None:
        async with self._session() as session:
            await session.execute(
                f'DROP TABLE IF EXISTS "{name}_jobs", "{name}_failed", "{name}_schema" CASCADE'
            )

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        import asyncpg

        session = await asyncpg.connect(self._url)
        try:
            yield session
        finally:
            await session.close()


class MySQL:
    holds_snapshots = True

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, name: str) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}table={name}"

    async def fill(self, name: str, count: int) -> None:
        async with self._session() as session:
            for first in range(0, count, 5_000):
                last = min(first + 5_000, count)
                await session.executemany(  # one statement for many rows, if it has no literals
                    f"INSERT INTO {name}_jobs (queue, id, state, at, place, ready_at, payload) "
                    "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                    [(QUEUE, f"{n:032x}", 0, n, n, n, PAYLOAD) for n in range(first, last)],
                )

    async def hold_snapshot(self) -> Callable[[], Awaitable[None]]:
        connection = await self._connect()
        session = connection.cursor()
        await session.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

        async def close() -> None:
            await connection.ensure_closed()

        return close

    async def remove(self, name: str) -> None:
        async with self._session() as session:
            await session.execute(f"DROP TABLE IF EXISTS {name}_jobs, {name}_failed, {name}_schema")

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        connection = await self._connect()
        try:
            yield connection.cursor()
        finally:
            await connection.ensure_closed()

    async def _connect(self) -> Any:
        import asyncmy

        parts = urlsplit(self._url)
        return await asyncmy.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            password=parts.password or "",
            database=parts.path.removeprefix("/"),
            autocommit=True,
        )


class SQLite:
    holds_snapshots = False  # a rollback journal has none, and in WAL a reader keeps no row from being reused

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def url(self, name: str) -> str:
        return f"sqlite:///{self._path(name)}"

    async def fill(self, name: str, count: int) -> None:
        await asyncio.to_thread(self._fill, name, count)

    async def hold_snapshot(self) -> Callable[[], Awaitable[None]]:
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        for path in self._directory.glob(f"{name}.db*"):
            path.unlink()

    def _fill(self, name: str, count: int) -> None:
        with closing(sqlite3.connect(self._path(name))) as session, session:
            session.executemany(
                "INSERT INTO aqueue_jobs (queue, id, payload, state, ready_at) VALUES (?, ?, ?, 0, ?)",
                ((QUEUE, f"{number:032x}", PAYLOAD, time.time()) for number in range(count)),
            )

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.db"


class Files:
    """A directory; no pop waits for the disk, so neither does the filling."""

    holds_snapshots = False

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def url(self, name: str) -> str:
        return f"file://{self._directory}/{name}?fsync=none"

    async def fill(self, name: str, count: int) -> None:
        backend: Any = open_backend(self.url(name), StoreOptions(lease=600, clock=time.time))
        await backend.open()
        for first in range(0, count, 500):
            batch = range(first, min(first + 500, count))
            await backend.push([Message(f"{number:032x}", QUEUE, PAYLOAD) for number in batch])
        await backend.aclose()

    async def hold_snapshot(self) -> Callable[[], Awaitable[None]]:
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory / name)


@dataclass(frozen=True)
class Figure:
    """Milliseconds of a pop of so many jobs: the small queue's and the large one's."""

    what: str
    batch: int
    small: float
    large: float
    large_p99: float

    @property
    def ratio(self) -> float:
        return self.large / self.small

    def row(self) -> str:
        cells = (self.what, self.batch, *(f"{one:.2f}" for one in (self.small, self.large, self.large_p99)))
        return f"| {' | '.join(map(str, cells))} | {self.ratio:.2f} |"


class Place:
    """One backlog, kept at its length."""

    def __init__(self, filler: Filler, count: int) -> None:
        self.name = f"backlog_{uuid4().hex[:8]}"
        self._filler = filler
        self._count = count
        self._backend: Any = open_backend(filler.url(self.name), StoreOptions(lease=600, clock=time.time))

    async def open(self) -> None:
        await self._backend.open()
        await self._backend.migrate()
        await self._filler.fill(self.name, self._count)

    async def timed_pop(self, batch: int) -> float:
        """Pop a batch and return the milliseconds; then ack it and push as many."""
        started = time.perf_counter()
        taken = await self._backend.pop([QUEUE], batch)
        took = (time.perf_counter() - started) * 1000
        assert len(taken) == batch
        await self._backend.ack(taken)
        await self._backend.push([Message(token_hex(16), QUEUE, PAYLOAD) for _ in taken])
        return took

    async def churn(self, count: int) -> None:
        """Pop and ack so many jobs, and push as many anew."""
        for _ in range(count // 500):
            await self.timed_pop(500)

    async def aclose(self) -> None:
        await self._backend.aclose()
        await self._filler.remove(self.name)


async def compare(what: str, small: Place, large: Place, samples: int) -> list[Figure]:
    figures = []
    for batch in (1, 50):
        times: dict[Place, list[float]] = {small: [], large: []}
        for _ in range(samples):
            for place in (small, large):
                times[place].append(await place.timed_pop(batch))
        p99 = statistics.quantiles(times[large], n=100)[98]
        figures.append(
            Figure(what, batch, statistics.median(times[small]), statistics.median(times[large]), p99)
        )
    return figures


async def measure(filler: Filler, jobs: int, samples: int) -> list[Figure]:
    small, large = Place(filler, SMALL), Place(filler, jobs)
    try:
        await small.open()
        await large.open()
        await compare("warm-up", small, large, 20)
        figures = await compare("waiting", small, large, samples)
        if filler.holds_snapshots:
            let_go = await filler.hold_snapshot()
            await large.churn(DEAD)
            figures += await compare("old snapshot", small, large, samples)
            await let_go()
        else:
            await large.churn(DEAD)
        figures += await compare("dead rows", small, large, samples)
    finally:
        for place in (small, large):
            await place.aclose()
    return figures


def report(figures: Sequence[Figure], jobs: int) -> str:
    lines = [
        f"| situation | batch | p50 ms at {SMALL:,} | p50 ms at {jobs:,} | p99 ms | ratio |",
        "|---|---|---|---|---|---|",
    ]
    lines += [one.row() for one in figures]
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("store", choices=["file", "mysql", "postgres", "sqlite"])
    arguments.add_argument("url", nargs="?", default="postgresql://127.0.0.1/postgres")
    arguments.add_argument("--jobs", type=int, default=1_000_000)
    arguments.add_argument("--samples", type=int, default=200)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory, suppress(KeyboardInterrupt):
        fillers: dict[str, Callable[[], Filler]] = {
            "mysql": lambda: MySQL(given.url),
            "postgres": lambda: Postgres(given.url),
            "sqlite": lambda: SQLite(directory),
            "file": lambda: Files(directory),
        }
        filler = fillers[given.store]()
        figures = asyncio.run(measure(filler, given.jobs, given.samples))
        print(report(figures, given.jobs))
        if given.json is not None:
            given.json.write_text(
                json.dumps(
                    [{**vars(one), "ratio": one.ratio, "jobs": given.jobs} for one in figures], indent=2
                )
            )


if __name__ == "__main__":
    main()
