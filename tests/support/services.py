"""Small FastAPI services to test, and a job that leaves a note."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from starlette.types import ASGIApp, Lifespan

from aqueue import Queue, job
from aqueue.connection import open_backend
from aqueue.integrations.fastapi import (
    QueueDep,
)
from aqueue.port import StoreOptions
from support.stores import WholeBackend, Wrapper


@job(name="note")
class Note:
    text: str

    async def handle(self) -> None:
        NOTES.append(self.text)


NOTES: list[str] = []


def service(lifespan: Lifespan[FastAPI] | None) -> FastAPI:
    """An application with a route that pushes."""
    app = FastAPI(lifespan=lifespan)

    @app.post("/notes", status_code=202)
    async def write(text: str, queue: QueueDep) -> str:
        return await queue.push(Note(text))

    return app


@asynccontextmanager
async def client_of(app: ASGIApp) -> AsyncIterator[AsyncClient]:
    """A client that calls the application in this loop; it runs no lifespan."""
    async with AsyncClient(transport=ASGITransport(app=app), base_url="http://test") as client:
        yield client


def breakable_queue() -> tuple[Queue, Wrapper]:
    """A queue in memory, and its store, to be broken."""
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    store = Wrapper(cast("WholeBackend", backend))
    return Queue(store), store
