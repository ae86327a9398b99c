"""Several processes on one SQLite file: each job once, the dead one's jobs back, the living ones woken."""

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from aqueue import Queue, connect, job
from aqueue.backends._sqlite_watch import FileWatch

PREAMBLE = """
import asyncio, os, sys
from aqueue import connect, job

@job(name="sqlite.numbered")
class Numbered:
    number: int

url = sys.argv[1]
"""

DRAIN = """
async def main():
    async with connect(url) as queue:
        while batch := await queue.pop_many(7, timeout=1.0):
            for delivery in batch:
                print(delivery.args["number"])
            await asyncio.gather(*[queue.ack(delivery) for delivery in batch])

asyncio.run(main())
"""

DIE = """
async def main():
    queue = connect(url, lease=0.2)
    await queue.open()
    await queue.pop_many(10)
    os._exit(9)

asyncio.run(main())
"""

PUSH = """
async def main():
    async with connect(url) as queue:
        await queue.push(Numbered(7))

asyncio.run(main())
"""

FORGET = """
async def main():
    queue = connect(url)
    await queue.open()
    await queue.push(Numbered(1))
    print("stored")

asyncio.run(main())
"""


@job(name="sqlite.numbered")
class Numbered:
    number: int


async def run(script: str, url: str) -> tuple[int | None, list[str]]:
    """Run the script in a process of its own; return its exit status and the lines it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PREAMBLE + script, url, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode().split()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.mark.rule("POP-5")
async def test_six_processes_drain_one_queue_and_take_each_job_once(url: str) -> None:
    async with connect(url) as queue:
        await queue.push_many([Numbered(number) for number in range(3000)])

        runs = await asyncio.gather(*[run(DRAIN, url) for _ in range(6)])

        assert [status for status, _ in runs] == [0] * 6
        taken = Counter(int(number) for _, numbers in runs for number in numbers)
        assert taken == Counter(range(3000))
        assert sum(bool(numbers) for _, numbers in runs) > 1
        await assert_empty(queue)


async def assert_empty(queue: Queue) -> None:
    stats = await queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)


@pytest.mark.rule("LEASE-2", "ATT-1")
async def test_what_a_killed_process_held_comes_back_when_its_lease_is_over(url: str) -> None:
    async with connect(url) as queue:
        await queue.push_many([Numbered(number) for number in range(3)])
        status, _ = await run(DIE, url)
        assert status == 9

        first = await queue.pop(timeout=30)
        others = await queue.pop_many(10, timeout=30)

        assert first is not None
        found = [first, *others]
        assert [(delivery.args["number"], delivery.attempt, delivery.lost) for delivery in found] == [
            (0, 2, 1),
            (1, 2, 1),
            (2, 2, 1),
        ]


@pytest.mark.rule("POP-3")
async def test_a_waiting_pop_is_woken_by_another_process(url: str) -> None:
    async with connect(url) as queue:
        waiting = asyncio.create_task(queue.pop(timeout=60))

        await run(PUSH, url)
        delivery = await waiting

        assert delivery is not None
        assert delivery.args == {"number": 7}


# A commit is written to the WAL before it is synced, and shows to readers only after: a sweep in between
# finds nothing, and nothing in the files changes any more. So a file that fresh proves no emptiness.
@pytest.mark.rule("POP-3")
@pytest.mark.parametrize(
    ("database_age", "wal_age", "is_settled"),
    [(10.0, 10.0, True), (10.0, 0.05, False), (0.0, 10.0, False), (-3600.0, 10.0, True)],
)
def test_files_written_a_moment_ago_prove_no_emptiness(
    tmp_path: Path, database_age: float, wal_age: float, is_settled: bool
) -> None:
    for name, age in (("jobs.db", database_age), ("jobs.db-wal", wal_age)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)

    signature = FileWatch(tmp_path / "jobs.db").signature()

    assert (signature is not None) is is_settled


async def test_a_queue_that_nobody_closed_does_not_keep_its_process(url: str) -> None:
    status, printed = await run(FORGET, url)

    assert (status, printed) == (0, ["stored"])
    async with connect(url) as queue:
        assert await queue.size() == 1
