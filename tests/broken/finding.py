"""Stores that say of a job, or of themselves, what is not so."""

from collections.abc import Sequence

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Examination, FailedRecord, Finding, Found, Severity
from aqueue.testing.contract import finding


class CountsFromTheEnd(MemoryBackend):
    """Tells the first job that it waits behind the others."""

    async def find(self, queue: str, id: str) -> Found | None:
        found = await super().find(queue, id)
        if found is None or found.ahead is None:
            return found
        return msgspec.structs.replace(found, ahead=2 - found.ahead)


class FindsItAnywhere(MemoryBackend):
    """Looks on every queue, whichever was named."""

    async def find(self, queue: str, id: str) -> Found | None:
        return await super().find("default", id)


class TakesTheDelayedForReady(MemoryBackend):
    """Overlooks that a job is not due."""

    async def find(self, queue: str, id: str) -> Found | None:
        found = await super().find(queue, id)
        return msgspec.structs.replace(found, due_in=None) if found is not None else None


class ForgetsAttempts(MemoryBackend):
    """Shows each job as if it were new."""

    async def find(self, queue: str, id: str) -> Found | None:
        found = await super().find(queue, id)
        return msgspec.structs.replace(found, attempts=0, lost=0) if found is not None else None


class LooksByTaking(MemoryBackend):
    """Has to pop a job to see it."""

    async def find(self, queue: str, id: str) -> Found | None:
        await self.pop([queue], 1)
        return await super().find(queue, id)


class LeasesNeverEnd(MemoryBackend):
    """Takes every lease for one that lasts."""

    async def find(self, queue: str, id: str) -> Found | None:
        found = await super().find(queue, id)
        if found is None or found.held_for is None:
            return found
        return msgspec.structs.replace(found, held_for=max(0.01, found.held_for))


class LosesTheReason(MemoryBackend):
    """Finds failed jobs, and not why they failed."""

    async def failed_get(self, id: str) -> FailedRecord | None:
        record = await super().failed_get(id)
        return msgspec.structs.replace(record, reason="") if record is not None else None


class WarnsWithoutWords(MemoryBackend):
    """Has a problem and no advice."""

    async def examine(self, queues: Sequence[str]) -> Examination:
        return Examination([Finding("durability", Severity.PROBLEM, "none", "jobs are lost")])


class ExaminesByTaking(MemoryBackend):
    """Tries a pop to see whether that works."""

    async def examine(self, queues: Sequence[str]) -> Examination:
        await self.pop(queues, 1)
        return await super().examine(queues)


BROKEN = (
    (finding.a_job_that_waits_is_told_how_many_are_before_it, CountsFromTheEnd),
    (finding.a_job_that_waits_is_told_how_many_are_before_it, FindsItAnywhere),
    (finding.a_job_that_waits_is_told_how_many_are_before_it, LooksByTaking),
    (finding.a_job_is_told_from_its_push_to_its_end, TakesTheDelayedForReady),
    (finding.a_job_is_told_from_its_push_to_its_end, ForgetsAttempts),
    (finding.a_job_whose_worker_was_lost_is_told_so_until_a_pop_takes_it_back, LeasesNeverEnd),
    (finding.a_failed_job_is_told_with_its_reason, LosesTheReason),
    (finding.a_store_says_how_it_is_set_up_and_changes_nothing, WarnsWithoutWords),
    (finding.a_store_says_how_it_is_set_up_and_changes_nothing, ExaminesByTaking),
)
