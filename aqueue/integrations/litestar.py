"""aqueue in a Litestar application: one plugin, and `queue: QueueDep` wherever a queue is wanted.

    app = Litestar([sign_up], plugins=[QueuePlugin(queue, worker=worker)])

    @post("/signups", status_code=202)
    async def sign_up(email: FromQuery[str], queue: QueueDep) -> str:
        return await queue.push(SendWelcome(email))

In tests give the application a plugin with another queue, or a handler a dependency of its own.
"""

from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from aqueue.errors import QueueUnavailable
from aqueue.integrations.hosting import HealthReport, health_report, opened, working
from aqueue.queue import Queue
from aqueue.worker import Worker

try:
    from litestar import Litestar, Response, get
    from litestar.config.app import AppConfig
    from litestar.di import NamedDependency, Provide
    from litestar.handlers import HTTPRouteHandler
    from litestar.plugins import InitPlugin
except ModuleNotFoundError as error:
    raise QueueUnavailable(f"this needs {error.name!r}: pip install 'aqueue-jobs[litestar]'") from error

__all__ = ["QueueDep", "QueuePlugin", "health_route"]

QueueDep: TypeAlias = NamedDependency[Queue]
"""A queue in a route handler; the parameter's name says which, `queue` being the usual one."""


class QueuePlugin(InitPlugin):
    """Keeps the queue open, and the worker running, while the application lives, and injects the queue.

    Route handlers get it as the parameter named `dependency`, annotated `QueueDep`; one plugin for each
    queue. The queue opens before the application's own lifespans, and the worker starts after them; back in
    the opposite order, the worker stopping with its grace (STOP-1). A worker that dies is logged, and seen by
    `health_route`, while the application goes on.
    """

    def __init__(self, queue: Queue, *, worker: Worker | None = None, dependency: str = "queue") -> None:
        self._queue = queue
        self._worker = worker
        self._dependency = dependency

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the two lifespans and the dependency; Litestar calls this."""
        app_config.lifespan.insert(0, self._open)
        app_config.lifespan.append(self._work)
        app_config.dependencies[self._dependency] = Provide(self._provide)
        app_config.signature_types.append(Queue)
        return app_config

    def _open(self, app: Litestar) -> AbstractAsyncContextManager[None]:
        return opened(self._queue, self._worker)

    def _work(self, app: Litestar) -> AbstractAsyncContextManager[None]:
        return working(self._worker)

    async def _provide(self) -> Queue:
        return self._queue


def health_route(
    *workers: Worker, path: str = "/healthz", tolerate_outages: bool = False
) -> HTTPRouteHandler:
    """Return a route that answers 200 while every worker is well, else 503 (WORK-8).

    Well is running, and in no outage of the store. With `tolerate_outages` running is enough: that is what a
    liveness probe should ask, since a restart brings no store back.
    """

    @get(path, include_in_schema=False)
    async def health() -> Response[HealthReport]:
        status, report = health_report(workers, tolerate_outages=tolerate_outages)
        return Response(report, status_code=status)

    return health
