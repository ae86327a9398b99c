"""What the tests of the command line share: commands run in this process, and jobs for them to find."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count

import pytest
from click.testing import CliRunner, Result

import aqueue
from aqueue.cli import main
from aqueue.connection import open_backend
from aqueue.errors import MalformedJobSettled
from aqueue.port import Message, StoreOptions

numbers = count()


@aqueue.job(name="mail", max_attempts=1)
class Mail:
    to: str
    token: aqueue.Sensitive[str] = "s3cret-token"

    async def handle(self) -> None:
        raise ValueError(f"no such \x1b[31muser\nat all: {self.to}")


@aqueue.job(name="report")
class Report:
    number: int

    async def handle(self) -> None:
        raise LookupError("no data")


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def answer(*args: str) -> object:
    """What a successful command prints on stdout, as JSON and nothing else."""
    result = run(*args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def refusal(*args: str, status: int) -> str:
    """The one line with which a command refuses; nothing is printed on stdout."""
    result = run(*args)
    assert (result.exit_code, result.stdout) == (status, "")
    assert re.fullmatch(r"aqueue: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


def on_store(url: str, action: Callable[[aqueue.Queue], Awaitable[object]]) -> None:
    async def act() -> None:
        async with aqueue.connect(url) as queue:
            await action(queue)

    asyncio.run(act())


def push(url: str, *jobs: object, queue: str = "default", delay: float = 0) -> None:
    on_store(url, lambda store: store.push_many(jobs, queue=queue, delay=delay))


def fail(url: str, *jobs: object, queue: str = "default", side_by_side: int = 1) -> None:
    """Let each job fail for good, in order unless side by side."""
    push(url, *jobs, queue=queue)

    def worker(store: aqueue.Queue) -> aqueue.Worker:
        return aqueue.Worker(store, [Mail, Report], queues=[queue], concurrency=side_by_side)

    on_store(url, lambda store: worker(store).run_all())


def fail_unreadably(url: str, id: str) -> None:
    async def spoil(queue: aqueue.Queue) -> None:
        backend = open_backend(url, StoreOptions(lease=60.0, clock=lambda: datetime.now(UTC).timestamp()))
        await backend.open()
        await backend.push([Message(id, "default", b"not an envelope")])
        await backend.aclose()
        with pytest.raises(MalformedJobSettled):
            await queue.pop(timeout=5)

    on_store(url, spoil)


def failed_ids(*args: str) -> list[str]:
    listed = answer("failed", "list", *args)
    assert isinstance(listed, list)
    return [job["id"] for job in listed]
