"""Stores that lose, twist or double what was set aside."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, FailedRecord, Failing, Message, Position, Refused
from aqueue.testing.contract import counting, failing, failing_elsewhere, malformed, sealing


class DropsFailures(MemoryBackend):
    """Removes the job and keeps no record."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        return await self.ack([item.reserved for item in batch])


class KeepsFailedJobsQueued(MemoryBackend):
    """Writes the record and leaves the job to be run again."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        await self.keep([item.record for item in batch])
        return await self.extend([item.reserved for item in batch])


class KeepsTheErrorOnly(MemoryBackend):
    """Drops the traceback and the worker's name."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        short = [msgspec.structs.replace(item.record, traceback="", worker="") for item in batch]
        return await super().fail([Failing(i.reserved, r) for i, r in zip(batch, short, strict=True)])


class StampsNothing(MemoryBackend):
    """Keeps no time of the failure."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        self._clock = lambda: 1.0
        return await super().fail(batch)


class KeepsFailuresInItsConnection(MemoryBackend):
    """Takes its failed jobs along when it goes."""

    async def aclose(self) -> None:
        for record in [*self._shelf.failed.matching(None, None)]:
            self._shelf.failed.forget(record)


class KeepsTheFirstFailure(MemoryBackend):
    """Has no room for a second failure of one job."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        first = [await self.failed_get(item.record.id) or item.record for item in batch]
        return await super().fail([Failing(i.reserved, r) for i, r in zip(batch, first, strict=True)])


class KeepsEveryCopy(MemoryBackend):
    """Stores a record anew each time it is told of it."""

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        for number, record in enumerate(batch):
            self._shelf.failed.keep(
                msgspec.structs.replace(record, queue=f"{record.queue}{len(self._shelf.failed)}{number}"), 1.0
            )


class ReadsPayloadsAsText(MemoryBackend):
    """Can't keep bytes that are not text."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        return await super().fail(
            [
                Failing(i.reserved, msgspec.structs.replace(i.record, payload=_as_text(i.record.payload)))
                for i in batch
            ]
        )


def _as_text(payload: bytes) -> bytes:
    return payload.decode("utf-8", "replace").strip().removeprefix("aq1.").encode()


class DropsTheUnreadable(MemoryBackend):
    """Throws away what nobody can read."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        malformed_ones = [item for item in batch if item.record.reason in ("malformed", "signature")]
        if malformed_ones:
            return await self.ack([item.reserved for item in batch])
        return await super().fail(batch)


class RefusesLongTexts(MemoryBackend):
    """Has a column for a thousand characters."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        if any(len(item.record.error) > 1_000 for item in batch):
            raise Refused("the text is too long")
        return await super().fail(batch)


class RetriesWithoutLooking(MemoryBackend):
    """Puts a job back whether or not its record is still there."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        self._shelf.failed.forget(record)
        await self.push([message])
        return True


class RetriesAndKeeps(MemoryBackend):
    """Puts a job back and leaves its record."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        await self.push([message])
        return True


class RetriesIntoNowhere(MemoryBackend):
    """Removes the record first, and stops there."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        return self._shelf.failed.forget(record)


class RetriesWithOldCounters(MemoryBackend):
    """Goes on counting where the failed job had stopped."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        done = await super().failed_retry(record, message)
        self._shelf.lane(message.queue).held[message.id].attempts = record.attempts
        return done


class RetriesLater(MemoryBackend):
    """Puts a job back with a pause nobody asked for, on the wrong queue."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        return await super().failed_retry(record, msgspec.structs.replace(message, queue="retries"))


class DiscardsBlindly(MemoryBackend):
    """Says that it discarded what was not there."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def failed_discard(self, record: FailedRecord) -> bool:
        self._shelf.failed.forget(record)
        return True


class DiscardsNothing(MemoryBackend):
    """Says that it discarded what is still there."""

    async def failed_discard(self, record: FailedRecord) -> bool:
        return True


class ListsEverything(MemoryBackend):
    """Ignores the filters of a listing."""

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        return await super().failed_page(queue=None, job=None, after=after, limit=limit)


class ListsNewestFirst(MemoryBackend):
    """Turns every page around."""

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        page = await super().failed_page(queue=queue, job=job, after=after, limit=limit)
        return page[::-1]


class SkipsAtEachPage(MemoryBackend):
    """Counts places instead of remembering them, so that a page moves when jobs before it go."""

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        page = await super().failed_page(queue=queue, job=job, after=after, limit=limit + 1)
        return page[1:] if after is not None else page[:limit]


class CountsAllFailures(MemoryBackend):
    """Ignores the filters of a count."""

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        return await super().failed_count(queue=None, job=None)


class PurgesEverything(MemoryBackend):
    """Ignores the age."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        return await super().failed_purge(queue=queue, older_than=0.0, keep=None, limit=limit)


