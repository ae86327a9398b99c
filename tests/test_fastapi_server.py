"""The examples, and a small service, under a real server: uvicorn, its signals, its reload, many requests."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from support.servers import Program, program, serving

from aqueue import connect
from aqueue.testing import eventually

REQUESTS = 1000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The store that the services share; AQUEUE_HTTP_TEST_URL names another one, empty, to try them on."""
    return os.environ.get("AQUEUE_HTTP_TEST_URL", f"sqlite:///{tmp_path}/jobs.db")


class Example:
    """examples/fastapi_app.py, with its worker inside or apart."""

    def __init__(self, folder: Path, url: str, *, apart: bool) -> None:
        self.mails = folder / "mails.txt"
        self._folder = folder
        self._env = {"AQUEUE_URL": url, "MAILS": str(self.mails)}
        self._apart = apart
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[tuple[Program, ...]]:
        """Run the web service, and its worker if that is apart."""
        self._starts += 1
        app = "examples.fastapi_app:" + ("web" if self._apart else "app")
        with ExitStack() as stack:
            log = self._folder / f"web{self._starts}.log"
            programs = [stack.enter_context(serving(app, env=self._env, log=log))]
            if self._apart:
                log = self._folder / f"worker{self._starts}.log"
                target = ("aqueue", "worker", "examples.fastapi_app:worker")
                programs.append(stack.enter_context(program(*target, env=self._env, log=log)))
            yield tuple(programs)

    def sent(self) -> list[str]:
        """The keys of the mails that were sent, one for each time."""
        text = self.mails.read_text(encoding="utf-8") if self.mails.exists() else ""
        return [json.loads(line)["key"] for line in text.splitlines()]


@pytest.mark.rule("PUSH-3", "STOP-1")
@pytest.mark.parametrize("apart", [False, True], ids=["worker inside", "worker apart"])
async def test_every_accepted_request_has_its_job_run_though_all_is_stopped_in_the_middle(
    apart: bool, tmp_path: Path, url: str
) -> None:
    example = Example(tmp_path, url, apart=apart)
    accepted: list[str] = []

    with example.running() as programs:
        address = await programs[0].address()
        requests = asyncio.create_task(sign_up_many(address, accepted))
        await eventually(lambda: len(accepted) >= REQUESTS // 10, 30)
        for each in programs:
            each.signal(signal.SIGTERM)
        accepted_before = len(accepted)
        await requests
        statuses = [await each.ended() for each in programs]

    assert accepted_before < REQUESTS
    assert statuses == [-signal.SIGTERM, 0][: len(programs)]  # uvicorn ends by its signal, as ever
    assert "Application shutdown complete" in programs[0].printed

    with example.running() as programs:
        await programs[0].address()
        await eventually(lambda: not set(accepted) - set(example.sent()), 30)
        for each in programs:
            each.signal(signal.SIGTERM)
        for each in programs:
            await each.ended()

    sent = example.sent()
    assert len(sent) == len(set(sent)), "a stop in good order runs nothing twice"


async def sign_up_many(address: str, accepted: list[str]) -> None:
    """Sign up a thousand users at once; keep the job ids that the service promised to run."""

    async def sign_up(number: int) -> None:
        body = await post(address, "/signups", {"email": f"user{number}@example.com"})
        if body is not None:
            accepted.append(body["job"])

    async with asyncio.TaskGroup() as group:
        for number in range(REQUESTS):
            group.create_task(sign_up(number))


async def post(address: str, path: str, body: dict[str, str]) -> dict[str, str] | None:
    """Post on a connection of its own, and return the whole answer to an accepted request.

    By hand: a thousand at once keep a client library busier than the server that is tried.
    """
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-type: application/json\r\n"
    url = httpx2.URL(address)
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data)
        answer = await reader.read()
    except OSError:  # refused or cut off by the server's end
        return None
    finally:
        if writer is not None:
            writer.close()
    top, _, content = answer.partition(b"\r\n\r\n")
    if not top.startswith(b"HTTP/1.1 202 "):
        return None
    accepted: dict[str, str] = json.loads(content)
    return accepted


