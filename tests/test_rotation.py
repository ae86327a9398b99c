"""A key is exchanged under load and loses nothing; one dropped too early strands nothing (SIGN-2, SIGN-3)."""

import asyncio
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

import aqueue
from aqueue import Keyring, Worker, connect

pytestmark = [pytest.mark.rule("SIGN-2"), pytest.mark.rule("SIGN-3")]

K1, K2 = b"1" * 32, b"2" * 32
ONLY_OLD = Keyring(active="k1", keys={"k1": K1})
KNOWS_NEW = Keyring(active="k1", keys={"k1": K1, "k2": K2})
USES_NEW = Keyring(active="k2", keys={"k2": K2, "k1": K1})
ONLY_NEW = Keyring(active="k2", keys={"k2": K2})

RAN: Counter[int] = Counter()


@aqueue.job(name="rotation.count")
class Count:
    number: int

    async def handle(self) -> None:
        RAN[self.number] += 1


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    RAN.clear()
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


async def work_off(queue: aqueue.Queue) -> None:
    """Run everything, what is set aside included."""
    worker = Worker(queue, [Count])
    while (await queue.size()) > 0:
        await worker.run_all()


async def test_programs_are_changed_one_at_a_time_and_lose_nothing(url: str) -> None:
    """Three programs push and work all the while; each goes through both steps on its own."""
    pushed = 0
    generations = [
        (ONLY_OLD, ONLY_OLD, ONLY_OLD),
        (KNOWS_NEW, ONLY_OLD, ONLY_OLD),
        (KNOWS_NEW, KNOWS_NEW, ONLY_OLD),
        (KNOWS_NEW, KNOWS_NEW, KNOWS_NEW),
        (USES_NEW, KNOWS_NEW, KNOWS_NEW),
        (USES_NEW, USES_NEW, KNOWS_NEW),
        (USES_NEW, USES_NEW, USES_NEW),
    ]

    for rings in generations:
        queues = [connect(url, keyring=ring) for ring in rings]
        for queue in queues:
            await queue.open()
        for queue in queues:
            await queue.push_many([Count(pushed + number) for number in range(4)])
            await queue.push(Count(pushed + 4), delay=0.01)
            pushed += 5
        await asyncio.gather(*(Worker(queue, [Count]).run_one() for queue in queues for _ in range(3)))
        for queue in queues:
            await queue.aclose()

    async with connect(url, keyring=USES_NEW) as last:
        await work_off(last)
        assert await last.failed.count() == 0
        await last.keys.retire("k1")
    assert sorted(RAN.elements()) == list(range(pushed))


async def test_a_key_that_is_dropped_too_early_can_come_back(url: str) -> None:
    async with connect(url, keyring=ONLY_OLD) as before:
        ids = await before.push_many([Count(number) for number in range(5)])
        [late] = await before.push_many([Count(5)], delay=0.05)
    async with connect(url, keyring=ONLY_NEW) as early:
        await early.push(Count(6))
        with pytest.raises(aqueue.KeyInUse):
            await early.keys.retire("k1")

        await work_off(early)

        kept = {job.id: job for job in await early.failed.list()}
        assert set(kept) == {*ids, late}
        assert {(job.reason, job.args) for job in kept.values()} == {("signature", None)}
        assert RAN == {6: 1}
        with pytest.raises(
            aqueue.JobReconstructionError, match="key 'k1', which this keyring doesn't hold: add it"
        ):
            await early.failed.retry(late)

    async with connect(url, keyring=USES_NEW) as mended:
        assert await mended.failed.retry_all() == 6
        await work_off(mended)
        await mended.keys.retire("k1")
    assert dict.fromkeys(range(7), 1) == RAN
