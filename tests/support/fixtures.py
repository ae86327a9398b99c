"""Where the worker's tests work: a place in each embedded store, and queues that close by themselves."""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aqueue.connection import open_backend
from aqueue.port import Backend, StoreOptions
from aqueue.queue import Queue, QueueOptions
from aqueue.telemetry import Telemetry
from support.stores import WholeBackend, Wrapper

Wrap = Callable[[WholeBackend], Backend]


class Place:
    """One test's own namespace in a store: `memory`, `sqlite`, or `coalesced`, memory that suspends.

    SQLite doesn't wait for the disk here: no test of a worker cuts the power.
    """

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self._url = (
            f"sqlite:///{directory / 'jobs.db'}?synchronous=normal"
            if kind == "sqlite"
            else f"memory://{uuid.uuid4().hex}"
        )
        self._opened: list[Queue] = []

    async def queue(
        self,
        *,
        lease: float = 60.0,
        wrap: Wrap | None = None,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        **options: Any,
    ) -> Queue:
        """Return an open queue on this place over a connection of its own."""
        backend = self._made(lease, wrap)
        telemetry = Telemetry(
            backend.capabilities.system, tracer_provider=tracer_provider, meter_provider=meter_provider
        )
        queue = Queue(backend, QueueOptions(lease=lease, **options), telemetry=telemetry)
        await queue.open()
        await queue.migrate()
        self._opened.append(queue)
        return queue

    async def broken(self, *, lease: float = 60.0, **options: Any) -> tuple[Queue, Wrapper]:
        """Return an open queue and the wrapper that makes its store fail, hang and be counted."""
        made: list[Wrapper] = []

        def wrap(backend: WholeBackend) -> Backend:
            made.append(Wrapper(backend))
            return made[0]

        return await self.queue(lease=lease, wrap=wrap, **options), made[0]

    async def backend(self, *, lease: float = 60.0) -> Backend:
        """Return a bare backend on this place, for bytes that no queue would write."""
        backend = self._made(lease, None)
        await backend.open()
        self._opened.append(Queue(backend, QueueOptions(lease=lease)))
        return backend

    async def aclose(self) -> None:
        """Close every queue that this place opened."""
        for queue in reversed(self._opened):
            await queue.aclose()

    def _made(self, lease: float, wrap: Wrap | None) -> Backend:
        backend: Any = open_backend(self._url, StoreOptions(lease=lease, clock=time.time))
        if wrap is not None:
            return wrap(backend)
        made: Backend = Wrapper(backend) if self.kind == "coalesced" else backend
        return made


@pytest.fixture(params=["memory", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Every embedded store in turn."""
    made = Place(request.param, tmp_path)
    yield made
    await made.aclose()


@pytest.fixture(params=["memory", "coalesced", "sqlite"])
async def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Every embedded store, and a memory store that suspends like one behind a network."""
    made = Place(request.param, tmp_path)
    yield made
    await made.aclose()


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Place]:
    """A memory store, for what has nothing to do with any store."""
    made = Place("memory", tmp_path)
    yield made
    await made.aclose()
