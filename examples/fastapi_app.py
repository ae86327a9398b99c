"""A web service that answers at once and leaves the slow part, a mail to every new user, to a job.

Web and worker in one process:

    uvicorn examples.fastapi_app:app

The same service with its worker apart, as many of each as you like:

    uvicorn examples.fastapi_app:web
    aqueue worker examples.fastapi_app:worker

Then

    curl localhost:8000/signups --json '{"email": "ann@example.com"}'
    curl localhost:8000/invitations --json '{"email": "bob@example.com", "by": "ann@example.com"}'
    curl localhost:8000/mails

The queue is a SQLite file here, or whatever AQUEUE_URL names. "Sending" a mail adds a line to a file.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from pydantic import BaseModel

from aqueue import Backoff, Delivery, Dispatcher, Worker, connect, job
from aqueue.integrations.fastapi import QueueDep, health_endpoint, queue_lifespan

URL = os.environ.get("AQUEUE_URL", "sqlite:///fastapi_app.db")
MAILS = Path(os.environ.get("MAILS", "mails.txt"))

# Opens nothing; the lifespan does, or `aqueue worker`.
queue = connect(URL)


class Mailer:
    """Stands in for a mail server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(self, key: str, to: str) -> None:
        """Send a mail; a real server would be given the key too, to recognise a mail that is sent again."""
        await anyio.to_thread.run_sync(self._append, json.dumps({"key": key, "to": to}))

    async def sent(self) -> list[str]:
        """Return whom mails were sent to."""
        text = await anyio.to_thread.run_sync(self._read)
        return [json.loads(line)["to"] for line in text.splitlines()]

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def _read(self) -> str:
        return self._path.read_text(encoding="utf-8") if self._path.exists() else ""


def get_mailer() -> Mailer:
    return Mailer(MAILS)


# One dependency, for routes and for jobs alike.
MailerDep = Annotated[Mailer, Depends(get_mailer)]


@job(name="mails.welcome", queue="mails", max_attempts=5, backoff=Backoff.exponential(1, 60))
class SendWelcome:
    to: str

    async def handle(self, delivery: Delivery, mailer: MailerDep) -> None:
        await mailer.send(delivery.id, self.to)


@dataclass(frozen=True)
class Invited:
    """An event: the route that says it happened knows none of those who listen."""

    email: str
    by: str


dispatcher = Dispatcher(queue)


@dispatcher.listen(Invited)
def refuse_the_blocked(event: Invited) -> None:
    if event.email.endswith("@blocked.example"):
        raise HTTPException(403, "this domain wants no mail")


@dispatcher.listen(Invited, queued=True, queue="mails", name="mails.invitation", max_attempts=5)
async def invite(event: Invited, delivery: Delivery, mailer: MailerDep) -> None:
    await mailer.send(delivery.id, event.email)


@dispatcher.listen(Invited, queued=True, queue="mails", name="mails.invited", max_attempts=5)
async def thank(event: Invited, delivery: Delivery, mailer: MailerDep) -> None:
    await mailer.send(delivery.id, event.by)


class SignUp(BaseModel):
    email: str


class Accepted(BaseModel):
    """Promises that the job is stored: it will run, whatever happens to this process."""

    job: str


routes = APIRouter()


@routes.post("/signups", status_code=202)
async def sign_up(user: SignUp, queue: QueueDep) -> Accepted:
    return Accepted(job=await queue.push(SendWelcome(user.email)))


@routes.post("/invitations", status_code=202)
async def invited(event: Invited) -> None:
    await dispatcher.dispatch(event)


@routes.get("/mails")
async def mails(mailer: MailerDep) -> list[str]:
    return await mailer.sent()


worker = Worker(queue, [SendWelcome, *dispatcher.jobs], queues=["mails"], concurrency=20, grace=10)

web = FastAPI(title="web, its worker apart", lifespan=queue_lifespan(queue))
web.include_router(routes)

app = FastAPI(title="web and worker in one", lifespan=queue_lifespan(queue, worker=worker))
app.include_router(routes)
app.add_route("/healthz", health_endpoint(worker))
