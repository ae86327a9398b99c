"""Stores that mix up what the subscribers of a topic are owed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from aqueue.backends._shelf import Job
from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, FailedRecord, Failing, Message, Reserved
from aqueue.testing.contract import dispatching, topics


class KeepsOneCopy(MemoryBackend):
    """Takes the copies of one job for the same job."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        seen = {_arguments(message.payload): message for message in reversed(batch)}
        await super().push(list(seen.values()))
        return [None] * len(batch)


class DelaysTheFirstCopy(MemoryBackend):
    """Lets the delay of a batch's first job stand for all, once it is over."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        return await super().push([batch[0], *(_at_once(message) for message in batch[1:])])


class FailsTheCopiesToo(MemoryBackend):
    """A failure on one queue takes the copies on all others along."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        for item in batch:
            for lane in self._shelf.lanes.values():
                for job in _copies(lane.ready, item.reserved):
                    lane.ready.remove(job)
                    del lane.held[job.id]
        return await super().fail(batch)


class RetriesEverywhere(MemoryBackend):
    """Puts a failed copy back on every queue that it knows."""

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        await self.push([_moved(message, name) for name in list(self._shelf.lanes)])
        return await super().failed_retry(record, message)


class StoresCopiesOneByOne(MemoryBackend):
    """Says that a batch is one act, and stores it piece by piece."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        for message in batch:
            await super().push([message])
            await asyncio.sleep(0.002)
        return [None] * len(batch)


class LeaksIntoANeighbour(MemoryBackend):
    """Takes its queues one by one, and stores a job on one more than it was meant for."""

    capabilities = replace(MemoryBackend.capabilities, atomic_push=False)

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        await super().push([_moved(message, "orders-email") for message in batch])
        return await super().push(batch)


def _moved(message: Message, queue: str) -> Message:
    return Message(message.id, queue, message.payload, message.delay)


def _at_once(message: Message) -> Message:
    return Message(message.id, message.queue, message.payload)


def _copies(jobs: Sequence[Job], of: Reserved) -> list[Job]:
    return [job for job in jobs if _arguments(job.payload) == _arguments(of.payload)]


def _arguments(payload: bytes) -> bytes:
    return payload.partition(b'"args"')[2]


BROKEN = (
    (topics.each_subscriber_gets_a_copy_of_its_own, KeepsOneCopy),
    (topics.copies_are_delayed_alike, DelaysTheFirstCopy),
    (topics.one_subscribers_fate_touches_no_other, FailsTheCopiesToo),
    (topics.retrying_one_copy_reaches_its_own_subscriber_alone, RetriesEverywhere),
    (dispatching.each_queued_listener_is_told_once_by_a_worker, KeepsOneCopy),
    (dispatching.a_queued_listener_that_fails_spoils_no_other, FailsTheCopiesToo),
    (topics.copies_appear_at_once_where_they_are_one_act, StoresCopiesOneByOne),
    (topics.a_refusal_keeps_all_copies_back_or_names_those_that_were_stored, LeaksIntoANeighbour),
)
