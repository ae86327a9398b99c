"""Real scheduler processes, with clocks apart and killed at random: one job for each second (case O-24 a)."""

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from backends import STORES, StoreUnderTest
from servers.reach import check_reachable

from aqueue import Occurrence, connect
from aqueue.testing import eventually

Process = asyncio.subprocess.Process
TESTS = Path(__file__).parent

_SKEWS = (0.0, 2.5, -2.5, 1.0, -0.3, 4.0)
_SECONDS = 20
_KILLS = 6


@pytest.mark.timeout(300)
@pytest.mark.rule("CRON-1")
@pytest.mark.parametrize(
    "store",
    [pytest.param(each, id=each.name) for each in STORES if each.name in {"sqlite", "redis", "postgres"}],
)
async def test_six_processes_that_are_killed_at_random_fire_each_second_once(
    store: StoreUnderTest, tmp_path: Path
) -> None:
    """Killed between any two steps; a job of somebody killed while it ran may run again, and is one job."""
    check_reachable(store.name, store.unreachable())
    url = store.fresh_url(tmp_path)
    async with connect(url, lease=15) as queue:
        await queue.migrate()
        processes = [await started(url, tmp_path, number) for number in range(len(_SKEWS))]
        ready = [tmp_path / f"ready-{number}" for number in range(len(_SKEWS))]
        await eventually(lambda: all(each.exists() for each in ready), timeout=90)

        for kill in range(_KILLS):
            await asyncio.sleep(_SECONDS / _KILLS)
            number = random.randrange(len(processes))
            processes[number].kill()
            await processes[number].wait()
            processes[number] = await started(url, tmp_path, number, f"{number}-{kill}")
        (tmp_path / "stop").touch()
        assert [await process.wait() for process in processes] == [0] * len(processes)

        left: list[Occurrence | None] = []

        async def nothing_is_left() -> bool:
            """What the dead held comes back when its lease is over."""
            for delivery in await queue.pop_now(100):
                left.append(delivery.occurrence)
                await queue.ack(delivery)
            stats = await queue.stats()
            return stats.ready + stats.delayed + stats.leased == 0

        await eventually(nothing_is_left, timeout=60)

    ran = [int(line) for path in tmp_path.glob("ran-*") for line in path.read_text().split()]
    counted = Counter(ran)
    fired = sorted({*counted, *(int(each.due_at.timestamp()) for each in left if each is not None)})
    doubled = sum(counted.values()) - len(counted)
    assert len(fired) >= _SECONDS - 5
    assert doubled <= _KILLS, f"{doubled} times ran twice, though only {_KILLS} processes died"
    assert fired == list(range(fired[0], fired[-1] + 1)), "a time has no job"


async def started(url: str, directory: Path, number: int, name: str | None = None) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.tick_process", url, str(directory), name or str(number)),
        str(_SKEWS[number]),
        cwd=TESTS,
    )
