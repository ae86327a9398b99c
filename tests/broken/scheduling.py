"""Stores over which schedules fire too often or not at all, and nobody owns an occurrence."""

from collections.abc import Sequence

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Message, Noting
from aqueue.testing.contract import scheduling
from broken.limiting import KnowsOneKey, WritesNoNote
from broken.notes import IgnoresDelaysOfNotes, LosesJobsOfNotes, StopsTheClock, replaced


class PushesJobsOfNotesTwice(MemoryBackend):
    """Stores each job of a note once more, under another id."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes(
            [replaced(item, messages=(*item.messages, *map(_again, item.messages))) for item in batch]
        )


class KeepsTheFirstNote(MemoryBackend):
    """Goes on saying what was written first, and pushes what goes with the rest."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        first = await self.read_notes([item.at for item in batch])
        return await super().write_notes(
            [
                item if note.value is None else replaced(item, value=note.value)
                for item, note in zip(batch, first, strict=True)
            ]
        )


def _again(message: Message) -> Message:
    return Message(message.id[::-1], message.queue, message.payload, message.delay)


BROKEN = (
    (scheduling.each_time_gives_one_job_however_many_look, PushesJobsOfNotesTwice),
    (scheduling.each_time_gives_one_job_however_many_look, KeepsTheFirstNote),
    (scheduling.each_time_gives_one_job_however_many_look, LosesJobsOfNotes),
    (scheduling.each_time_gives_one_job_however_many_look, StopsTheClock),
    (scheduling.schedules_keep_out_of_each_others_way, KnowsOneKey),
    (scheduling.a_pause_holds_everywhere_and_misses_nothing, KeepsTheFirstNote),
    (scheduling.a_triggered_job_is_one_more, WritesNoNote),
    (scheduling.jitter_puts_a_job_off_in_the_store, IgnoresDelaysOfNotes),
    (scheduling.a_scheduled_job_carries_its_occurrence_sealed, LosesJobsOfNotes),
    (scheduling.an_occurrence_has_one_owner, WritesNoNote),
    (scheduling.an_occurrence_has_one_owner, KnowsOneKey),
    (scheduling.a_lost_occurrence_lease_fences_its_owner, KeepsTheFirstNote),
    (scheduling.a_worker_runs_no_occurrence_that_is_complete, WritesNoNote),
)
