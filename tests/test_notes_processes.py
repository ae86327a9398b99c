"""Real processes on one store's notes: one winner per round, and note and jobs agree whoever is killed."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from backends import STORES, StoreUnderTest
from servers.reach import check_reachable
from support.note_process import COUNTER, ROUNDS, TURNS

from aqueue import Queue, connect
from aqueue.testing import eventually

Process = asyncio.subprocess.Process
TESTS = Path(__file__).parent

_SHARED = [store for store in STORES if store.name in {"sqlite", "redis", "postgres", "pgbouncer", "mysql"}]

pytestmark = pytest.mark.parametrize(
    "store", [pytest.param(store, id=store.name) for store in _SHARED]
)  # fmt: skip


@pytest.fixture
def url(store: StoreUnderTest, tmp_path: Path) -> str:
    check_reachable(store.name, store.unreachable())
    return store.fresh_url(tmp_path)


@pytest.fixture
async def queue(url: str) -> AsyncIterator[Queue]:
    async with connect(url) as queue:
        await queue.migrate()
        yield queue


@pytest.mark.timeout(300)
@pytest.mark.rule("NOTE-1", "NOTE-2")
async def test_of_four_processes_exactly_one_writes_each_note(queue: Queue, url: str, tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(4)]
    processes = [await start("race", url, tmp_path, name) for name in names]
    await eventually(lambda: all((tmp_path / f"ready-{name}").exists() for name in names), timeout=60)
    (tmp_path / "go").touch()
    assert [await process.wait() for process in processes] == [0] * len(names)

    won = {name: (tmp_path / f"won-{name}").read_text().split() for name in names}

    assert sorted(int(number) for numbers in won.values() for number in numbers) == list(range(ROUNDS))
    for name, numbers in won.items():
        for number in numbers:
            assert (await queue.notes.read("races", f"round:{number}")).value == name.encode()
    assert await queue.size("races") == ROUNDS
    assert (await queue.notes.read("default", COUNTER)).value == b"%d" % (TURNS * len(names))
    assert await queue.size() == TURNS * len(names)


@pytest.mark.timeout(300)
@pytest.mark.rule("NOTE-2")
async def test_a_note_and_its_jobs_agree_whenever_a_process_is_killed(
    queue: Queue, url: str, tmp_path: Path
) -> None:
    counted = 0
    for turn in range(8):
        process = await start("count", url, tmp_path, str(turn))
        try:
            await eventually(lambda seen=counted: has_counted(queue, beyond=seen), timeout=60)
            await asyncio.sleep(0.003 * turn)  # another moment of a change each time
        finally:
            process.kill()
            await process.wait()
        await eventually(lambda: agree(queue), timeout=30)  # what was under way still ends on the server
        counted = await number_in(queue)
    assert counted >= 8


async def number_in(queue: Queue) -> int:
    return int((await queue.notes.read("default", COUNTER)).value or b"0")


async def has_counted(queue: Queue, *, beyond: int) -> bool:
    return await number_in(queue) > beyond


async def agree(queue: Queue) -> bool:
    """Say whether there are as many jobs as the note says, while nobody writes."""
    return await queue.size() == await number_in(queue)


async def start(mode: str, url: str, directory: Path, name: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "support.note_process", mode, url, str(directory), name, cwd=TESTS
    )
