"""Stores that let the wrong delivery end a job, or end it the wrong way."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from aqueue.backends._shelf import Job
from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Failing, Message, Releasing, Reserved, Verdict
from aqueue.testing.contract import concurrency, leases, malformed, settling


class AcksByJob(MemoryBackend):
    """Lets any delivery of a job finish it."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return await super().ack([_live(self, item) for item in batch])


class ReleasesByJob(MemoryBackend):
    """Lets any delivery of a job put it back."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await super().release(
            [msgspec.structs.replace(item, reserved=_live(self, item.reserved)) for item in batch]
        )


class FailsByJob(MemoryBackend):
    """Lets any delivery of a job set it aside."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        return await super().fail([Failing(_live(self, item.reserved), item.record) for item in batch])


def _live(backend: MemoryBackend, item: Reserved) -> Reserved:
    job = backend._shelf.lane(item.queue).held.get(item.id)
    return item if job is None else msgspec.structs.replace(item, receipt=job.token)


class SaysYesToAll(MemoryBackend):
    """Writes nothing for a stale delivery, and doesn't say so."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        await super().ack(batch)
        return [Verdict.SETTLED] * len(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        await super().release(batch)
        return [Verdict.SETTLED] * len(batch)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        await super().fail(batch)
        return [Verdict.SETTLED] * len(batch)


class PutsBackWhatIsDone(MemoryBackend):
    """Takes a release of a finished job for a new push."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        answers = list(await super().release(batch))
        for item, answer in zip(batch, answers, strict=True):
            if answer is Verdict.STALE:
                await self.push([Message(item.reserved.id, item.reserved.queue, item.reserved.payload)])
        return answers


class OneReceiptPerJob(MemoryBackend):
    """Names the job in its receipts, and not the hand-out."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return [msgspec.structs.replace(item, receipt=item.id) for item in await super().pop(queues, limit)]

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return await super().ack([_live(self, item) for item in batch])

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await super().release(
            [msgspec.structs.replace(item, reserved=_live(self, item.reserved)) for item in batch]
        )


class AnswersOutOfOrder(MemoryBackend):
    """Mixes up whose answer is whose."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return list(await super().ack(batch))[::-1]


class HoldsToItsOwn(MemoryBackend):
    """Accepts a settlement only on the connection that popped."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they are
        self._own: set[object] = set()

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        taken = await super().pop(queues, limit)
        self._own.update(item.receipt for item in taken)
        return taken

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        own = [item.receipt in self._own for item in batch]
        return [
            a if is_own else Verdict.STALE for a, is_own in zip(await super().ack(batch), own, strict=True)
        ]


class LosesWhatIsReleased(MemoryBackend):
    """Takes the delivery away first, and stops there."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await self.ack([item.reserved for item in batch])


class CopiesWhatIsReleased(MemoryBackend):
    """Puts the replacement down and leaves the original where it was."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        answers = await self.extend([item.reserved for item in batch])
        for item in batch:
            copy = Message(item.reserved.id, item.reserved.queue, item.reserved.payload)
            self._shelf.lane(copy.queue).ready.append(Job(copy.id, copy.queue, copy.payload, self._clock()))
        return answers


class IgnoresPauses(MemoryBackend):
    """Puts a job back at once, whatever pause was asked for."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await super().release([Releasing(item.reserved, 0.0, item.counted) for item in batch])


class CountsNoAttempts(MemoryBackend):
    """Thinks that every attempt is the first."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await super().release([Releasing(item.reserved, item.delay, counted=False) for item in batch])


class CountsPausedGiveBacks(MemoryBackend):
    """Makes an attempt of a snooze."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        return await super().release(
            [Releasing(item.reserved, item.delay, item.counted or item.delay > 0) for item in batch]
        )


class SendsGiveBacksToTheEnd(MemoryBackend):
    """Lets a job that was handed out in vain queue up again."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        answers = await super().release(batch)
        for item in batch:
            self._shelf.lane(item.reserved.queue).ready.rotate(-1)
        return answers


class IsEarly(MemoryBackend):
    """Halves every delay."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([msgspec.structs.replace(m, delay=m.delay / 2) for m in batch])


class IsNeverDue(MemoryBackend):
    """Takes seconds for hours."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([msgspec.structs.replace(m, delay=m.delay * 3600) for m in batch])


class WaitsBehindLongerDelays(MemoryBackend):
    """Expires delayed jobs from the head of one line, in the order they came."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        longest = max(
            [at - self._clock() for at, _, _ in self._shelf.lane(batch[0].queue).delayed], default=0
        )
        return await super().push(
            [msgspec.structs.replace(m, delay=max(m.delay, longest) if m.delay else 0) for m in batch]
        )


class DelaysInItsOwnMemory(MemoryBackend):
    """Keeps delayed jobs to itself until they are due, and takes them along when it goes."""

    async def aclose(self) -> None:
        for lane in self._shelf.lanes.values():
            lane.delayed.clear()


BROKEN = (
    (settling.nothing_settles_after_an_ack, SaysYesToAll),
    (settling.nothing_settles_after_an_ack, PutsBackWhatIsDone),
    (settling.nothing_settles_after_a_release, SaysYesToAll),
    (settling.nothing_settles_after_a_delayed_release, SaysYesToAll),
    (settling.nothing_settles_after_a_failure, PutsBackWhatIsDone),
    (settling.nothing_settles_after_an_uncounted_give_back, SaysYesToAll),
    (settling.a_lost_delivery_settles_nothing, AcksByJob),
    (settling.a_lost_delivery_settles_nothing, ReleasesByJob),
    (settling.a_lost_delivery_settles_nothing, FailsByJob),
    (settling.a_delivery_given_back_and_taken_again_is_another, OneReceiptPerJob),
    (settling.a_delivery_given_back_and_taken_again_is_another, AcksByJob),
    (settling.a_receipt_is_new_for_each_hand_out, OneReceiptPerJob),
    (settling.of_two_settlements_at_once_one_wins, SaysYesToAll),
    (settling.any_connection_settles_a_live_delivery, HoldsToItsOwn),
    (settling.many_settlements_at_once_each_find_their_own, AnswersOutOfOrder),
    (concurrency.the_books_balance, LosesWhatIsReleased),
    (leases.many_leases_are_renewed_in_one_call, LosesWhatIsReleased),
    (malformed.a_lost_fence_removes_nothing, FailsByJob),
    (settling.a_released_job_waits_again_and_nowhere_twice, LosesWhatIsReleased),
    (settling.a_released_job_waits_again_and_nowhere_twice, CopiesWhatIsReleased),
    (settling.a_release_may_ask_for_a_pause, IgnoresPauses),
    (settling.attempts_count_failures_and_lost_leases_alone, CountsNoAttempts),
    (settling.a_delayed_give_back_counts_nothing, CountsPausedGiveBacks),
    (settling.a_given_back_job_goes_first, SendsGiveBacksToTheEnd),
    (settling.a_delayed_job_is_never_early_and_soon_there, IsEarly),
    (settling.a_delayed_job_is_never_early_and_soon_there, IsNeverDue),
    (settling.a_delayed_job_is_never_early_and_soon_there, DelaysInItsOwnMemory),
    (settling.delayed_jobs_come_in_the_order_they_are_due, WaitsBehindLongerDelays),
)
