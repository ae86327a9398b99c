"""`aqueue worker` as a real process, stopped by real signals: what it finishes, gives back and answers."""

import asyncio
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

import aqueue
from aqueue.testing import eventually

pytestmark = pytest.mark.rule("CLI-1")

DOCS = Path(__file__).parent.parent / "docs" / "cli.md"
GRACE = 0.3
PROMISED = 5.0  # seconds beyond the grace (STOP-1)
SLACK = 5.0  # for a machine that does other things too

APP = '''
import asyncio, contextlib, logging, os, time
from pathlib import Path
import aqueue

here = Path(__file__).parent

def started():
    (here / "started").touch()

async def gate():
    while not (here / "go").exists():
        await asyncio.sleep(0.01)

@aqueue.job
class Finishes:
    async def handle(self):
        started()
        await gate()
        (here / "finished").touch()

@aqueue.job
class Waits:
    async def handle(self):
        started()
        await asyncio.sleep(600)

@aqueue.job
class Swallows:
    async def handle(self):
        started()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)

@aqueue.job
class BlocksAThread:
    def handle(self):
        started()
        time.sleep(60)

@aqueue.job
class BlocksTheLoop:
    async def handle(self):
        started()
        time.sleep(60)

JOBS = [Finishes, Waits, Swallows, BlocksAThread, BlocksTheLoop]
GRACE = float(os.environ["GRACE"])

def worker():
    return aqueue.Worker(aqueue.connect_from_env(), JOBS, grace=GRACE, name="w1", poll_timeout=0.2)

async def never():
    started()
    await asyncio.sleep(600)

def hanging():
    """A store that stops answering for good once it is to be closed."""
    made = worker()
    async def hang():
        await asyncio.sleep(600)
    made.queue._store.backend.aclose = hang
    return made

def outage():
    """A store that goes away under a worker told to stop then."""
    made = aqueue.Worker(aqueue.connect_from_env(), JOBS, on_outage="stop")
    async def fail(*_):
        raise aqueue.ConnectionFailed("pop on sqlite was never sent: OSError")
    made.queue._store.backend.pop = fail
    return made
'''


