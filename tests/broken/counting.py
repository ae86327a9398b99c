"""Stores that count what they shouldn't, and clear what they mustn't."""

from collections.abc import Sequence

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import FailedRecord, QueueStats, Reserved
from aqueue.testing.contract import counting


class CountsTheHeld(MemoryBackend):
    """Takes what workers hold for waiting work."""

    async def stats(self, queue: str) -> QueueStats:
        stats = await super().stats(queue)
        return msgspec.structs.replace(stats, ready=stats.ready + stats.leased)


class OverlooksTheDelayed(MemoryBackend):
    """Leaves delayed jobs out."""

    async def stats(self, queue: str) -> QueueStats:
        return msgspec.structs.replace(await super().stats(queue), delayed=0)


class CountsLostLeasesAsHeld(MemoryBackend):
    """Waits for a sweep before it believes that a lease ran out."""

    async def stats(self, queue: str) -> QueueStats:
        stats = await super().stats(queue)
        lost = sum(job.lease_until <= self._clock() for job in self._shelf.lane(queue).leased.values())
        return msgspec.structs.replace(stats, ready=stats.ready - lost, leased=stats.leased + lost)


class CountsTheDueAsDelayed(MemoryBackend):
    """Waits for a sweep before it believes that a job is due."""

    async def stats(self, queue: str) -> QueueStats:
        stats = await super().stats(queue)
        due = sum(at <= self._clock() for at, _, _ in self._shelf.lane(queue).delayed)
        return msgspec.structs.replace(stats, ready=stats.ready - due, delayed=stats.delayed + due)


class CountsEveryQueue(MemoryBackend):
    """Adds all queues up."""

    async def stats(self, queue: str) -> QueueStats:
        every = [await super(CountsEveryQueue, self).stats(name) for name in [*self._shelf.lanes]]
        return msgspec.structs.replace(
            await super().stats(queue),
            ready=sum(one.ready for one in every),
            failed=len(self._shelf.failed),
        )


class TellsTheYoungest(MemoryBackend):
    """Looks at the wrong end of the line for the oldest job."""

    async def stats(self, queue: str) -> QueueStats:
        stats = await super().stats(queue)
        ready = self._shelf.lane(queue).ready
        return msgspec.structs.replace(
            stats, oldest_age=self._clock() - ready[-1].ready_at if ready else None
        )


class WaitsNoTime(MemoryBackend):
    """Doesn't know how long a job has been ready."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return [msgspec.structs.replace(item, waited=0.0) for item in await super().pop(queues, limit)]


class ClearsTheHeld(MemoryBackend):
    """Pulls jobs from under their workers."""

    async def clear(self, queue: str) -> int:
        lane = self._shelf.lane(queue)
        held = len(lane.leased)
        lane.leased.clear()
        return await super().clear(queue) + held


class ClearsLostLeases(MemoryBackend):
    """Takes a job past its lease for a waiting one."""

    async def clear(self, queue: str) -> int:
        self._shelf.lane(queue).take_up(self._clock())
        return await super().clear(queue)


class SparesTheDelayed(MemoryBackend):
    """Clears what is ready and nothing else."""

    async def clear(self, queue: str) -> int:
        lane = self._shelf.lane(queue)
        delayed = list(lane.delayed)
        cleared = await super().clear(queue)
        for _, _, job in delayed:
            lane.held[job.id] = job
        lane.delayed = delayed
        return cleared - len(delayed)


class ClearsEverything(MemoryBackend):
    """Clears all queues for one."""

    async def clear(self, queue: str) -> int:
        return sum([await super(ClearsEverything, self).clear(name) for name in [*self._shelf.lanes]])


class GuessesTheCount(MemoryBackend):
    """Counts first and clears later."""

    async def clear(self, queue: str) -> int:
        stats = await self.stats(queue)
        await super().clear(queue)
        return stats.ready + stats.delayed + stats.leased


class LosesTheSpared(MemoryBackend):
    """Forgets the leases of what it spared."""

    async def clear(self, queue: str) -> int:
        cleared = await super().clear(queue)
        self._shelf.lane(queue).expiries.clear()
        return cleared


class KeepsACopy(MemoryBackend):
    """Makes failed jobs of what it cleared."""

    async def clear(self, queue: str) -> int:
        for job in self._shelf.lane(queue).ready:
            record = FailedRecord(
                id=job.id, name="", queue=queue, payload=job.payload, attempts=0, lost=0, reason="cleared"
            )
            self._shelf.failed.keep(record, self._clock())
        return await super().clear(queue)


BROKEN = (
    (counting.size_is_waiting_work, CountsTheHeld),
    (counting.size_is_waiting_work, OverlooksTheDelayed),
    (counting.size_is_waiting_work, CountsEveryQueue),
    (counting.a_lease_that_ran_out_counts_as_waiting, CountsLostLeasesAsHeld),
    (counting.a_delay_that_is_over_counts_as_ready, CountsTheDueAsDelayed),
    (counting.stats_tell_the_age_of_the_oldest_ready_job, TellsTheYoungest),
    (counting.a_delivery_tells_how_long_its_job_was_ready, WaitsNoTime),
    (counting.stats_count_the_queues_failed_jobs, CountsEveryQueue),
    (counting.clear_discards_what_nobody_holds, ClearsTheHeld),
    (counting.clear_discards_what_nobody_holds, SparesTheDelayed),
    (counting.clear_discards_what_nobody_holds, ClearsEverything),
    (counting.clear_discards_what_nobody_holds, KeepsACopy),
    (counting.clear_spares_what_was_held_past_its_lease, ClearsLostLeases),
    (counting.a_job_spared_by_clear_comes_back, LosesTheSpared),
    (counting.clears_and_pops_at_once_share_the_jobs, GuessesTheCount),
    (counting.what_was_cleared_is_forgotten, KeepsACopy),
)
