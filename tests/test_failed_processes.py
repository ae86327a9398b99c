"""Processes that put failed jobs back at the same time, or are killed in between: each job in one place."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from aqueue import Queue, connect, job
from aqueue.testing import eventually

PREAMBLE = """
import asyncio, os, sys
from aqueue import connect, job
from aqueue.backends.sqlite import SQLiteBackend

@job(name="failed.numbered")
class Numbered:
    number: int

url, failed, *rest = sys.argv[1:]
failed = failed or None

async def die(*args, **kwargs):
    os._exit(9)
"""

RETRY_FIFTY_TIMES = """
async def main():
    async with connect(url, failed=failed) as queue:
        print("ready", flush=True)
        sys.stdin.readline()
        answers = await asyncio.gather(*(queue.failed.retry(rest[0]) for _ in range(50)))
        print(answers.count(True))

asyncio.run(main())
"""

DIE_BEFORE_SETTLING = """
async def main():
    async with connect(url, failed=failed, lease=1.0) as queue:
        delivery = await queue.pop(timeout=10)
        SQLiteBackend.ack = die
        await queue.fail(delivery, "first")

asyncio.run(main())
"""

DIE_BEFORE_REMOVING = """
async def main():
    async with connect(url, failed=failed) as queue:
        SQLiteBackend.failed_discard = die
        await queue.failed.retry(rest[0])

asyncio.run(main())
"""

RETRY_ALL = """
async def main():
    async with connect(url, failed=failed) as queue:
        await queue.failed.retry_all(rate=1000, watch=lambda one: print(one.id, flush=True))

asyncio.run(main())
"""


@job(name="failed.numbered")
class Numbered:
    number: int


@pytest.fixture(params=["one store", "two stores"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where the jobs are, and where the failed ones if not there too."""
    failed = f"sqlite:///{tmp_path / 'failed.db'}" if request.param == "two stores" else ""
    return f"sqlite:///{tmp_path / 'jobs.db'}", failed


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    return f"sqlite:///{tmp_path / 'jobs.db'}", f"sqlite:///{tmp_path / 'failed.db'}"


def opened(urls: tuple[str, str]) -> Queue:
    return connect(urls[0], failed=urls[1] or None)


async def started(script: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PREAMBLE + script,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def ended(script: str, *arguments: str) -> int:
    process = await started(script, *arguments)
    await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def fail_many(queue: Queue, count: int) -> list[str]:
    await queue.push_many([Numbered(number) for number in range(count)])
    ids: list[str] = []
    while len(ids) < count:
        deliveries = await queue.pop_many(count - len(ids), timeout=30)
        await asyncio.gather(*(queue.fail(delivery) for delivery in deliveries))
        ids += [delivery.id for delivery in deliveries]
    return ids


async def drained(queue: Queue) -> list[str]:
    """Run every job there is, and return their ids."""
    ids: list[str] = []
    while deliveries := await queue.pop_now(500):
        await asyncio.gather(*(queue.ack(delivery) for delivery in deliveries))
        ids += [delivery.id for delivery in deliveries]
    return ids


@pytest.mark.rule("FAIL-2")
async def test_two_hundred_retries_in_four_processes_put_a_job_back_once(urls: tuple[str, str]) -> None:
    async with opened(urls) as queue:
        [id] = await fail_many(queue, 1)
        processes = [await started(RETRY_FIFTY_TIMES, *urls, id) for _ in range(4)]
        for process in processes:
            assert process.stdout is not None
            assert (await process.stdout.readline()).strip() == b"ready"
        ran: list[str] = []

        async def all_ended() -> bool:
            ran.extend(await drained(queue))  # a worker may be done with the job before the last one asks
            return all(process.returncode is not None for process in processes)

        said = [asyncio.create_task(process.communicate(b"\n")) for process in processes]
        await eventually(all_ended, 60)
        ran += await drained(queue)

        answers = [int((await output)[0]) for output in said]
        assert sum(answers) == 1, answers
        assert ran == [id]
        assert await queue.failed.count() == 0


@pytest.mark.rule("FAIL-1")
async def test_a_process_killed_between_record_and_settlement_leaves_the_job_and_one_record(
    two: tuple[str, str],
) -> None:
    async with opened(two) as queue:
        id = await queue.push(Numbered(1))

        assert await ended(DIE_BEFORE_SETTLING, *two) == 9

        assert [(failed.id, failed.reason) for failed in await queue.failed.list()] == [(id, "first")]
        again = await queue.pop(timeout=30)
        assert again is not None
        assert (again.id, again.attempt, again.lost) == (id, 2, 1)
        await queue.fail(again, "second")
        assert [(failed.id, failed.reason) for failed in await queue.failed.list()] == [(id, "second")]
        assert await queue.size() == 0


@pytest.mark.rule("FAIL-2")
async def test_a_process_killed_between_push_and_removal_neither_loses_nor_doubles_the_job(
    two: tuple[str, str],
) -> None:
    async with opened(two) as queue:
        [id] = await fail_many(queue, 1)

        assert await ended(DIE_BEFORE_REMOVING, *two, id) == 9

        assert await queue.failed.count() == 1
        assert await drained(queue) == [id]
        assert await queue.failed.retry(id) is False, "it was put back before"
        assert await drained(queue) == []
        assert await queue.failed.count() == 0


@pytest.mark.rule("FAIL-6")
async def test_a_process_killed_while_it_puts_a_thousand_jobs_back_leaves_each_in_one_place(
    urls: tuple[str, str],
) -> None:
    async with opened(urls) as queue:
        ids = await fail_many(queue, 1000)
        process = await started(RETRY_ALL, *urls)
        assert process.stdout is not None
        for _ in range(120):
            await process.stdout.readline()

        os.kill(process.pid, signal.SIGKILL)
        await process.communicate()

        failed = {one.id for one in await queue.failed.list(limit=2000)}
        back = await drained(queue)
        assert failed | set(back) == set(ids)
        assert len(failed & set(back)) <= (100 if urls[1] else 0), "more than what was under way is in both"
        assert 100 <= len(back) < 1000
        await queue.failed.retry_all()
        back += await drained(queue)
        assert sorted(back) == sorted(ids), "a job was lost, or ran twice"
        assert await queue.failed.count() == 0