class Program:
    """A running `aqueue` process: its streams are read as they come."""

    def __init__(self, process: asyncio.subprocess.Process, desk: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self._desk = desk
        self._out = asyncio.create_task(process.stdout.read())
        self._err = asyncio.create_task(process.stderr.read()) if process.stderr is not None else None

    async def has_started(self) -> None:
        await eventually((self._desk / "started").exists, timeout=20)

    def signal(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.process.send_signal(number)

    async def ends(self, within: float = GRACE + PROMISED + SLACK) -> tuple[int, str, str]:
        """Wait for the end; return the status, stdout and stderr, which never holds a traceback."""
        async with asyncio.timeout(within):
            status = await self.process.wait()
            out, err = (await self._out).decode(), (await self._err).decode() if self._err is not None else ""
        assert "Traceback" not in err
        return status, out, err


class Desk:
    """A directory with an application and its store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path / 'jobs.db'}"
        (path / "service_app.py").write_text(APP)

    @asynccontextmanager
    async def program(
        self, *args: str, stderr: int = asyncio.subprocess.PIPE, **env: str
    ) -> AsyncIterator[Program]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "aqueue",
            *args,
            cwd=self.path,
            env={**os.environ, "AQUEUE_URL": self.url, "GRACE": str(GRACE), **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
        try:
            yield Program(process, self.path)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def push(self, kind: str, *, url: str = "", wire_name: str = "", **args: str) -> None:
        """Push a job of the application by its wire name: who pushes need not have its code."""
        shape = type(kind, (), {"__annotations__": dict.fromkeys(args, str)})
        declared = aqueue.job(name=wire_name or f"service_app.{kind}")(shape)
        async with aqueue.connect(url or self.url) as queue:
            await queue.push(declared(**args))

    async def assert_given_back_uncounted(self) -> None:
        async with aqueue.connect(self.url) as queue:
            delivery = await queue.pop(timeout=0.5)
            assert delivery is not None, "the job was not given back"
            assert (delivery.attempt, delivery.lost) == (1, 0)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.rule("STOP-1", "STOP-2")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_running_job_end(desk: Desk, number: signal.Signals, loop: str) -> None:
    pytest.importorskip(loop)
    await desk.push("Finishes")

    async with desk.program("worker", "service_app:worker", "--loop", loop, GRACE="20") as program:
        await program.has_started()
        program.signal(number)
        (desk.path / "go").touch()
        status, out, err = await program.ends()

    assert (status, out) == (0, "")
    assert (desk.path / "finished").exists()
    assert f"worker w1 takes jobs from default on sqlite (aqueue {version('aqueue-jobs')}, {loop})" in err
    assert f"{number.name}: no new work" in err
    assert f"worker w1 stopped by {number.name}" in err


@pytest.mark.rule("STOP-1", "STOP-2", "ATT-1")
@pytest.mark.parametrize("job", ["Waits", "Swallows", "BlocksAThread"])
async def test_a_job_that_outlasts_the_grace_is_given_back_and_holds_nobody(desk: Desk, job: str) -> None:
    await desk.push(job)

    async with desk.program("worker", "service_app:worker") as program:
        await program.has_started()
        program.signal(signal.SIGTERM)
        status, _, _ = await program.ends()

    assert status == 0
    await desk.assert_given_back_uncounted()


@pytest.mark.rule("STOP-1")
async def test_a_handler_that_blocks_the_loop_does_not_hold_the_process(desk: Desk) -> None:
    await desk.push("BlocksTheLoop")

    async with desk.program("worker", "service_app:worker") as program:
        await program.has_started()
        program.signal(signal.SIGTERM)
        status, _, err = await program.ends()

    assert status == 1  # nothing could be given back: its lease will do that
    assert "did not end in time" in err


@pytest.mark.rule("STOP-1")
async def test_a_store_that_hangs_does_not_hold_the_process(desk: Desk) -> None:
    await desk.push("Waits")

    async with desk.program("worker", "service_app:hanging") as program:
        await program.has_started()
        program.signal(signal.SIGTERM)
        status, _, err = await program.ends()

    assert status == 0
    assert "the store did not close" in err
    await desk.assert_given_back_uncounted()


@pytest.mark.rule("STOP-2", "ATT-1")
@pytest.mark.parametrize(
    ("job", "loop"), [("Waits", "asyncio"), ("Waits", "uvloop"), ("BlocksAThread", "auto")]
)
async def test_a_second_signal_gives_everything_back_at_once(desk: Desk, job: str, loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip(loop)
    await desk.push(job)

    async with desk.program("worker", "service_app:worker", "--loop", loop, GRACE="600") as program:
        await program.has_started()
        program.signal(signal.SIGTERM, signal.SIGINT)
        status, _, err = await program.ends()

    assert status == 1
    assert "giving everything back at once" in err
    await desk.assert_given_back_uncounted()


@pytest.mark.rule("STOP-2")
async def test_a_signal_while_the_worker_is_being_made_ends_the_process(desk: Desk) -> None:
    async with desk.program("worker", "service_app:never") as program:
        await program.has_started()
        program.signal(signal.SIGTERM)
        status, _, err = await program.ends()

    assert status == 0
    assert "before the worker has started" in err


@pytest.mark.rule("WORK-8")
async def test_an_outage_that_stops_the_worker_is_one_line_and_status_1(desk: Desk) -> None:
    async with desk.program("worker", "service_app:outage", "--log-level", "critical") as program:
        status, out, err = await program.ends()

    assert (status, out) == (1, "")
    assert err == "aqueue: pop on sqlite was never sent: OSError\n"


async def test_with_json_each_log_line_and_the_ending_are_json(desk: Desk) -> None:
    await desk.push("Waits")

    async with desk.program("worker", "service_app:worker", "--json") as program:
        await program.has_started()
        program.signal(signal.SIGTERM)
        status, out, err = await program.ends()

    told = json.loads(out)
    assert (told["worker"], told["signals"], told["status"], status) == ("w1", ["SIGTERM"], 0, 0)
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert lines[0]["message"].startswith("worker w1 takes jobs from default")
    assert lines[-1]["message"].startswith("worker w1 stopped")


async def test_an_application_that_sets_up_logging_itself_is_left_alone(desk: Desk) -> None:
    (desk.path / "own_logs.py").write_text(
        "import logging\n"
        "from service_app import *\n"
        "logging.basicConfig(level='INFO', format='OWN %(message)s')\n"
    )
    await desk.push("Waits")

    async with desk.program("worker", "own_logs:worker") as program:
        await program.has_started()
        program.signal(signal.SIGTERM)
        _, _, err = await program.ends()

    assert all(line.startswith("OWN ") for line in err.splitlines())
    assert "OWN worker w1 takes jobs" in err


async def test_the_worker_of_the_documentation_works(desk: Desk) -> None:
    [code] = re.findall(r"```python\n(# shop/jobs\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    (desk.path / "shop").mkdir()
    (desk.path / "shop" / "jobs.py").write_text(code)
    url = f"sqlite:///{desk.path / 'shop.db'}"
    await desk.push("Greet", url=url, wire_name="shop.jobs.Greet", name="Ada")

    async with desk.program("worker", "shop.jobs:worker", PYTHONUNBUFFERED="1") as program:
        async with aqueue.connect(url) as queue:
            await eventually(lambda: _is_drained(queue), timeout=20)
        program.signal(signal.SIGTERM)
        status, out, _ = await program.ends()

    assert (status, out) == (0, "hello, Ada\n")


async def _is_drained(queue: aqueue.Queue) -> bool:
    stats = await queue.stats()
    return stats.ready + stats.leased == 0


@pytest.mark.rule("FAIL-2")
@pytest.mark.parametrize(
    ("command", "label", "result"),
    [
        (("retry", "--all"), "retrying", "3 jobs put back"),
        (("purge", "--older-than", "0"), "purging", "3 jobs purged"),
    ],
)
async def test_a_terminal_sees_progress(
    desk: Desk, command: tuple[str, ...], label: str, result: str
) -> None:
    await _fail_some(desk.url, 3)

    status, out, seen = await _on_a_terminal(desk, "failed", *command)

    assert (status, out) == (0, f"{result}\n")
    assert label in seen
    assert "100%" in seen


async def _fail_some(url: str, count: int) -> None:
    note = aqueue.job(name="note")(type("Note", (), {}))
    async with aqueue.connect(url) as queue:
        await queue.push_many([note() for _ in range(count)])
        for _ in range(count):
            delivery = await queue.pop(timeout=5)
            assert delivery is not None
            await queue.fail(delivery)


async def _on_a_terminal(desk: Desk, *args: str) -> tuple[int, str, str]:
    """Run a command whose stderr is a terminal; return its status, its stdout and what the terminal got."""
    terminal, its_end = pty.openpty()
    try:
        async with desk.program(*args, stderr=its_end) as program:
            status, out, _ = await program.ends()
        return status, out, os.read(terminal, 65536).decode()
    finally:
        os.close(terminal)
        os.close(its_end)
