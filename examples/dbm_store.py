"""A store of your own, whole: jobs in a `dbm` file, for one process. It passes the contract suite.

    python -m aqueue.testing.contract 'dbm://{folder}/jobs' --takes-clock

An entry point `dbm = "examples.dbm_store:from_url"` in the group `aqueue.backends` tells `connect` of it.
A pop reads every job, and it keeps no failed ones: it shows what a store is, not which one to choose.
"""

import asyncio
import dbm
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

import msgspec

from aqueue import port
from aqueue.urls import StoreURL


class Row(msgspec.Struct):
    """A stored job. `place` orders those that became ready at one instant; `token` is "" while it waits."""

    payload: bytes
    ready_at: float
    place: int
    attempts: int = 0
    lost: int = 0
    token: str = ""
    lease_until: float = 0.0

    @property
    def due_at(self) -> float:
        return self.lease_until if self.token else self.ready_at


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Row).decode
_places = count()
_waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)  # who waits for jobs, by path


class DbmBackend:
    capabilities = port.Capabilities(system="dbm", immediate=True)  # no verb suspends before its work is done

    def __init__(self, path: str, options: port.StoreOptions) -> None:
        self.faults: port.Faults = {OSError: port.Fault.UNKNOWN, dbm.error[0]: port.Fault.UNKNOWN}
        self._path, self._lease, self._clock = path, options.lease, options.clock

    async def open(self) -> None: ...
    async def aclose(self) -> None: ...
    async def migrate(self) -> None: ...

    async def push(self, batch: Sequence[port.Message]) -> Sequence[None]:
        with dbm.open(self._path, "c") as rows:
            for message in batch:
                if (
                    key := f"{message.queue}/{message.id}"
                ) not in rows:  # PUSH-10: an id that is held stores nothing new
                    rows[key] = _encode(Row(message.payload, self._clock() + message.delay, next(_places)))
        self._announce()
        return [None] * len(batch)

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[port.Reserved]:
        now, taken = self._clock(), list[port.Reserved]()
        with dbm.open(self._path, "c") as rows:
            for queue in queues:
                due = [(key, _taken_back(row)) for key, row in _of(queue, rows) if row.due_at <= now]
                due.sort(key=lambda item: (item[1].ready_at, item[1].place))
                for key, row in due[: limit - len(taken)]:
                    row.token, row.lease_until = uuid4().hex, now + self._lease
                    rows[key] = _encode(row)
                    id, attempt, waited = key.partition("/")[2], row.attempts + 1, now - row.ready_at
                    taken.append(port.Reserved(id, queue, row.payload, row.token, attempt, row.lost, waited))
        return taken

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        with dbm.open(self._path, "c") as rows:
            due = min((row.due_at for queue in queues for _, row in _of(queue, rows)), default=float("inf"))
        _waiting[self._path].add(arrival := asyncio.Event())
        try:
            async with asyncio.timeout(max(0.0, min(seconds, due - self._clock()))):
                await arrival.wait()
        except TimeoutError:
            return
        finally:
            _waiting[self._path].discard(arrival)

    async def ack(self, batch: Sequence[port.Reserved]) -> Sequence[port.Answer]:
        return [self._settle(item, None) for item in batch]

    async def release(self, batch: Sequence[port.Releasing]) -> Sequence[port.Answer]:
        self._announce()  # they look when this is done: no verb suspends
        return [self._settle(item.reserved, self._back(item)) for item in batch]

    async def fail(self, batch: Sequence[port.Failing]) -> Sequence[port.Answer]:
        return [self._settle(item.reserved, None) for item in batch]

    async def extend(self, batch: Sequence[port.Reserved]) -> Sequence[port.Answer]:
        return [self._settle(item, {"lease_until": self._clock() + self._lease}) for item in batch]

    async def stats(self, queue: str) -> port.QueueStats:
        with dbm.open(self._path, "c") as opened:
            now, rows = self._clock(), [row for _, row in _of(queue, opened)]
        since = [row.due_at for row in rows if row.due_at <= now]
        leased = sum(1 for row in rows if row.token and row.due_at > now)
        delayed, age = len(rows) - len(since) - leased, now - min(since) if since else None
        return port.QueueStats(ready=len(since), delayed=delayed, leased=leased, failed=0, oldest_age=age)

    def _announce(self) -> None:
        for arrival in _waiting[self._path]:
            arrival.set()

    def _back(self, item: port.Releasing) -> dict[str, Any]:
        if not item.counted and not item.delay:
            return {"token": ""}  # to its old place
        counters = {"attempts": item.reserved.attempt, "lost": 0} if item.counted else {}
        return {"token": "", "ready_at": self._clock() + item.delay, "place": next(_places), **counters}

    def _settle(self, item: port.Reserved, changes: dict[str, Any] | None) -> port.Answer:
        """Change the row, or remove it, while this very delivery holds it (FENCE-1)."""
        key = f"{item.queue}/{item.id}"
        with dbm.open(self._path, "c") as rows:
            row = _decode(rows[key]) if key in rows else None
            if row is None or row.token != item.receipt:
                return port.Verdict.STALE
            if changes is None:
                del rows[key]
            else:
                rows[key] = _encode(msgspec.structs.replace(row, **changes))
        return port.Verdict.SETTLED


def _of(queue: str, rows: Any) -> Iterator[tuple[str, Row]]:
    keys = [key.decode() for key in rows.keys() if key.startswith(f"{queue}/".encode())]  # noqa: SIM118
    return ((key, _decode(rows[key])) for key in keys)


def _taken_back(row: Row) -> Row:
    """A lease that ran out is one more attempt, and one that was lost (LEASE-2)."""
    if row.token:
        row.attempts, row.lost, row.ready_at = row.attempts + 1, row.lost + 1, row.lease_until
    return row


def from_url(url: StoreURL, options: port.StoreOptions) -> DbmBackend:
    url.read_options({})
    return DbmBackend(url.path, options)
