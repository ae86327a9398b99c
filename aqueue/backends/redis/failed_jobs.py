"""The failed jobs of all queues: each queue's in its own slot, found through a registry of names (FAIL-2).

A queue is registered before its first record is written, so that a crash between the two leaves a name too
many and never a record nobody can find. Names are not taken out again: there are only as many as queues.
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from typing import TypeVar

from aqueue.backends.redis.client import Client
from aqueue.backends.redis.failed_queue import FailedQueue, Place, place_of
from aqueue.backends.redis.keys import KeySpace, slot_of
from aqueue.port import FailedRecord, Message, Position

T = TypeVar("T")

_LANE = 0
_BEGINNING = Position(0.0, "")


class FailedJobs:
    """What a Redis keeps of failed jobs, its own or another store's."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys

    async def register(self, queues: Collection[str]) -> None:
        """Make sure that these queues are found when failed jobs are listed."""
        if queues:
            registry = self._keys.registry
            await self._client.command("SADD", registry, *queues, slot=slot_of(registry), lane=_LANE)

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once for its delivery; a later delivery's takes an earlier one's place."""
        queues: dict[str, list[FailedRecord]] = {}
        for record in batch:
            queues.setdefault(record.queue, []).append(record)
        await self.register(queues)
        await _all([self._of(queue).keep(records) for queue, records in queues.items()])

    async def page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> list[FailedRecord]:
        """Return up to `limit` records after a position, oldest first."""
        records: list[FailedRecord] = []
        while not records:
            places = await self._places(queue=queue, job=job, after=after, limit=limit)
            if not places:
                break
            records = await self._records(places)
            after = Position(places[-1].at / 1e6, places[-1].id)  # all of that page went in between: go on
        return records

    async def get(self, id: str) -> FailedRecord | None:
        """Return the oldest record with this job id; it costs a question for each queue."""
        found = await _all([self._of(queue).place_of(id) for queue in await self._registered()])
        places = sorted(place for place in found if place is not None)
        records = await self._records(places[:1])
        return records[0] if records else None

    async def count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        queues = await self._registered() if queue is None else [queue]
        return sum(await _all([self._of(name).count(job) for name in queues]))

    async def retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job; False when it is gone."""
        return await self._of(record.queue).retry(place_of(record), message.payload)

    async def discard(self, record: FailedRecord) -> bool:
        """Remove the record; False when it is gone."""
        return await self._of(record.queue).remove([place_of(record)]) == 1

    async def purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Remove up to `limit` of the oldest records past an age, or beyond a count."""
        old: list[Place] = []
        if older_than is not None:
            old = await self._places(queue=queue, least_age=older_than, limit=limit)
        if keep is not None:
            surplus = min(limit, await self.count(queue=queue, job=None) - keep)
            if surplus > len(old):
                old = await self._places(queue=queue, limit=surplus)
        return sum(await _all([self._of(name).remove(places) for name, places in _by_queue(old).items()]))

    def _of(self, queue: str) -> FailedQueue:
        return FailedQueue(self._client, self._keys.of(queue), queue)

    async def _registered(self) -> list[str]:
        registry = self._keys.registry
        reply = await self._client.command("SMEMBERS", registry, slot=slot_of(registry), lane=_LANE)
        assert isinstance(reply, list)
        return sorted(name.decode() for name in reply)

    async def _places(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        after: Position | None = None,
        limit: int,
        least_age: float | None = None,
    ) -> list[Place]:
        """Merge each queue's own order; of every queue only a page of places is read."""
        queues = await self._registered() if queue is None else [queue]
        position = after or _BEGINNING
        pages = await _all(
            [
                self._of(name).places(job=job, after=position, limit=limit, least_age=least_age)
                for name in queues
            ]
        )
        return sorted(place for page in pages for place in page)[:limit]

    async def _records(self, places: Sequence[Place]) -> list[FailedRecord]:
        """Read the records at these places, in their order; what is gone meanwhile is left out."""
        found: dict[Place, FailedRecord] = {}
        for records in await _all(
            [self._of(queue).records(here) for queue, here in _by_queue(places).items()]
        ):
            found |= records
        return [found[place] for place in places if place in found]


def _by_queue(places: Sequence[Place]) -> dict[str, list[Place]]:
    queues: dict[str, list[Place]] = {}
    for place in places:
        queues.setdefault(place.queue, []).append(place)
    return queues


async def _all(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Await calls that were made together, so that they travel together."""
    return [await calls[0]] if len(calls) == 1 else list(await asyncio.gather(*calls))
