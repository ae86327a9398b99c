"""aqueue in a FastAPI application: one lifespan line, and `QueueDep` wherever a queue is wanted.

    app = FastAPI(lifespan=queue_lifespan(queue, worker=worker))

    @app.post("/signups", status_code=202)
    async def sign_up(email: str, queue: QueueDep) -> str:
        return await queue.push(SendWelcome(email))

All but `QueueDep` is Starlette's too, see `aqueue.integrations.starlette`.
"""

from typing import Annotated, TypeAlias

from aqueue.dependencies import Depends as DependsInJobs
from aqueue.errors import QueueUnavailable
from aqueue.integrations.starlette import NamedQueue, get_queue, health_endpoint, queue_lifespan
from aqueue.queue import Queue

try:
    from fastapi import Depends
except ModuleNotFoundError as error:
    raise QueueUnavailable(f"this needs {error.name!r}: pip install 'aqueue-jobs[fastapi]'") from error

__all__ = ["NamedQueue", "QueueDep", "get_queue", "health_endpoint", "queue_lifespan"]


def _queue_of_the_worker(queue: Queue) -> Queue:
    return queue


# FastAPI sees its own marker alone, a worker the last one: so a dependency that takes the queue serves both.
QueueDep: TypeAlias = Annotated[Queue, Depends(get_queue), DependsInJobs(_queue_of_the_worker)]
"""The application's queue in a route, WebSocket or dependency; in a job's dependency the worker's own.

In tests: `app.dependency_overrides[get_queue] = lambda: queue`.
"""
