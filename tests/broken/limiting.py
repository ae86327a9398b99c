"""Stores over which no limit holds: notes that are forgotten, or taken for each other."""

from collections.abc import Sequence

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Note, NoteKey, Noting, Verdict
from aqueue.testing.contract import flows, limiting, results, uniqueness


class WritesNoNote(MemoryBackend):
    """Says that it wrote each note, and keeps none."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return [Verdict.SETTLED] * len(batch)


class KnowsOneKey(MemoryBackend):
    """Keeps the same note under all keys."""

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        return await super().read_notes([NoteKey("one", "key")] * len(keys))

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        one = NoteKey("one", "key")
        return await super().write_notes([msgspec.structs.replace(item, at=one) for item in batch])


class KeepsNotesForEver(MemoryBackend):
    """Forgets for how long a note was to be kept."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([msgspec.structs.replace(item, seconds=None) for item in batch])


class ForgetsNotes(MemoryBackend):
    """Stores the jobs of a note, and not the note."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        await self.push([message for item in batch for message in item.messages])
        return [Verdict.SETTLED] * len(batch)


BROKEN = (
    (limiting.no_more_start_in_a_window_than_the_limit, WritesNoNote),
    (limiting.a_job_that_comes_too_early_is_put_off_without_an_attempt, WritesNoNote),
    (limiting.each_key_has_its_own_limit, KnowsOneKey),
    (limiting.no_more_run_at_once_than_the_limit, WritesNoNote),
    (limiting.a_slot_whose_holder_died_is_free_after_its_lease, WritesNoNote),
    (limiting.a_failing_dependency_is_left_alone_and_tried_by_one, WritesNoNote),
    (uniqueness.while_a_key_is_taken_nothing_new_is_stored, WritesNoNote),
    (uniqueness.while_a_key_is_taken_nothing_new_is_stored, KnowsOneKey),
    (uniqueness.of_pushes_at_once_one_stores_a_job, KnowsOneKey),
    (uniqueness.a_key_is_free_once_its_job_is_done, WritesNoNote),
    (uniqueness.a_job_put_back_by_hand_meets_no_key, WritesNoNote),
    (uniqueness.a_key_until_started_is_free_when_the_first_attempt_begins, WritesNoNote),
    (uniqueness.a_window_holds_its_key_whatever_becomes_of_the_job, WritesNoNote),
    (uniqueness.a_list_of_unique_jobs_is_pushed_one_by_one, WritesNoNote),
    (results.what_a_job_returned_is_found_by_its_id, WritesNoNote),
    (results.a_failed_job_tells_its_failure_until_it_succeeds, WritesNoNote),
    (results.the_last_word_of_progress_is_kept, WritesNoNote),
    (results.a_result_is_forgotten_after_its_time, KeepsNotesForEver),
    (flows.each_step_follows_the_one_before_it, WritesNoNote),
    (flows.a_step_that_runs_again_is_followed_once, ForgetsNotes),
    (flows.what_follows_a_batch_comes_once_all_have_succeeded, WritesNoNote),
    (flows.a_member_counts_once_however_often_it_runs, WritesNoNote),
    (flows.a_batch_pushed_again_under_its_id_is_one_batch, ForgetsNotes),
    (flows.an_empty_batch_is_done_at_once, WritesNoNote),
)