class PurgesOnce(MemoryBackend):
    """Stops after the first step, and says it did it all."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        purged = await super().failed_purge(queue=queue, older_than=older_than, keep=keep, limit=limit)
        return min(limit - 1, purged)


class PurgesTheNewest(MemoryBackend):
    """Keeps a bound by dropping what just failed."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        records = [*self._shelf.failed.matching(None, None)]
        return sum(self._shelf.failed.forget(record) for record in records[keep or 0 :])


class KeepsNoBound(MemoryBackend):
    """Purges by neither count nor age."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        return 0


BROKEN = (
    (failing.a_failed_job_is_kept_whole, DropsFailures),
    (failing.a_failed_job_is_kept_whole, KeepsTheErrorOnly),
    (failing.a_failed_job_is_kept_whole, KeepsFailedJobsQueued),
    (failing.a_failure_is_stamped_with_the_time, StampsNothing),
    (failing.failing_without_words_is_enough, DropsFailures),
    (failing.a_failed_job_outlives_its_connection, KeepsFailuresInItsConnection),
    (failing.failing_again_replaces_the_earlier_failure, KeepsTheFirstFailure),
    (failing.a_retry_puts_the_job_back_fresh, RetriesWithOldCounters),
    (failing.a_retry_puts_the_job_back_fresh, RetriesAndKeeps),
    (failing.a_retry_puts_the_job_back_fresh, RetriesLater),
    (failing.two_retries_put_the_job_back_once, RetriesWithoutLooking),
    (failing.two_retries_put_the_job_back_once, RetriesIntoNowhere),
    (failing.retrying_or_discarding_the_unknown_does_nothing, DiscardsNothing),
    (failing.a_discard_and_a_retry_at_once_have_one_winner, DiscardsBlindly),
    (failing.retry_all_puts_back_what_was_chosen, ListsEverything),
    (failing.retry_all_puts_back_what_was_chosen, RetriesIntoNowhere),
    (failing.failed_jobs_are_listed_page_by_page, ListsEverything),
    (failing.failed_jobs_are_listed_page_by_page, ListsNewestFirst),
    (failing.failed_jobs_are_listed_page_by_page, SkipsAtEachPage),
    (failing.failed_jobs_are_listed_page_by_page, CountsAllFailures),
    (failing.a_listing_goes_on_while_its_jobs_are_retried, SkipsAtEachPage),
    (failing.purge_removes_what_is_older, PurgesEverything),
    (failing.purge_is_complete_beyond_one_batch, PurgesOnce),
    (failing.whatever_a_failure_says_is_kept, RefusesLongTexts),
    (failing_elsewhere.keeping_one_failure_twice_keeps_one_record, KeepsEveryCopy),
    (failing_elsewhere.keep_failed_bounds_the_count, KeepsNoBound),
    (failing_elsewhere.keep_failed_bounds_the_count, PurgesTheNewest),
    (failing_elsewhere.keep_failed_bounds_the_age, KeepsNoBound),
    (counting.stats_count_the_queues_failed_jobs, DropsFailures),
    (malformed.every_unreadable_job_is_set_aside_with_its_bytes, ReadsPayloadsAsText),
    (malformed.every_unreadable_job_is_set_aside_with_its_bytes, DropsTheUnreadable),
    (malformed.an_unreadable_job_whose_holder_died_is_set_aside_too, DropsTheUnreadable),
    (malformed.an_odd_wire_name_never_loops, DropsFailures),
    (malformed.what_was_set_aside_can_be_seen_but_not_retried, DiscardsNothing),
    (sealing.what_is_not_proved_never_runs, ReadsPayloadsAsText),
    (sealing.a_retry_verifies_the_seal_first, RetriesIntoNowhere),
    (sealing.a_failed_sealed_job_is_listed_without_keys, DropsFailures),
)
