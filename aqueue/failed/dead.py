"""Failed jobs in a dead-letter queue of the store's own: counted, put back whole and purged (FAIL-1).

They can only be taken, like jobs, so each run takes a few at a time. One that is dealt with is removed after
that; one that is not stays reserved until the run is over, or it would be taken again and again, and is then
given back to where it was. A run that is cancelled ends with what it has taken.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from aqueue.contract.names import check_queue_name
from aqueue.errors import FailedStoreMissing, InvalidQueueArgument, JobReconstructionError
from aqueue.failed.payloads import Payloads
from aqueue.failed.redriving import Fate, Pace, Redrive
from aqueue.port import Dead, DeadLetters, Message, Releasing, Reserved
from aqueue.store import Store

_STEP = 100
_MOST_HELD = 10_000


class DeadQueue:
    """What can be done with the failed jobs of a store that is `DeadLetters`."""

    def __init__(
        self, store: Store, letters: DeadLetters, payloads: Payloads, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._letters = letters
        self._payloads = payloads
        self._clock = clock
        self._step = min(_STEP, store.capabilities.max_batch)

    async def count(self, queue: str | None) -> int:
        """Return how many failed jobs the queue has."""
        name = self._named(queue)
        return (await self._store.run("count", lambda: self._store.backend.stats(name))).failed

    async def retry_all(self, queue: str | None, redrive: Redrive, pace: Pace) -> None:
        """Put back what the queue has now; what can't be read stays. A dry run counts, and reads nothing."""
        name = self._named(queue)
        left = await self.count(name)
        if redrive.is_dry:
            redrive.put_back = left if redrive.limit is None else min(left, redrive.limit)
            return
        held: list[Reserved] = []
        try:
            while left > 0 and not redrive.is_full and len(held) < _MOST_HELD:
                limit = min(left, redrive.room, pace.together, self._step)
                await pace.turn(limit)
                taken = await self._through(self._put_back_some(name, limit, redrive, held))
                if not taken:
                    return
                left -= taken
        finally:
            await self._give_back(held)

    async def purge(self, queue: str | None, age: float) -> int:
        """Remove what failed longer ago than `age` seconds; oldest come first, so a younger one ends it."""
        name = self._named(queue)
        left = await self.count(name)
        purged = 0
        held: list[Reserved] = []
        try:
            while left > 0 and not held:
                taken = await self._through(self._purge_some(name, min(left, self._step), age, held))
                if not taken:
                    break
                left -= taken
                purged += taken - len(held)
        finally:
            await self._give_back(held)
        return purged

    async def _put_back_some(self, queue: str, limit: int, redrive: Redrive, held: list[Reserved]) -> int:
        """Take some, push those that are proved, then remove them; a crash between the two doubles a job."""
        dead = await self._take(queue, limit)
        good: list[Dead] = []
        for letter in dead:
            try:
                self._payloads.verified(letter.record)
            except JobReconstructionError:
                held.append(letter.reserved)
                redrive.tell(letter.record, Fate.UNREADABLE)
            else:
                good.append(letter)
        if good:
            await self._push_and_remove(good, redrive, held)
        return len(dead)

    async def _push_and_remove(self, good: Sequence[Dead], redrive: Redrive, held: list[Reserved]) -> None:
        messages = [Message(one.record.id, one.record.queue, one.record.payload) for one in good]
        try:
            stored = await self._store.call("push", lambda: self._store.backend.push(messages))
        except BaseException:
            held += [letter.reserved for letter in good]
            raise
        pushed = [letter for letter, error in zip(good, stored, strict=True) if error is None]
        held += [letter.reserved for letter, error in zip(good, stored, strict=True) if error is not None]
        await self._remove(pushed, held)
        for letter in pushed:
            redrive.tell(letter.record, Fate.PUT_BACK)
        for message, error in zip(messages, stored, strict=True):
            if error is not None:
                raise self._store.translated(error, "push", message.id)

    async def _purge_some(self, queue: str, limit: int, age: float, held: list[Reserved]) -> int:
        dead = await self._take(queue, limit)
        before = self._clock() - age
        old = [letter for letter in dead if letter.record.failed_at <= before]
        held += [letter.reserved for letter in dead if letter.record.failed_at > before]
        await self._remove(old, held)
        return len(dead)

    async def _take(self, queue: str, limit: int) -> Sequence[Dead]:
        return await self._store.call("take", lambda: self._letters.take_dead(queue, limit))

    async def _remove(self, dead: Sequence[Dead], held: list[Reserved]) -> None:
        """Remove what is dealt with; what certainly or perhaps isn't removed is not left reserved either."""
        reserved = [letter.reserved for letter in dead]
        if not reserved:
            return
        try:
            answers = await self._store.call("ack", lambda: self._store.backend.ack(reserved))
        except BaseException:
            held += reserved
            raise
        held += [one for one, answer in zip(reserved, answers, strict=True) if isinstance(answer, Exception)]

    async def _through(self, step: Coroutine[object, object, int]) -> int:
        """Do one step in a task of ours; a caller that is cancelled waits until it is over (POP-6)."""
        task = self._store.spawn(step)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self._store.see_through(_ended(task))
            raise

    async def _give_back(self, held: Sequence[Reserved]) -> None:
        """The last ones first, since each batch goes in front of what is there already."""
        for start in reversed(range(0, len(held), self._step)):
            batch = [Releasing(item, counted=False) for item in held[start : start + self._step]]
            await self._store.see_through(self._release(batch))

    async def _release(self, batch: Sequence[Releasing]) -> None:
        await self._store.call("release", lambda: self._store.backend.release(batch))

    def _named(self, queue: str | None) -> str:
        if queue is None:
            raise InvalidQueueArgument(
                f"{self._store.capabilities.system} keeps each queue's failed jobs in a queue of their own: "
                "say whose with queue="
            )
        return check_queue_name(queue)


def refuse_to_choose(store: Store, *, job: str | None, group: str | None) -> None:
    """Raise `FailedStoreMissing` for what a dead-letter queue can't answer: it can only be taken as it is."""
    if job is not None or group is not None:
        raise FailedStoreMissing(
            f"{store.capabilities.system} can't choose among its failed jobs: give connect(failed=…) another "
            "aqueue URL to keep them in"
        )


async def _ended(task: "asyncio.Task[int]") -> None:
    await asyncio.wait({task})
