"""Stores that hand out the wrong job, the same one twice, or none."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from aqueue.backends._shelf import Job
from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Releasing, Reserved
from aqueue.testing.contract import concurrency, malformed, popping


class TakesOneTooMany(MemoryBackend):
    """Ignores the limit by one."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await super().pop(queues, limit + 1)


class SweepsBackwards(MemoryBackend):
    """Looks at the last queue first."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await super().pop(queues[::-1], limit)


class SweepsOneQueue(MemoryBackend):
    """Looks at the first queue and leaves the others to the next pop, which does the same."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await super().pop(queues[:1], limit)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        await asyncio.sleep(0.01)


class WaitsInItsSweep(MemoryBackend):
    """Blocks where it should only look."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        while not (taken := await super().pop(queues, limit)):
            await asyncio.sleep(0.05)
        return taken


class WaitsForEver(MemoryBackend):
    """Never comes back from a wait, whatever arrives."""

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        await asyncio.Event().wait()


class NeverRests(MemoryBackend):
    """Comes back from every wait at once."""

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        await asyncio.sleep(0)


class SharesJobs(MemoryBackend):
    """Looks first and reserves later, so that two who look at once see the same."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        seen = [job for name in queues for job in self._shelf.lane(name).ready][:limit]
        await asyncio.sleep(0)
        return [self._reserved_again(job) for job in seen]

    def _reserved_again(self, job: Job) -> Reserved:
        lane = self._shelf.lane(job.queue)
        if job in lane.ready:
            lane.ready.remove(job)
        lane.ready.appendleft(job)
        [held] = lane.reserve(self._clock() + self._lease)
        return Reserved(held.id, held.queue, held.payload, held.token, held.attempts + 1)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        answers: list[Answer] = []
        for item in batch:
            self._shelf.lane(item.queue).held[item.id] = Job(item.id, item.queue, b"", 0.0)
            answers += await super().ack([item])
        return answers


class SharesLostJobs(MemoryBackend):
    """Hands a job whose lease ran out to whoever asks, without a new lease."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        taken = await super().pop(queues, limit)
        for item in taken:
            if item.lost:
                lane = self._shelf.lane(item.queue)
                lane.ready.append(lane.leased[item.receipt])  # type: ignore[index]  # an int, as it happens
        return taken


class CountsGiveBacks(MemoryBackend):
    """Makes an attempt of every hand-out, run or not."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await super().release([Releasing(item.reserved, item.delay) for item in batch])


class StrandsTheNeighbours(MemoryBackend):
    """Takes back only the first of several give-backs."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        answers = list(await super().release(batch[:1]))
        return answers * len(batch)


class GivesBackNothing(MemoryBackend):
    """Accepts an uncounted give-back and lets the lease run on."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        counted = [item for item in batch if item.counted]
        await super().release(counted)
        return list(await self.extend([item.reserved for item in batch if not item.counted]))


BROKEN = (
    (popping.pop_many_returns_what_there_is, TakesOneTooMany),
    (popping.the_port_sweeps_at_once_and_never_waits, TakesOneTooMany),
    (popping.the_port_sweeps_at_once_and_never_waits, WaitsInItsSweep),
    (popping.a_pop_that_finds_nothing_returns_none, WaitsInItsSweep),
    (popping.the_first_queue_in_the_list_wins, SweepsBackwards),
    (popping.a_batch_is_filled_in_list_order, SweepsBackwards),
    (popping.a_waiting_job_is_found_before_any_wait, SweepsOneQueue),
    (popping.a_job_on_any_watched_queue_ends_the_wait, SweepsOneQueue),
    (popping.a_pop_without_a_deadline_waits_for_a_job, WaitsForEver),
    (popping.a_job_that_becomes_due_ends_the_wait, WaitsForEver),
    (popping.a_released_job_ends_the_wait, WaitsForEver),
    (popping.every_waiting_pop_gets_its_job, WaitsForEver),
    (popping.the_ports_wait_ends_by_itself, WaitsForEver),
    (popping.an_idle_pop_asks_about_once_a_second, NeverRests),
    (popping.a_cancelled_pop_strands_nothing, CountsGiveBacks),
    (popping.a_pop_cancelled_while_its_queue_closes_strands_nothing, GivesBackNothing),
    (popping.a_storm_of_cancelled_pops_loses_no_job, SharesJobs),
    (concurrency.concurrent_pops_never_share_a_delivery, SharesJobs),
    (concurrency.pops_at_the_same_instant_get_different_jobs, SharesJobs),
    (concurrency.a_lost_job_is_taken_back_by_one, SharesLostJobs),
    (malformed.good_jobs_of_the_same_batch_come_next, CountsGiveBacks),
    (malformed.good_jobs_of_the_same_batch_come_next, StrandsTheNeighbours),
    (malformed.the_other_queues_of_a_sweep_lose_nothing, CountsGiveBacks),
    (malformed.a_pop_cancelled_while_it_sets_aside_strands_nothing, GivesBackNothing),
)
