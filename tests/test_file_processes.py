"""Several processes on one directory: each job once, the dead one's jobs back, the living ones woken."""

import asyncio
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.file_hand import troubles
from support.ledger import Entry, Ledger

from aqueue import Delivery, Queue, connect, job

TESTS = Path(__file__).parent

PREAMBLE = """
import asyncio, os, sys
from aqueue import connect, job

@job(name="file.numbered")
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

PUSH_ONE_ID = """
async def main():
    async with connect(url) as queue:
        for number in range(100):
            await queue.push(Numbered(number), id=f"{number:032x}")

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


@job(name="file.numbered")
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
    return f"file://{tmp_path}/jobs"


async def assert_empty(queue: Queue) -> None:
    stats = await queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)


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


@pytest.mark.rule("PUSH-10")
async def test_processes_that_push_the_same_ids_at_once_store_each_once(url: str) -> None:
    runs = await asyncio.gather(*[run(PUSH_ONE_ID, url) for _ in range(4)])

    assert [status for status, _ in runs] == [0] * 4
    async with connect(url) as queue:
        assert await queue.size() == 100


@pytest.mark.rule("LEASE-2", "ATT-1")
async def test_what_a_killed_process_held_comes_back_when_its_lease_is_over(url: str) -> None:
    async with connect(url) as queue:
        await queue.push_many([Numbered(number) for number in range(3)])
        status, _ = await run(DIE, url)
        assert status == 9

        found: list[Delivery] = []
        while len(found) < 3:
            found += await queue.pop_many(10, timeout=30)

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


async def test_a_queue_that_nobody_closed_does_not_keep_its_process(url: str) -> None:
    status, printed = await run(FORGET, url)

    assert (status, printed) == (0, ["stored"])
    async with connect(url) as queue:
        assert await queue.size() == 1


@pytest.mark.rule("PUSH-3", "LEASE-2", "FENCE-1", "FENCE-2", "FAIL-1")
async def test_two_hundred_kills_lose_nothing_and_settle_nothing_twice(tmp_path: Path) -> None:
    """Case O-37. Three processes that push and three that work are killed at any moment and start again."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.file_kills", str(tmp_path), "200"), cwd=TESTS
    )
    assert await process.wait() == 0

    ledger = Ledger(tmp_path / "ledger").entries()
    assert sum(entry.event == "killed" for entry in ledger) == 200
    of_jobs: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in ledger:
        of_jobs[entry.job].append(entry)
    del of_jobs["-"]
    async with connect(f"file://{tmp_path}/jobs") as queue:
        failed = {found.id for found in await queue.failed.list(limit=1_000_000)}
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.leased) == (0, 0, 0)
    assert len(of_jobs) > 200
    wrong = {id: why for id, entries in of_jobs.items() if (why := unexplained(entries, id in failed))}
    assert wrong == {}
    assert troubles(tmp_path / "jobs") == []


def unexplained(entries: list[Entry], is_failed: bool) -> str | None:
    """Say what can't be: a job without an end, or with two, or one that came before it had come."""
    ends = Counter(entry.event for entry in entries)
    if ends["acked"] + ends["failed"] > 1:
        return f"it was settled twice: {entries}"
    if ends["failed"] and not is_failed:
        return "it failed and is not among the failed"
    if ends["acked"] and is_failed:
        return "it was acked and is among the failed"
    if ends["pushed"] and not ends["taken"]:
        return "it was pushed and never came"
    pushed = [entry.at for entry in entries if entry.event == "pushed"]
    if len(pushed) > 1:
        return "an id was pushed by two"
    attempts = [entry.attempt for entry in entries if entry.event == "taken"]
    return None if attempts == sorted(attempts) else f"its attempts go back: {attempts}"
