"""Real processes on one SQLite file: exactly once while they live, nothing lost when they are killed."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.ledger import Entry, Ledger
from support.process_worker import Count, Poison

from aqueue import Queue, connect
from aqueue.testing import eventually

Process = asyncio.subprocess.Process
TESTS = Path(__file__).parent


@pytest.mark.rule("POP-5", "FENCE-1")
async def test_six_processes_drain_one_queue_and_handle_each_job_exactly_once(tmp_path: Path) -> None:
    url, ledger = f"sqlite:///{tmp_path / 'jobs.db'}", Ledger(tmp_path / "ledger")
    async with connect(url) as queue:
        ids = await queue.push_many([Count(number) for number in range(3000)])
        processes = [await start(tmp_path, "drain", url, "concurrency=50") for _ in range(6)]
        await eventually(lambda: len(ledger.entries("ready")) == 6, timeout=30)
        (tmp_path / "go").touch()
        assert [await process.wait() for process in processes] == [0] * 6

        starts = ledger.entries("start")
        assert Counter(entry.job for entry in starts) == Counter(ids)
        assert Counter(entry.job for entry in ledger.entries("done")) == Counter(ids)
        assert {entry.attempt for entry in starts} == {1}
        assert len({entry.pid for entry in starts}) == 6
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)


@pytest.mark.rule("LEASE-2", "ATT-1")
async def test_ten_kills_in_the_middle_of_jobs_lose_nothing_and_delay_each_by_its_lease(
    tmp_path: Path,
) -> None:
    """Measured from the ledger, whose entries are on disk before a handler goes on."""
    lease, url, ledger = 2.0, f"sqlite:///{tmp_path / 'jobs.db'}", Ledger(tmp_path / "ledger")
    kills: dict[int, float] = {}
    async with connect(url, lease=lease) as queue:
        ids: list[str] = []
        async with supervised(tmp_path, url, f"lease={lease}", "concurrency=4", "max_lost=0") as supervisor:
            for _ in range(10):
                ids += await queue.push_many([Count(number, seconds=0.3) for number in range(6)])
                await eventually(lambda: is_well_under_way(ledger, supervisor.pid), timeout=30)
                kills[supervisor.pid] = time.time()
                await supervisor.kill(signal.SIGKILL)
            await eventually(lambda: {entry.job for entry in ledger.entries("done")} == set(ids), timeout=60)
            await nothing_left(queue)

    entries = ledger.entries()
    interrupted = [
        entry
        for entry in entries
        if entry.event == "start" and entry.pid in kills and not has_ended(entry, entries)
    ]
    assert len(kills) == 10
    assert len(interrupted) >= 10
    for entry in interrupted:
        again = min(
            (
                other.at
                for other in entries
                if (other.event, other.job) == ("start", entry.job) and other.at > entry.at
            ),
            default=None,
        )
        assert again is not None, f"job {entry.job} never came back"
        assert again - kills[entry.pid] <= lease + 5
    lost = Counter(entry.job for entry in interrupted)
    attempts = {entry.job: entry.attempt for entry in entries if entry.event == "done"}
    assert all(attempts[job_id] >= 1 + lost[job_id] for job_id in ids)


@pytest.mark.rule("ATT-3")
async def test_a_job_that_kills_its_process_is_set_aside_and_the_healthy_ones_finish(tmp_path: Path) -> None:
    """Case O-16."""
    url, ledger = f"sqlite:///{tmp_path / 'jobs.db'}", Ledger(tmp_path / "ledger")
    async with connect(url, lease=1.0) as queue:
        poison = await queue.push(Poison())
        healthy = await queue.push_many([Count(number) for number in range(10)])
        async with supervised(tmp_path, url, "lease=1", "concurrency=1", "max_lost=2"):
            await eventually(lambda: failed_count(queue, 1), timeout=40)
            await eventually(
                lambda: {entry.job for entry in ledger.entries("done")} == set(healthy), timeout=30
            )
            await nothing_left(queue)

        starts = Counter(entry.job for entry in ledger.entries("start"))
        assert starts[poison] == 2
        assert all(starts[job_id] == 1 for job_id in healthy)
        (failed,) = await queue.failed.list()
        assert (failed.id, failed.reason, failed.lost) == (poison, "lost", 2)


@pytest.mark.rule("STOP-1", "ATT-1")
async def test_five_deploys_in_the_middle_of_a_job_burn_none_of_its_attempts(tmp_path: Path) -> None:
    """Case O-03."""
    url, ledger = f"sqlite:///{tmp_path / 'jobs.db'}", Ledger(tmp_path / "ledger")
    grace = 0.2
    async with connect(url) as queue:
        job_id = await queue.push(Count(1, seconds=600.0), max_attempts=3)
        for deploy in range(1, 6):
            process = await start(tmp_path, "run", url, f"grace={grace}", "max_lost=1")
            await eventually(lambda number=deploy: len(ledger.entries("start")) == number, timeout=30)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(grace + 5):
                assert await process.wait() == 0
        (delivery,) = await queue.pop_now(1)
        assert (delivery.id, delivery.attempt, delivery.lost) == (job_id, 1, 0)
        assert [entry.attempt for entry in ledger.entries("start")] == [1] * 5
        assert not ledger.entries("done")


class Supervisor:
    """Keeps one worker process going: whenever it ends, it starts another at once."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self._directory = tmp_path
        self._arguments = arguments
        self._process: Process | None = None
        self._restarted = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None
        return self._process.pid

    async def watch(self) -> None:
        """Start it, and again whenever it has ended."""
        while True:
            self._process = await start(self._directory, "run", *self._arguments)
            self._restarted.set()
            await self._process.wait()

    async def kill(self, signal_number: int) -> None:
        """Send a signal, and wait until another process has taken over."""
        self._restarted.clear()
        os.kill(self.pid, signal_number)
        await self._restarted.wait()

    async def end(self) -> None:
        """Kill what runs, for good."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def supervised(tmp_path: Path, *arguments: str) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(tmp_path, *arguments)
    watching = asyncio.create_task(supervisor.watch())
    await eventually(lambda: supervisor._process is not None)
    try:
        yield supervisor
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        await supervisor.end()


async def start(tmp_path: Path, mode: str, url: str, *settings: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "support.process_worker",
        str(tmp_path / "ledger"),
        mode,
        url,
        *settings,
        cwd=TESTS,
    )


async def nothing_left(queue: Queue) -> None:
    async def drained() -> None:
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.leased) == (0, 0, 0), f"{stats}"

    await eventually(drained, timeout=30)


async def failed_count(queue: Queue, expected: int) -> bool:
    return await queue.failed.count() == expected


def is_well_under_way(ledger: Ledger, pid: int) -> bool:
    """Say whether this process has done some of the work, so that no backlog grows, and is doing more."""
    entries = ledger.entries()
    mine = [entry for entry in entries if entry.event == "start" and entry.pid == pid]
    ended = [has_ended(entry, entries) for entry in mine]
    return ended.count(True) >= 4 and ended.count(False) >= 1


def has_ended(start: Entry, entries: list[Entry]) -> bool:
    """Say whether this very run of the job came to its end."""
    return any((other.event, other.job, other.pid) == ("done", start.job, start.pid) for other in entries)
