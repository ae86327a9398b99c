"""A Litestar service with its worker inside.

    uvicorn examples.litestar_app:app
    curl -X POST 'localhost:8000/greetings?name=Ann'

The queue is a SQLite file here, or whatever AQUEUE_URL names.
"""

import os

from litestar import Litestar, post
from litestar.params import FromQuery

from aqueue import Worker, connect, job
from aqueue.integrations.litestar import QueueDep, QueuePlugin, health_route


@job(name="greet")
class Greet:
    name: str

    async def handle(self) -> None:
        print(f"Hello, {self.name}!", flush=True)


@post("/greetings", status_code=202)
async def greet(name: FromQuery[str], queue: QueueDep) -> dict[str, str]:
    return {"job": await queue.push(Greet(name))}


queue = connect(os.environ.get("AQUEUE_URL", "sqlite:///litestar_app.db"))
worker = Worker(queue, [Greet], grace=10)

app = Litestar([greet, health_route(worker)], plugins=[QueuePlugin(queue, worker=worker)])