SERVICE = """
import os
from pathlib import Path

import anyio
from fastapi import FastAPI

from aqueue import Worker, connect, job
from aqueue.integrations.fastapi import QueueDep, health_endpoint, queue_lifespan

VERSION = 1
LEDGER, GATE = Path("ledger.txt"), Path("gate.txt")


def tell(word):
    with LEDGER.open("a") as file:
        file.write(word + "\\n")


@job(name="wait")
class Wait:
    async def handle(self) -> None:
        tell(f"started by version {VERSION}")
        while not GATE.exists() and VERSION == 1:
            await anyio.sleep(0.01)
        tell(f"ended by version {VERSION}")


queue = connect(os.environ["AQUEUE_URL"])
worker = Worker(queue, [Wait], grace=float(os.environ["GRACE"]))
app = FastAPI(lifespan=queue_lifespan(queue, worker=worker))
app.add_route("/healthz", health_endpoint(worker))


@app.post("/", status_code=202)
async def push(queue: QueueDep) -> str:
    return await queue.push(Wait())


@app.get("/version")
async def version() -> list[int]:
    return [VERSION, os.getpid()]
"""


class Service:
    """A small service in a folder of its own, whose one job waits for a gate."""

    def __init__(self, folder: Path, url: str) -> None:
        self.module, self.gate = folder / "service.py", folder / "gate.txt"
        self.log = folder / "service.log"
        self.url = url
        self._ledger = folder / "ledger.txt"
        self.module.write_text(SERVICE, encoding="utf-8")

    def env(self, *, grace: float) -> dict[str, str]:
        return {"AQUEUE_URL": self.url, "GRACE": str(grace)}

    def told(self) -> list[str]:
        return self._ledger.read_text(encoding="utf-8").splitlines() if self._ledger.exists() else []

    async def has_told(self, *lines: str) -> None:
        def look() -> None:
            assert self.told() == list(lines)

        await eventually(look, 20)


@pytest.fixture
def service(tmp_path: Path, url: str) -> Service:
    return Service(tmp_path, url)


@pytest.mark.rule("STOP-1", "STOP-2")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)], ids=["SIGTERM", "SIGINT"]
)
async def test_uvicorns_signals_let_what_runs_end_within_the_grace(
    service: Service, number: signal.Signals, status: int
) -> None:
    with serving("service:app", env=service.env(grace=20), log=service.log) as server:
        address = await server.address()
        async with httpx2.AsyncClient(base_url=address) as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.post("/")).status_code == 202
        await service.has_told("started by version 1")

        server.signal(number)
        await server.has_printed("Waiting for application shutdown")
        service.gate.touch()
        ended_with = await server.ended()

    assert service.told() == ["started by version 1", "ended by version 1"]
    assert ended_with == status  # as uvicorn ends without aqueue


@pytest.mark.rule("STOP-1")
async def test_what_outlasts_the_grace_is_given_back_without_an_attempt(service: Service) -> None:
    with serving("service:app", env=service.env(grace=0.1), log=service.log) as server:
        async with httpx2.AsyncClient(base_url=await server.address()) as client:
            await client.post("/")
        await service.has_told("started by version 1")

        server.signal(signal.SIGTERM)
        await server.ended()

    async with connect(service.url) as queue:
        delivery = await queue.pop(timeout=1)
    assert delivery is not None
    assert (delivery.attempt, delivery.lost) == (1, 0)


async def test_a_reload_hands_what_runs_to_the_new_code(service: Service) -> None:
    options = ("--reload", "--reload-dir", str(service.module.parent), "--reload-delay", "0.1")
    with serving("service:app", *options, env=service.env(grace=0.1), log=service.log) as server:
        async with httpx2.AsyncClient(base_url=await server.address(), timeout=20) as client:
            version, first = (await client.get("/version")).json()
            assert version == 1
            await client.post("/")
            await service.has_told("started by version 1")

            service.module.write_text(SERVICE.replace("VERSION = 1", "VERSION = 2", 1), encoding="utf-8")
            await service.has_told("started by version 1", "started by version 2", "ended by version 2")
            version, second = (await client.get("/version")).json()
            assert version == 2

        server.signal(signal.SIGTERM)
        await server.ended()
        await eventually(lambda: not _is_alive(first) and not _is_alive(second))

    assert server.printed.count("Application shutdown complete") == 2


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
