"""Stores that take a job and don't keep it as it was."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from aqueue.backends._shelf import Job
from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Message, Releasing, Reserved
from aqueue.testing.contract import names_and_wire, opening, pushing, sealing


class AnswersTooSoon(MemoryBackend):
    """Answers first and stores afterwards."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        asyncio.get_running_loop().call_later(0.02, self._store_late, batch)
        return [None] * len(batch)

    def _store_late(self, batch: Sequence[Message]) -> None:
        for message in batch:
            job = Job(message.id, message.queue, message.payload, self._clock())
            self._shelf.lane(message.queue).admit(job, message.delay)


class KeepsJobsInItsConnection(MemoryBackend):
    """Writes to the store when it is closed in good order, and not before."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return [None] * len(batch)


class DropsFromFullBatches(MemoryBackend):
    """Loses the last of many that travel together."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        await super().push(batch[:-1] if len(batch) > 1 else batch)
        return [None] * len(batch)


class StoresBatchesBackwards(MemoryBackend):
    """Stores a batch last things first."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push(batch[::-1])


class TakesHalfABatch(MemoryBackend):
    """Declares a batch of fifty and stores at most twenty of them."""

    capabilities = replace(MemoryBackend.capabilities, max_batch=50)

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        await super().push(batch[:20])
        return [None] * len(batch)


class MakesItsOwnIds(MemoryBackend):
    """Calls jobs by other names than the pusher was told."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([msgspec.structs.replace(m, id=m.id[::-1]) for m in batch])


class MergesEqualJobs(MemoryBackend):
    """Takes two jobs with the same arguments for one."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        seen = {_arguments(job.payload) for lane in self._shelf.lanes.values() for job in lane.held.values()}
        await super().push([message for message in batch if _arguments(message.payload) not in seen])
        return [None] * len(batch)


def _arguments(payload: bytes) -> bytes:
    return payload.partition(b'"args"')[2]


class ForgetsIds(MemoryBackend):
    """Stores a repeated id again."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        now = self._clock()
        for message in batch:
            job = Job(message.id, message.queue, message.payload, now + message.delay)
            self._shelf.lane(message.queue).admit(job, message.delay)
            self._shelf.announce(message.queue)
        return [None] * len(batch)


class ForgetsIdsOnceHandedOut(MemoryBackend):
    """Knows only the ids of jobs that wait."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        taken = await super().pop(queues, limit)
        for item in taken:
            lane = self._shelf.lane(item.queue)
            lane.held = {job.id: job for job in (*lane.ready, *(entry[2] for entry in lane.delayed))}
        return taken

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        for item in batch:
            self._shelf.lane(item.queue).held.setdefault(item.id, Job(item.id, "", b"", 0.0))
        return await super().ack(batch)


class RemembersIdsForEver(MemoryBackend):
    """Refuses an id that was ever used, on any queue."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        used: set[str] = self.__dict__.setdefault("used", set())
        await super().push([message for message in batch if message.id not in used])
        used.update(message.id for message in batch)
        return [None] * len(batch)


class FoldsNames(MemoryBackend):
    """Takes `A` and `a` for the same queue."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([msgspec.structs.replace(m, queue=m.queue.lower()) for m in batch])

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await super().pop(list(dict.fromkeys(name.lower() for name in queues)), limit)


class CutsNames(MemoryBackend):
    """Keeps sixty characters of a name."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([msgspec.structs.replace(m, queue=m.queue[:60]) for m in batch])

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await super().pop([name[:60] for name in queues], limit)


class DropsNuls(MemoryBackend):
    """Can't keep a NUL and says nothing."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        clean = [msgspec.structs.replace(m, payload=m.payload.replace(b"\\u0000", b"")) for m in batch]
        return await super().push(clean)


class RewritesOnRelease(MemoryBackend):
    """Counts inside the envelope instead of beside it."""

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        for item in batch:
            job = self._shelf.lane(item.reserved.queue).held.get(item.reserved.id)
            if job is not None and item.counted:
                job.payload = job.payload[:-1] + b',"attempts":2}'
        return await super().release(batch)


class Recodes(MemoryBackend):
    """Parses what it is given and writes it anew, as a JSON column would."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([msgspec.structs.replace(m, payload=_recoded(m.payload)) for m in batch])


def _recoded(payload: bytes) -> bytes:
    brace = payload.find(b"{")
    try:
        return payload[:brace] + msgspec.json.format(payload[brace:], indent=1)
    except msgspec.DecodeError:
        return payload


class ForgetsOnClose(MemoryBackend):
    """Loses everything with the last word of any connection."""

    async def aclose(self) -> None:
        self._shelf.lanes.clear()


class MigratesByStartingAnew(MemoryBackend):
    """Upgrades a store by emptying it."""

    async def migrate(self) -> None:
        self._shelf.lanes.clear()


class ChangesItsMind(MemoryBackend):
    """Says other things about itself each time it is made."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they are
        self.capabilities = replace(MemoryBackend.capabilities, system=f"memory-{id(self)}")


BROKEN = (
    (pushing.a_job_is_in_the_store_once_push_returns, AnswersTooSoon),
    (pushing.a_job_outlives_the_connection_that_pushed_it, KeepsJobsInItsConnection),
    (pushing.concurrent_pushes_are_each_stored_once, DropsFromFullBatches),
    (pushing.a_cancelled_push_harms_no_other, DropsFromFullBatches),
    (pushing.the_order_of_submission_is_kept, StoresBatchesBackwards),
    (pushing.push_many_answers_in_order, DropsFromFullBatches),
    (pushing.push_many_takes_more_than_one_batch, TakesHalfABatch),
    (pushing.ids_are_random_and_equal_jobs_stay_distinct, MergesEqualJobs),
    (pushing.the_id_stays_through_every_turn, MakesItsOwnIds),
    (pushing.an_id_the_queue_still_holds_stores_nothing_new, ForgetsIds),
    (pushing.an_id_the_queue_still_holds_stores_nothing_new, ForgetsIdsOnceHandedOut),
    (pushing.one_id_pushed_at_once_is_stored_once, ForgetsIds),
    (pushing.an_id_is_free_again_once_its_job_has_ended, RemembersIdsForEver),
    (names_and_wire.every_good_name_is_a_queue_of_its_own, FoldsNames),
    (names_and_wire.every_good_name_is_a_queue_of_its_own, CutsNames),
    (names_and_wire.odd_texts_travel_unchanged, DropsNuls),
    (names_and_wire.the_envelope_stays_the_same_through_every_turn, RewritesOnRelease),
    (sealing.sealed_jobs_travel_and_come_back, Recodes),
    (sealing.known_older_keys_stay_readable, Recodes),
    (opening.a_queue_opens_and_closes_again_and_again, ForgetsOnClose),
    (opening.closing_lets_what_is_under_way_end, ForgetsOnClose),
    (opening.migrating_is_safe_to_repeat_and_side_by_side, MigratesByStartingAnew),
    (opening.a_store_says_truly_what_it_can, ChangesItsMind),
)
