"""aqueue in a Starlette application: one lifespan line, the queue in every request, a health route.

    app = Starlette(routes, lifespan=queue_lifespan(queue, worker=worker))
    queue = await get_queue(request)

Only Starlette itself is needed; FastAPI applications take all of this from `aqueue.integrations.fastapi`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, overload

from aqueue.errors import QueueClosed, QueueUnavailable
from aqueue.integrations.hosting import health_report, opened, working
from aqueue.queue import Queue
from aqueue.worker import Worker

try:
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import JSONResponse
except ModuleNotFoundError as error:
    raise QueueUnavailable(
        f"this needs {error.name!r}: pip install 'aqueue-jobs[fastapi]', or starlette alone"
    ) from error

__all__ = ["NamedQueue", "get_queue", "health_endpoint", "queue_lifespan"]

App = TypeVar("App", bound=Starlette)

Lifespan: TypeAlias = Callable[[App], AbstractAsyncContextManager[Mapping[str, Any]]]
AnyLifespan: TypeAlias = Callable[[App], AbstractAsyncContextManager[Mapping[str, Any] | None]]


@overload
def queue_lifespan(
    queue: Queue, *, worker: Worker | None = None, name: str | None = None
) -> Lifespan[Starlette]: ...


@overload
def queue_lifespan(
    queue: Queue, *, worker: Worker | None = None, name: str | None = None, lifespan: AnyLifespan[App]
) -> Lifespan[App]: ...


def queue_lifespan(
    queue: Queue,
    *,
    worker: Worker | None = None,
    name: str | None = None,
    lifespan: AnyLifespan[App] | None = None,
) -> Lifespan[App]:
    """Return a lifespan that keeps the queue open, and the worker running, while the application lives.

    The order is: open the queue, enter your own `lifespan`, start the worker; and back, the worker stopping
    with its grace before anything it uses is closed. Signals stay the server's business (STOP-2). A queue
    with a `name` stands beside the others: nest one lifespan in the other for each. Starting raises what
    opening the queue raises, and `InvalidQueueArgument` for a worker that can't run; a worker that dies
    later is logged, and seen by `health_endpoint`, while the application goes on.
    """
    key = _key(name)

    @asynccontextmanager
    async def live(app: App) -> AsyncIterator[Mapping[str, Any]]:
        async with opened(queue, worker):
            # The lifespan's state reaches mounted applications too; the application's own reaches requests
            # that come through no server, such as a test client's.
            setattr(app.state, key, queue)
            async with nullcontext() if lifespan is None else lifespan(app) as state, working(worker):
                yield {**(state or {}), key: queue}

    return live


async def get_queue(connection: HTTPConnection) -> Queue:
    """Return the application's queue for a request or a WebSocket; raises `QueueClosed` if it has none."""
    return _queue_of(connection, None)


@dataclass(frozen=True, slots=True)
class NamedQueue:
    """Gives the queue of a `queue_lifespan(…, name=name)`: call it with the request, or put it in `Depends`.

    Two of one name are equal, so an override for one is an override for the other.
    """

    name: str

    async def __call__(self, connection: HTTPConnection) -> Queue:
        """Return the queue; raises `QueueClosed` if the application has none of this name."""
        return _queue_of(connection, self.name)


def health_endpoint(
    *workers: Worker, tolerate_outages: bool = False
) -> Callable[[Request], Awaitable[JSONResponse]]:
    """Return a route's function that answers 200 while every worker is well, else 503 (WORK-8).

    Well is running, and in no outage of the store. With `tolerate_outages` running is enough: that is what a
    liveness probe should ask, since a restart brings no store back.
    """

    async def health(request: Request) -> JSONResponse:
        status, report = health_report(workers, tolerate_outages=tolerate_outages)
        return JSONResponse(report, status_code=status)

    return health


def _queue_of(connection: HTTPConnection, name: str | None) -> Queue:
    key = _key(name)
    found = getattr(connection.state, key, None)
    if found is None and "app" in connection.scope:
        found = getattr(connection.app.state, key, None)
    if isinstance(found, Queue):
        return found
    which = "no queue" if name is None else f"no queue named {name!r}"
    raise QueueClosed(
        f"{which} in this application: give it lifespan=queue_lifespan(queue), and see that this one runs "
        "(in a TestClient it does within `with TestClient(app) as client`)"
    )


def _key(name: str | None) -> str:
    return "aqueue" if name is None else f"aqueue:{name}"
