"""The failed jobs of all queues: each queue's in its own slot, found through a registry of names (FAIL-2).

A queue is registered before its first record is written, so that a crash between the two leaves a name too
many and never a record nobody can find. Names are not taken out again: there are only as many as queues.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Collection, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import KeySpace, slot_of
from aqueue.backends.redis.link import Argument
from aqueue.port import FailedRecord, Message, Position

T = TypeVar("T")

_LANE = 0
_FIRST = Position(0.0, "")
_LABEL_BYTES = 32

_decoder = msgspec.msgpack.Decoder(FailedRecord)
_encoder = msgspec.msgpack.Encoder()


class Place(NamedTuple):
    """Where a record stands in the order of failures: microseconds by the store's clock, job and queue."""

    at: int
    id: str
    queue: str


class FailedJobs:
    """What a Redis keeps of failed jobs, its own or another store's."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys

    async def register(self, queues: Collection[str]) -> None:
        """Make sure that these queues are found when failed jobs are listed."""
        if not queues:
            return
        registry = self._keys.registry
        await self._client.command("SADD", registry, *queues, slot=slot_of(registry), lane=_LANE)

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once for its delivery; a later delivery's takes an earlier one's place."""
        queues = {record.queue: [one for one in batch if one.queue == record.queue] for record in batch}
        await self.register(queues)
        await _all([self._kept(queue, records) for queue, records in queues.items()])

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
        """Return the oldest record with this job id."""
        queues = await self._registered()
        times = await _all([self._time_of(queue, id) for queue in queues])
        places = sorted(
            Place(at, id, queue) for queue, at in zip(queues, times, strict=True) if at is not None
        )
        records = await self._records(places[:1])
        return records[0] if records else None

    async def count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        queues = await self._registered() if queue is None else [queue]
        return sum(await _all([self._count_of(name, job) for name in queues]))

    async def retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job; False when it is gone."""
        keys = self._keys.of(record.queue)
        names = (keys.failed, keys.failed_order, keys.failed_names, keys.pending, keys.jobs)
        arguments = (keys.channel, record.id, _microseconds(record.failed_at), message.payload)
        reply = await self._client.run(_RETRY, names, arguments, slot=keys.slot, lane=_LANE)
        return reply == 1

    async def discard(self, record: FailedRecord) -> bool:
        """Remove the record; False when it is gone."""
        place = Place(_microseconds(record.failed_at), record.id, record.queue)
        return await self._removed(record.queue, [place]) == 1

    async def purge(self, *, older_than: float | None, keep: int | None, limit: int) -> int:
        """Remove up to `limit` of the oldest records past an age, or beyond a count."""
        old: list[Place] = []
        if older_than is not None:
            old = await self._places(least_age=older_than, limit=limit)
        if keep is not None:
            surplus = min(limit, await self.count(queue=None, job=None) - keep)
            if surplus > len(old):
                old = await self._places(limit=surplus)
        queues = {place.queue: [one for one in old if one.queue == place.queue] for place in old}
        return sum(await _all([self._removed(queue, places) for queue, places in queues.items()]))

    async def _registered(self) -> list[str]:
        registry = self._keys.registry
        reply = await self._client.command("SMEMBERS", registry, slot=slot_of(registry), lane=_LANE)
        assert isinstance(reply, list)
        return sorted(name.decode() for name in reply)

    async def _kept(self, queue: str, records: Sequence[FailedRecord]) -> None:
        keys = self._keys.of(queue)
        arguments: list[Argument] = []
        for record in records:
            arguments += (record.id, label_of(record), encoded(record))
        names = (keys.failed, keys.failed_order, keys.failed_names)
        await self._client.run(_KEEP, names, arguments, slot=keys.slot, lane=_LANE)

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
        position = after or _FIRST
        arguments = (
            digest(job) if job is not None else "",
            _microseconds(position.failed_at),
            position.id,
            limit,
            "" if least_age is None else _microseconds(least_age),
        )
        pages = await _all([self._page_of(name, arguments) for name in queues])
        return sorted(place for page in pages for place in page)[:limit]

    async def _page_of(self, queue: str, arguments: Sequence[Argument]) -> list[Place]:
        keys = self._keys.of(queue)
        names = (keys.failed_order, keys.failed_names)
        reply = await self._client.run(_PAGE, names, arguments, slot=keys.slot, lane=_LANE)
        assert isinstance(reply, list)
        return [
            Place(int(at), id.decode(), queue)
            for id, at in zip(islice(reply, 0, None, 2), islice(reply, 1, None, 2), strict=True)
        ]

    async def _records(self, places: Sequence[Place]) -> list[FailedRecord]:
        """Read the records at these places, in their order; what is gone meanwhile is left out."""
        queues = {place.queue: [one for one in places if one.queue == place.queue] for place in places}
        found: dict[Place, FailedRecord] = {}
        for records in await _all([self._records_of(*item) for item in queues.items()]):
            found |= records
        return [found[place] for place in places if place in found]

    async def _records_of(self, queue: str, places: Sequence[Place]) -> dict[Place, FailedRecord]:
        keys = self._keys.of(queue)
        ids = [place.id for place in places]
        reply = await self._client.command("HMGET", keys.failed, *ids, slot=keys.slot, lane=_LANE)
        assert isinstance(reply, list)
        return {
            place: decoded(place, value)
            for place, value in zip(places, reply, strict=True)
            if value is not None
        }

    async def _time_of(self, queue: str, id: str) -> int | None:
        keys = self._keys.of(queue)
        reply = await self._client.command("ZSCORE", keys.failed_order, id, slot=keys.slot, lane=_LANE)
        return round(float(reply)) if isinstance(reply, bytes) else None

    async def _count_of(self, queue: str, job: str | None) -> int:
        keys = self._keys.of(queue)
        counting: tuple[Argument, ...] = ("ZCARD", keys.failed_order)
        if job is not None:
            name = digest(job)
            counting = ("ZLEXCOUNT", keys.failed_names, f"[{name}", f"({name}x")
        reply = await self._client.command(*counting, slot=keys.slot, lane=_LANE)
        assert isinstance(reply, int)
        return reply

    async def _removed(self, queue: str, places: Sequence[Place]) -> int:
        keys = self._keys.of(queue)
        names = (keys.failed, keys.failed_order, keys.failed_names)
        arguments: list[Argument] = []
        for place in places:
            arguments += (place.id, place.at)
        reply = await self._client.run(_REMOVE, names, arguments, slot=keys.slot, lane=_LANE)
        assert isinstance(reply, int)
        return reply


def label_of(record: FailedRecord) -> str:
    """Return what the scripts tell records apart by: the digests of the job's name and of the delivery."""
    return digest(record.name) + digest(record.delivery)


def digest(text: str) -> str:
    """Return 16 characters that stand for a text of any length."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def encoded(record: FailedRecord) -> bytes:
    """Return the record as it is stored; its time is kept beside it."""
    return _encoder.encode(record)


def decoded(place: Place, value: bytes) -> FailedRecord:
    """Return the record; one that was damaged still shows where it stands, and hides no other."""
    try:
        record = _decoder.decode(memoryview(value)[_LABEL_BYTES:])
    except (msgspec.MsgspecError, ValueError):
        record = FailedRecord(
            id=place.id, name="", queue=place.queue, payload=value, attempts=0, lost=0, reason="malformed"
        )
    return msgspec.structs.replace(record, failed_at=place.at / 1e6)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


async def _all(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Await calls that were made together, so that they travel together."""
    return [await calls[0]] if len(calls) == 1 else list(await asyncio.gather(*calls))


_KEEP = scripts.load("failed_keep")
_PAGE = scripts.load("failed_page")
_REMOVE = scripts.load("failed_remove")
_RETRY = scripts.load("failed_retry")
