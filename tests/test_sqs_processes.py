"""Real processes on one SQS: each job done once while they live, and nothing lost when they are killed."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from servers import sqs
from servers.reach import check_reachable
from support.ledger import Ledger
from support.process_worker import Count
from support.working import all_settled

from aqueue import connect
from aqueue.testing import eventually

Process = asyncio.subprocess.Process
TESTS = Path(__file__).parent


@pytest.fixture
def url() -> str:
    check_reachable("sqs", sqs.ministack_missing())
    return sqs.fresh_ministack_url()


@pytest.mark.rule("LEASE-1")
async def test_four_processes_drain_one_queue_and_handle_each_job_once(url: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    async with connect(url) as queue:
        ids = await queue.push_many([Count(number) for number in range(1_500)])
        async with working(4, tmp_path, "drain", url, "concurrency=50") as processes:
            await eventually(lambda: len(ledger.entries("ready")) == 4, timeout=60)
            (tmp_path / "go").touch()
            assert [await process.wait() for process in processes] == [0] * 4
        await all_settled(queue)

    starts = ledger.entries("start")
    assert Counter(entry.job for entry in starts) == Counter(ids)
    assert {entry.attempt for entry in starts} == {1}
    assert len({entry.pid for entry in starts}) > 1


@pytest.mark.rule("LEASE-2", "WORK-8")
async def test_kills_and_ends_among_four_processes_lose_nothing(url: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    settings = ("run", url, "lease=2", "concurrency=4", "max_lost=0")
    async with connect(url, lease=2) as queue, working(4, tmp_path, *settings) as processes:
        await eventually(lambda: len(ledger.entries("ready")) == 4, timeout=60)
        ids: list[str] = []
        for round in range(6):
            ids += await queue.push_many([Count(number, seconds=0.05) for number in range(30)])
            started = len(ledger.entries("start"))
            await eventually(lambda before=started: len(ledger.entries("start")) > before, timeout=30)
            victim = processes.pop(0)
            await eventually(lambda pid=victim.pid: pid in pids(ledger), timeout=60)
            victim.send_signal(signal.SIGTERM if round % 3 == 2 else signal.SIGKILL)
            code = await victim.wait()
            assert code == (0 if round % 3 == 2 else -signal.SIGKILL)
            processes.append(await start(tmp_path, *settings))
        await eventually(lambda: {entry.job for entry in ledger.entries("done")} >= set(ids), timeout=60)
        await all_settled(queue, timeout=30)

    assert {entry.job for entry in ledger.entries("done")} == set(ids)


def pids(ledger: Ledger) -> set[int]:
    """Return the processes that have begun to work."""
    return {entry.pid for entry in ledger.entries("ready")}


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
