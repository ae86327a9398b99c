"""Ten thousand cancellations at any moment: no job lost or doubled, nothing broken, nothing left behind."""

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.fixtures import Place

from aqueue import Delivery, Handlers, PushManyError, Queue, StaleDelivery, Worker, job
from aqueue.testing import eventually

CANCELLATIONS = 10_000
AT_ONCE = 48
QUEUES = ("default", "others")


@job(name="storm.note")
class Note:
    number: int


@pytest.mark.rule("POP-6", "PUSH-6", "PUSH-11", "STOP-2")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["memory", "coalesced", "sqlite"])
async def test_no_cancellation_loses_or_doubles_a_job_or_breaks_or_leaves_anything(
    kind: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("AQUEUE_STORM_SEED") or random.SystemRandom().randrange(2**32))
    logging.getLogger(__name__).warning("storm on %s: AQUEUE_STORM_SEED=%d", kind, seed)
    place = Place(kind, tmp_path)
    queue = await place.queue(lease=600)
    await queue.stats()
    tasks = asyncio.all_tasks()

    storm = Storm(queue, random.Random(seed), longest=40 if kind == "sqlite" else 12)
    await storm.blow(CANCELLATIONS)
    await storm.let_go()

    await eventually(lambda: asyncio.all_tasks() <= tasks, timeout=15)
    await eventually(storm.nobody_holds_anything, timeout=15)
    await storm.judge()
    await place.aclose()


