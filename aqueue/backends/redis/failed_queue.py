"""The failed jobs of one queue, in its own slot: stored, placed in time, read and removed."""

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import QueueKeys
from aqueue.backends.redis.link import Argument
from aqueue.backends.redis.replies import Reply
from aqueue.port import FailedRecord, Position

_LANE = 0
_LABEL_BYTES = 32

_decoder = msgspec.msgpack.Decoder(FailedRecord)
_encoder = msgspec.msgpack.Encoder()


class Place(NamedTuple):
    """Where a record stands in the order of failures: microseconds by the store's clock, job and queue."""

    at: int
    id: str
    queue: str


class FailedQueue:
    """What is kept of one queue's failed jobs; see `lua/records.lua`."""

    def __init__(self, client: Client, keys: QueueKeys, queue: str) -> None:
        self._client = client
        self._keys = keys
        self._queue = queue
        self._names = (keys.failed, keys.failed_order, keys.failed_names)

    async def keep(self, records: Sequence[FailedRecord]) -> None:
        """Store each record once for its delivery."""
        arguments: list[Argument] = []
        for record in records:
            arguments += (record.id, label_of(record), encoded(record))
        await self._run(_KEEP, self._names, arguments)

    async def places(
        self, *, job: str | None, after: Position, limit: int, least_age: float | None
    ) -> list[Place]:
        """Return where up to `limit` records after a position stand, oldest first."""
        arguments: tuple[Argument, ...] = (
            digest(job) if job is not None else "",
            _microseconds(after.failed_at),
            after.id,
            limit,
            "" if least_age is None else _microseconds(least_age),
        )
        reply = await self._run(_PAGE, self._names[1:], arguments)
        assert isinstance(reply, list)
        ids, times = islice(reply, 0, None, 2), islice(reply, 1, None, 2)
        return [Place(int(at), id.decode(), self._queue) for id, at in zip(ids, times, strict=True)]

    async def place_of(self, id: str) -> Place | None:
        """Return where a job's record stands."""
        reply = await self._command("ZSCORE", self._keys.failed_order, id)
        return Place(round(float(reply)), id, self._queue) if isinstance(reply, bytes) else None

    async def records(self, places: Sequence[Place]) -> dict[Place, FailedRecord]:
        """Read the records at these places; what is gone meanwhile is left out."""
        reply = await self._command("HMGET", self._keys.failed, *(place.id for place in places))
        assert isinstance(reply, list)
        found = zip(places, reply, strict=True)
        return {place: decoded(place, value) for place, value in found if value is not None}

    async def count(self, job: str | None) -> int:
        """Count the records, or those of one job."""
        counting: tuple[Argument, ...] = ("ZCARD", self._keys.failed_order)
        if job is not None:
            name = digest(job)
            counting = ("ZLEXCOUNT", self._keys.failed_names, f"[{name}", f"({name}x")
        reply = await self._command(*counting)
        assert isinstance(reply, int)
        return reply

    async def retry(self, place: Place, payload: bytes) -> bool:
        """Swap the record for a waiting job; False when it is gone."""
        names = (*self._names, self._keys.pending, self._keys.jobs)
        reply = await self._run(_RETRY, names, (self._keys.channel, place.id, place.at, payload))
        return reply == 1

    async def remove(self, places: Sequence[Place]) -> int:
        """Remove the records that still stand there; return how many."""
        arguments: list[Argument] = []
        for place in places:
            arguments += (place.id, place.at)
        reply = await self._run(_REMOVE, self._names, arguments)
        assert isinstance(reply, int)
        return reply

    async def _run(
        self, script: scripts.Script, names: Sequence[bytes], arguments: Sequence[Argument]
    ) -> Reply:
        return await self._client.run(script, names, arguments, slot=self._keys.slot, lane=_LANE)

    async def _command(self, *command: Argument) -> Reply:
        return await self._client.command(*command, slot=self._keys.slot, lane=_LANE)


def place_of(record: FailedRecord) -> Place:
    """Return where a record that was read stands."""
    return Place(_microseconds(record.failed_at), record.id, record.queue)


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


_KEEP = scripts.load("failed_keep")
_PAGE = scripts.load("failed_page")
_REMOVE = scripts.load("failed_remove")
_RETRY = scripts.load("failed_retry")
