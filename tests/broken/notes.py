"""Stores that write notes nobody asked for, lose those of others, or part a note from its jobs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Message, Note, NoteKey, Noting, QueueStats, Verdict
from aqueue.testing.contract import notes, notes_with_jobs


class WritesWhateverIsThere(MemoryBackend):
    """Takes a write for a write, whatever it expects."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        now = self._clock()
        return await super().write_notes(
            [replaced(item, expected=self._shelf.notes.read(item.at, now).token) for item in batch]
        )


class LooksAndThenWrites(MemoryBackend):
    """Lets others in between looking at a note and writing it."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        found = await self.read_notes([item.at for item in batch])
        await asyncio.sleep(0)
        answers: list[Answer] = []
        for item, note in zip(batch, found, strict=True):
            if note.token != item.expected:
                answers.append(Verdict.STALE)
                continue
            current = self._shelf.notes.read(item.at, note.now).token
            answers += await super().write_notes([replaced(item, expected=current)])
        return answers


class SaysYesToAllNotes(MemoryBackend):
    """Writes nothing for a stale token, and doesn't say so."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        await super().write_notes(batch)
        return [Verdict.SETTLED] * len(batch)


class MixesUpAnswers(MemoryBackend):
    """Answers the last note first."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return list(await super().write_notes(batch))[::-1]


class FoldsKeys(MemoryBackend):
    """Takes `a` and `A` for the same key."""

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        return await super().read_notes([NoteKey(at.queue, at.key.lower()) for at in keys])

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes(
            [replaced(item, at=NoteKey(item.at.queue, item.at.key.lower())) for item in batch]
        )


class SharesNotesAmongQueues(MemoryBackend):
    """Keeps one note of a key for all queues."""

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        return await super().read_notes([NoteKey("all", at.key) for at in keys])

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([replaced(item, at=NoteKey("all", item.at.key)) for item in batch])


class TakesEmptyForNone(MemoryBackend):
    """Can't tell a note of no bytes from no note."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([replaced(item, value=item.value or None) for item in batch])


class KeepsWhatIsRemoved(MemoryBackend):
    """Leaves an empty note where one was removed."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([replaced(item, value=item.value or b"") for item in batch])


class ForgetsNothing(MemoryBackend):
    """Keeps every note for ever."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([replaced(item, seconds=None) for item in batch])


class ForgetsTooSoon(MemoryBackend):
    """Keeps every note for half its time."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes(
            [replaced(item, seconds=item.seconds and item.seconds / 100) for item in batch]
        )


class KeepsTheFirstLifetime(MemoryBackend):
    """Lets a note end when its first write said, whatever the later ones do."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        lasting = self.__dict__.setdefault("lasting", {})
        return await super().write_notes(
            [replaced(item, seconds=lasting.setdefault(item.at, item.seconds)) for item in batch]
        )


class StopsTheClock(MemoryBackend):
    """Tells the time at which it was made."""

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        return [msgspec.structs.replace(note, now=1.0) for note in await super().read_notes(keys)]


class CountsNotes(MemoryBackend):
    """Takes notes for waiting jobs."""

    async def stats(self, queue: str) -> QueueStats:
        stats = await super().stats(queue)
        return msgspec.structs.replace(stats, ready=stats.ready + len(self._shelf.notes))


class ClearsNotes(MemoryBackend):
    """Discards what was noted along with the jobs."""

    async def clear(self, queue: str) -> int:
        self._shelf.notes.__init__()  # type: ignore[misc]  # begins anew
        return await super().clear(queue)


class PushesForTheLoserToo(MemoryBackend):
    """Pushes the jobs first, and then looks at the note."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        for item in batch:
            await self.push(item.messages)
        return await super().write_notes([replaced(item, messages=()) for item in batch])


class LosesJobsOfNotes(MemoryBackend):
    """Writes the note and forgets why."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([replaced(item, messages=item.messages[1:]) for item in batch])


class IgnoresDelaysOfNotes(MemoryBackend):
    """Makes the jobs of a note due at once."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        return await super().write_notes([replaced(item, messages=_due(item.messages)) for item in batch])


def _due(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(msgspec.structs.replace(message, delay=0.0) for message in messages)


class RefusesWhatItHolds(MemoryBackend):
    """Writes no note with a job that its queue holds already."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        answers: list[Answer] = []
        for item in batch:
            held = self._shelf.lane(item.at.queue).held
            is_held = any(message.id in held for message in item.messages)
            answers += [Verdict.STALE] if is_held else await super().write_notes([item])
        return answers


class SaysNothingOfItsJobs(MemoryBackend):
    """Lets whoever waits go on waiting."""

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        waiting, self._shelf.waiting = self._shelf.waiting, {}
        answers = await super().write_notes(batch)
        self._shelf.waiting = waiting
        return answers


class PushesInAStepOfItsOwn(MemoryBackend):
    """Writes the note first, and of its jobs only what is left once others had their turn."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        answers = await super().write_notes([replaced(item, messages=()) for item in batch])
        await asyncio.sleep(0)
        for item in batch:
            if self._shelf.notes.read(item.at, self._clock()).token == item.token:
                await self.push(item.messages[1:])
        return answers


def replaced(item: Noting, **changes: object) -> Noting:
    """Return the write with other fields."""
    return msgspec.structs.replace(item, **changes)


BROKEN = (
    (notes.a_note_says_what_was_written_last, TakesEmptyForNone),
    (notes.every_key_is_a_note_of_its_own, FoldsKeys),
    (notes.every_key_is_a_note_of_its_own, SharesNotesAmongQueues),
    (notes.only_what_was_read_can_be_replaced, WritesWhateverIsThere),
    (notes.only_what_was_read_can_be_replaced, SaysYesToAllNotes),
    (notes.a_removed_note_is_no_note, KeepsWhatIsRemoved),
    (notes.a_note_ends_when_its_time_is_over, ForgetsNothing),
    (notes.a_note_ends_when_its_time_is_over, ForgetsTooSoon),
    (notes.the_last_write_says_how_long_a_note_lasts, KeepsTheFirstLifetime),
    (notes.a_note_tells_the_stores_time, StopsTheClock),
    (notes.of_many_writers_one_wins, WritesWhateverIsThere),
    (notes.of_many_writers_one_wins, LooksAndThenWrites),
    (notes.of_many_writers_one_wins, SaysYesToAllNotes),
    (notes.counting_together_loses_nothing, LooksAndThenWrites),
    (notes.each_note_of_a_batch_is_answered_for_itself, MixesUpAnswers),
    (notes.each_note_of_a_batch_is_answered_for_itself, SaysYesToAllNotes),
    (notes.notes_are_no_jobs, CountsNotes),
    (notes.notes_are_no_jobs, ClearsNotes),
    (notes_with_jobs.jobs_come_with_their_note_or_not_at_all, PushesForTheLoserToo),
    (notes_with_jobs.jobs_come_with_their_note_or_not_at_all, LosesJobsOfNotes),
    (notes_with_jobs.jobs_of_a_note_keep_their_delay, IgnoresDelaysOfNotes),
    (notes_with_jobs.a_job_that_the_queue_holds_is_not_stored_again, RefusesWhatItHolds),
    (notes_with_jobs.jobs_of_a_note_wake_who_waits, SaysNothingOfItsJobs),
    (notes_with_jobs.a_cancelled_change_is_made_whole_or_not_at_all, PushesInAStepOfItsOwn),
)