class Storm:
    """Pushes, pops, settles and handles in many tasks at once, and cancels most of them.

    Jobs are told apart by their number. `stored` are those whose push returned, `offered` those whose push
    began. `done`, `failed` and `back` are those whose settlement returned; `unsure` those whose settlement,
    by a caller or by a worker, may have been made although nobody was told.
    """

    def __init__(self, queue: Queue, chance: random.Random, *, longest: int) -> None:
        self._queue = queue
        self._chance = chance
        self._longest = longest
        self._next = 0
        self._held: list[Delivery] = []
        self._handlers = Handlers()
        self._handlers.on(Note, self._handle)
        self.offered: set[int] = set()
        self.stored: set[int] = set()
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.unsure: set[int] = set()
        self.cancelled: Counter[str] = Counter()

    async def blow(self, cancellations: int) -> None:
        """Act until so many tasks have really ended by their cancellation."""
        acting: dict[asyncio.Task[None], int] = {}
        while self.cancelled.total() < cancellations or acting:
            while len(acting) < AT_ONCE and self.cancelled.total() < cancellations:
                acting[self._act()] = self._patience()
            for task in list(acting):
                acting[task] -= 1
                if task.done():
                    self._count(task)
                    del acting[task]
                elif acting[task] == 0 or (acting[task] < 0 and self._chance.random() < 0.1):
                    task.cancel()
            await asyncio.sleep(0)

    async def let_go(self) -> None:
        """Settle whatever callers still hold: a delivery that has an owner is not lost."""
        held, self._held = self._held, []
        for delivery in held:
            try:
                await self._queue.release(delivery, counted=False)
            except StaleDelivery:
                assert number_of(delivery) in self.unsure

    async def nobody_holds_anything(self) -> None:
        """Hold that no job is leased: its lease of ten minutes would be the only way back."""
        for name in QUEUES:
            stats = await self._queue.stats(name)
            assert stats.leased == 0, f"{name}: {stats}"

    async def judge(self) -> None:
        """Drain the store, and hold that everything is where it may be, once."""
        waiting = Counter(await self._drain())
        failed = Counter(each.args["number"] for each in await self._failed() if each.args is not None)
        kept = waiting + failed

        assert self.cancelled.total() >= CANCELLATIONS, self.cancelled
        assert min(self.cancelled[verb] for verb in ("push", "push_many", "pop", "settle", "work")) > 100
        assert kept.keys() <= self.offered, "a job nobody pushed"
        assert all(times == 1 for times in kept.values()), "a job is stored twice"
        assert not (kept.keys() & self.done), "an acked job came back"
        assert self.failed <= failed.keys(), "a failed job is gone"
        lost = self.stored - kept.keys() - self.done - self.unsure
        assert not lost, f"{len(lost)} jobs are lost"

        push_works = await self._queue.push(Note(-1))
        delivery = await self._queue.pop(timeout=5)
        assert delivery is not None
        assert delivery.id == push_works
        await self._queue.ack(delivery)

    def _act(self) -> "asyncio.Task[None]":
        verb, act = self._chance.choice(
            [
                ("push", self._push),
                ("push", self._push),
                ("push_many", self._push_many),
                ("pop", self._pop),
                ("settle", self._settle),
                ("settle", self._settle),
                ("work", self._work),
            ]
        )
        coroutine: Coroutine[Any, Any, None] = act()
        return asyncio.create_task(coroutine, name=verb)

    def _patience(self) -> int:
        """Turns of the loop until the cancellation: often one of the first, sometimes late."""
        return self._chance.choice([self._chance.randint(1, 4), self._chance.randint(1, self._longest)])

    def _count(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self.cancelled[task.get_name()] += 1
        else:
            task.result()

    async def _push(self) -> None:
        (number,) = self._offer(1)
        await self._queue.push(Note(number), queue=self._chance.choice(QUEUES))
        self.stored.add(number)

    async def _push_many(self) -> None:
        numbers = self._offer(5)
        try:
            await self._queue.push_many([Note(number) for number in numbers])
        except PushManyError as error:
            raise AssertionError("the store takes all or nothing here") from error
        self.stored.update(numbers)

    async def _pop(self) -> None:
        limit = self._chance.randint(1, 6)
        timeout = self._chance.choice([0, 0.01])
        self._held += await self._queue.pop_many(limit, timeout=timeout, queues=QUEUES)

    async def _settle(self) -> None:
        if not self._held:
            return
        delivery = self._held.pop(self._chance.randrange(len(self._held)))
        number = number_of(delivery)
        verb = self._chance.choice(["ack", "fail", "release"])
        try:
            if verb == "ack":
                await self._queue.ack(delivery)
                self.done.add(number)
            elif verb == "fail":
                await self._queue.fail(delivery)
                self.failed.add(number)
            else:
                await self._queue.release(delivery, counted=self._chance.random() < 0.5)
        except asyncio.CancelledError:
            if verb != "release":
                self.unsure.add(number)
            await self._settle_for_sure(delivery)
            raise

    async def _settle_for_sure(self, delivery: Delivery) -> None:
        """What a careful caller does: after a cancelled settlement it gives back what it may still hold."""
        task = asyncio.create_task(give_back(self._queue, delivery), name="cleaning")
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                continue
        task.result()

    async def _work(self) -> None:
        worker = Worker(self._queue, self._handlers, queues=QUEUES, concurrency=4, grace=0, max_attempts=2)
        match self._chance.randrange(3):
            case 0:
                await worker.run_one()
            case 1:
                await worker.run_one(timeout=0.01)
            case _:
                await worker.run()

    async def _handle(self, note: Note) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        self.unsure.add(note.number)
        if self._chance.random() < 0.1:
            raise LookupError

    def _offer(self, count: int) -> list[int]:
        numbers = list(range(self._next, self._next + count))
        self._next += count
        self.offered.update(numbers)
        return numbers

    async def _drain(self) -> list[int]:
        numbers: list[int] = []
        while batch := await self._queue.pop_now(500, queues=QUEUES):
            numbers += [number_of(delivery) for delivery in batch]
            await asyncio.gather(*[self._queue.ack(delivery) for delivery in batch])
        return numbers

    async def _failed(self) -> list[Any]:
        found: list[Any] = []
        while page := await self._queue.failed.list(limit=500, after=found[-1].id if found else None):
            found += page
        return found


async def give_back(queue: Queue, delivery: Delivery) -> None:
    """Release what may have been settled already."""
    try:
        await queue.release(delivery, counted=False)
    except StaleDelivery:
        return


def number_of(delivery: Delivery) -> int:
    number: int = delivery.args["number"]
    return number
