"""Real processes on one broker: exactly once while they live, and nothing lost when they are killed."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from servers.rabbitmq import fresh_url, unreachable
from servers.reach import check_reachable
from support.ledger import Ledger
from support.process_worker import Count
from support.working import all_settled

from aqueue import connect
from aqueue.testing import eventually

Process = asyncio.subprocess.Process
TESTS = Path(__file__).parent


@pytest.fixture(params=["quorum", "classic"])
def url(request: pytest.FixtureRequest) -> str:
    check_reachable("rabbitmq", unreachable())
    return fresh_url(request.param)


@pytest.mark.rule("POP-5")
async def test_six_processes_drain_one_queue_and_handle_each_job_exactly_once(
    url: str, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    async with connect(url) as queue:
        ids = await queue.push_many([Count(number) for number in range(3_000)])
        async with working(6, tmp_path, "drain", url, "concurrency=50") as processes:
            await eventually(lambda: len(ledger.entries("ready")) == 6, timeout=60)
            (tmp_path / "go").touch()
            assert [await process.wait() for process in processes] == [0] * 6
        await all_settled(queue)

    starts = ledger.entries("start")
    assert Counter(entry.job for entry in starts) == Counter(ids)
    assert {entry.attempt for entry in starts} == {1}
    assert len({entry.pid for entry in starts}) > 1


@pytest.mark.rule("LEASE-1", "LEASE-2", "WORK-8")
async def test_ten_kills_among_six_processes_lose_nothing(url: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    settings = ("run", url, "concurrency=4", "max_lost=0")
    async with connect(url) as queue, working(6, tmp_path, *settings) as processes:
        await eventually(lambda: len(ledger.entries("ready")) == 6, timeout=60)
        ids: list[str] = []
        for _ in range(10):
            ids += await queue.push_many([Count(number, seconds=0.05) for number in range(30)])
            started = len(ledger.entries("start"))
            await eventually(lambda before=started: len(ledger.entries("start")) > before, timeout=30)
            victim = processes.pop(0)
            victim.send_signal(signal.SIGKILL)
            await victim.wait()
            processes.append(await start(tmp_path, *settings))
        await eventually(lambda: {entry.job for entry in ledger.entries("done")} >= set(ids), timeout=60)
        await all_settled(queue, timeout=30)

    assert {entry.job for entry in ledger.entries("done")} == set(ids)


@asynccontextmanager
async def working(count: int, tmp_path: Path, *arguments: str) -> AsyncIterator[list[Process]]:
    """Run worker processes, and kill those that are left at the end."""
    processes = [await start(tmp_path, *arguments) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def start(tmp_path: Path, mode: str, url: str, *settings: str) -> Process:
    command = (sys.executable, "-m", "support.process_worker", str(tmp_path / "ledger"), mode, url, *settings)
    return await asyncio.create_subprocess_exec(*command, cwd=TESTS)
