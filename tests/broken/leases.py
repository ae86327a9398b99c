"""Stores whose leases hold too little, too long, or for the wrong worker."""

import heapq
from collections.abc import Sequence

from aqueue.backends._shelf import Job, Lane
from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Releasing, Reserved, Verdict
from aqueue.testing.contract import concurrency, leases, settling


class HoldsNothing(MemoryBackend):
    """Hands a job out without hiding it from the next."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        self._lease = 0.0
        return await super().pop(queues, limit)


class HoldsForEver(MemoryBackend):
    """Never takes a job back."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        self._lease = float("inf")
        return await super().pop(queues, limit)


class OneLengthForAll(MemoryBackend):
    """Lets the lease of whoever popped last hold for everybody."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        taken = await super().pop(queues, limit)
        for name in queues:
            lane = self._shelf.lane(name)
            for token, job in lane.leased.items():
                job.lease_until = self._clock() + self._lease
                heapq.heappush(lane.expiries, (job.lease_until, token))
        return taken


class TakesBackTheFirstHundred(MemoryBackend):
    """Loses what is beyond its batch of expired leases."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        for name in queues:
            lane = self._shelf.lane(name)
            expired = [token for token, job in lane.leased.items() if job.lease_until <= self._clock()]
            for token in expired[100:]:
                lane.let_go(token)
        return await super().pop(queues, limit)


class TakesBackWhenIdle(MemoryBackend):
    """Looks for expired leases only when nothing else waits."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        taken: list[Reserved] = []
        for name in queues:
            lane = self._shelf.lane(name)
            expiries, lane.expiries = lane.expiries, []
            taken += await super().pop([name], limit)
            lane.expiries += expiries
            lane.expiries.sort()
            lane.expiries = lane.expiries if taken == [] else []
        return taken


class TakesBackEmpty(MemoryBackend):
    """Forgets what a job was when its lease runs out."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        for name in queues:
            for job in self._shelf.lane(name).leased.values():
                if job.lease_until <= self._clock():
                    job.payload = b"{}"
        return await super().pop(queues, limit)


class MixesQueues(MemoryBackend):
    """Puts what was lost on one queue to the queue that is asked for."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        for lane in self._shelf.lanes.values():
            for token, job in list(lane.leased.items()):
                if job.lease_until <= self._clock():
                    lane.let_go(token)
                    self._shelf.lane(queues[0]).admit(job, 0)
        return await super().pop(queues, limit)


class RenewsNothing(MemoryBackend):
    """Says yes to a renewal and leaves the lease as it was."""

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return [Verdict.SETTLED] * len(batch)


class RenewsForEver(MemoryBackend):
    """Makes a renewed lease endless."""

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        self._lease = float("inf")
        return await super().extend(batch)


class RenewsByJob(MemoryBackend):
    """Renews whichever delivery of the job is live."""

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        held = [_job(self, item) for item in batch]
        return [Verdict.SETTLED if job is not None and job.token else Verdict.STALE for job in held]


class AnswersForTheFirst(MemoryBackend):
    """Gives a whole batch of renewals the answer of its first."""

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        answers = await super().extend(batch)
        return [answers[0]] * len(batch)


class WatchesTheClock(MemoryBackend):
    """Refuses to settle past the lease although nobody took the job back."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        now = self._clock()
        jobs = [_job(self, item) for item in batch]
        late = [job is not None and job.lease_until <= now for job in jobs]
        answers = await super().ack(batch)
        return [Verdict.STALE if is_late else a for a, is_late in zip(answers, late, strict=True)]


class NeverCountsTheLost(MemoryBackend):
    """Hands a lost job out as if it were its first time."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return [
            Reserved(r.id, r.queue, r.payload, r.receipt, r.attempt, 0, r.waited)
            for r in await super().pop(queues, limit)
        ]


class RemembersTheLost(MemoryBackend):
    """Keeps counting lost leases across counted releases."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        before = [(job, job.lost) for item in batch for job in [_job(self, item.reserved)] if job is not None]
        answers = await super().release(batch)
        for job, lost in before:
            job.lost = lost
        return answers


def _job(backend: MemoryBackend, item: Reserved) -> Job | None:
    return backend._shelf.lane(item.queue).held.get(item.id)


class AttemptsStandStill(MemoryBackend):
    """Forgets to count an attempt that ended with its lease."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        lanes: list[Lane] = [self._shelf.lane(name) for name in queues]
        for job in [job for lane in lanes for job in lane.leased.values()]:
            if job.lease_until <= self._clock():
                job.attempts -= 1
        return await super().pop(queues, limit)


BROKEN = (
    (leases.a_leased_job_is_nobody_elses, HoldsNothing),
    (leases.a_lost_lease_hands_the_job_to_the_next_pop, HoldsForEver),
    (leases.a_lost_lease_hands_the_job_to_the_next_pop, TakesBackEmpty),
    (leases.each_queue_name_keeps_its_own_leases, MixesQueues),
    (leases.many_lost_leases_all_come_back, TakesBackTheFirstHundred),
    (leases.a_lost_lease_is_taken_back_beside_fresh_jobs, TakesBackWhenIdle),
    (leases.the_lease_is_the_queues_own_length, OneLengthForAll),
    (leases.extending_starts_the_lease_anew, RenewsNothing),
    (leases.an_extended_lease_still_ends, RenewsForEver),
    (leases.extending_never_revives_a_lease_that_passed_on, RenewsByJob),
    (leases.many_leases_are_renewed_in_one_call, AnswersForTheFirst),
    (leases.a_lease_that_ran_out_unnoticed_still_settles, WatchesTheClock),
    (leases.the_port_counts_lost_leases, NeverCountsTheLost),
    (leases.the_port_counts_lost_leases, RemembersTheLost),
    (settling.attempts_count_failures_and_lost_leases_alone, AttemptsStandStill),
    (concurrency.a_lost_job_is_taken_back_by_one, NeverCountsTheLost),
)
