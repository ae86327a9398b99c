"""Stores that put failed jobs back twice, changed, or not at all; and purge what they were not asked to."""

from collections.abc import Sequence

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, FailedRecord, Message, Note, NoteKey, Noting, Position, Reserved, Verdict
from aqueue.testing.contract import (
    failing_edits,
    failing_elsewhere,
    failing_groups,
    failing_many,
    failing_returns,
    failing_unlisted,
)
from broken.failing import (
    CountsAllFailures,
    DropsTheUnreadable,
    KeepsTheErrorOnly,
    ListsEverything,
    ListsNewestFirst,
    PurgesEverything,
    PurgesTheNewest,
    RefusesLongTexts,
    RetriesIntoNowhere,
    RetriesWithoutLooking,
)


class DropsTheJobsOfNotes(MemoryBackend):
    """Writes a note and forgets the jobs that go with it."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([msgspec.structs.replace(item, messages=()) for item in batch])


class SeesNoNotes(MemoryBackend):
    """Reads what is written as if it were not there."""

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        return [msgspec.structs.replace(note, value=None) for note in await super().read_notes(keys)]


class AcksWithoutRemoving(MemoryBackend):
    """Says that a job is gone which it still has."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return [Verdict.SETTLED] * len(batch)


class RetriesTheRecord(MemoryBackend):
    """Puts back what it kept, not what it was given."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        return await super().failed_retry(record, msgspec.structs.replace(message, payload=record.payload))


class TakesWhatItLooksAt(MemoryBackend):
    """Removes a record once it was read."""

    async def failed_get(self, id: str) -> FailedRecord | None:
        found = await super().failed_get(id)
        if found is not None:
            self._shelf.failed.forget(found)
        return found


class TakesWhatItLists(MemoryBackend):
    """Removes the records of a page once it was listed."""

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        page = await super().failed_page(queue=queue, job=job, after=after, limit=limit)
        for record in page:
            self._shelf.failed.forget(record)
        return page


class CountsWithoutEnd(MemoryBackend):
    """Says that there are more failed jobs than there are."""

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        return 1_000_000


class PurgesEveryQueue(MemoryBackend):
    """Makes room in all queues when it is asked to in one."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        return await super().failed_purge(queue=None, older_than=older_than, keep=keep, limit=limit)


class PurgesAllAtOnce(MemoryBackend):
    """Makes room in one step, however long that takes."""

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        return await super().failed_purge(queue=queue, older_than=older_than, keep=keep, limit=1_000_000)


BROKEN = (
    (failing_elsewhere.a_failure_told_twice_keeps_its_record, AcksWithoutRemoving),
    (failing_returns.two_hundred_retries_put_the_job_back_once, RetriesWithoutLooking),
    (failing_returns.two_hundred_retries_put_the_job_back_once, RetriesIntoNowhere),
    (failing_returns.retries_from_another_store_put_the_job_back_once, SeesNoNotes),
    (failing_returns.a_crash_between_two_stores_loses_no_job, DropsTheJobsOfNotes),
    (failing_returns.a_job_that_cannot_be_pushed_stays_failed, DropsTheJobsOfNotes),
    (failing_returns.the_same_job_can_fail_and_go_back_again, DropsTheJobsOfNotes),
    (failing_returns.a_cancelled_retry_ends_whole, DropsTheJobsOfNotes),
    (failing_many.a_dry_run_changes_nothing, TakesWhatItLists),
    (failing_many.no_more_go_back_than_the_limit, ListsNewestFirst),
    (failing_many.what_cannot_be_read_is_told_of_and_stays, DropsTheUnreadable),
    (failing_many.a_pace_leaves_no_job_out, RetriesIntoNowhere),
    (failing_many.purge_can_keep_to_one_queue, PurgesEveryQueue),
    (failing_many.making_room_is_bounded_and_takes_the_oldest, PurgesAllAtOnce),
    (failing_many.making_room_is_bounded_and_takes_the_oldest, PurgesEverything),
    (failing_many.making_room_is_bounded_and_takes_the_oldest, PurgesTheNewest),
    (failing_many.making_room_is_bounded_and_takes_the_oldest, PurgesEveryQueue),
    (failing_many.what_fails_again_meanwhile_waits_for_the_next_run, CountsWithoutEnd),
    (failing_groups.failures_of_one_kind_are_counted_together, KeepsTheErrorOnly),
    (failing_groups.failures_of_one_kind_are_counted_together, ListsEverything),
    (failing_groups.a_group_is_listed_and_goes_back_by_itself, RetriesIntoNowhere),
    (failing_groups.a_group_is_listed_and_goes_back_by_itself, ListsNewestFirst),
    (failing_groups.only_so_many_groups_are_told_apart, ListsNewestFirst),
    (failing_groups.odd_texts_have_a_group_too, RefusesLongTexts),
    (failing_edits.an_edited_job_goes_back_with_its_changes, RetriesTheRecord),
    (failing_edits.a_change_that_does_not_fit_leaves_the_job, TakesWhatItLooksAt),
    (failing_edits.a_job_that_nobody_declares_here_is_changed_as_json, RetriesTheRecord),
    (failing_edits.an_edited_job_is_sealed_anew, RetriesTheRecord),
    (failing_edits.two_edits_at_once_have_one_winner, RetriesWithoutLooking),
    (failing_unlisted.a_stores_own_failed_jobs_are_counted_and_go_back_whole, CountsAllFailures),
    (failing_unlisted.a_stores_own_failed_jobs_are_counted_and_go_back_whole, RetriesIntoNowhere),
    (failing_unlisted.a_stores_own_failed_jobs_are_proved_before_they_go_back, TakesWhatItLists),
    (failing_unlisted.a_stores_own_failed_jobs_can_be_purged, PurgesEveryQueue),
    (failing_unlisted.a_cancelled_redrive_strands_nothing, RetriesIntoNowhere),
)
