"""The failed store: jobs set aside for a person, kept whole, and put back at most once (FAIL-1, FAIL-2)."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from aqueue.contract.envelope import Envelope, Malformed, decode_envelope, redacted_by_metadata
from aqueue.contract.names import check_limit, check_queue_name, check_seconds
from aqueue.errors import AqueueError, FailedStoreMissing, InvalidQueueArgument, JobReconstructionError
from aqueue.port import FailedRecord, KeepsFailed, Message, Position
from aqueue.store import Store

_PAGE = 200
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """One job set aside: what it was, how it ended, and enough to understand and re-run it.

    `args` are plain JSON, or None where the stored bytes can't be read. `payload` is those bytes.
    """

    id: str
    name: str
    queue: str
    args: dict[str, Any] | None = field(repr=False)
    attempts: int
    lost: int
    reason: str
    error_type: str
    error: str
    traceback: str
    pushed_at: datetime | None
    failed_at: datetime
    worker: str
    payload: bytes = field(repr=False)
    metadata: Mapping[str, str]

    @property
    def redacted_args(self) -> dict[str, Any] | None:
        """The arguments with `Sensitive` ones replaced, fit for a listing or a log."""
        return None if self.args is None else redacted_by_metadata(self.args, self.metadata)


class FailedJobs:
    """The failed jobs of a queue's store; `queue.failed` is one."""

    def __init__(
        self,
        store: Store,
        home: Store,
        open_payload: Callable[[bytes], bytes],
    ) -> None:
        self._store = store
        self._home = home
        self._open_payload = open_payload
        self._seen: OrderedDict[str, Position] = OrderedDict()

    async def list(
        self, *, queue: str | None = None, job: str | None = None, after: str | None = None, limit: int = 100
    ) -> "list[FailedJob]":
        """Return up to `limit` failed jobs, oldest first, after the one with id `after` (FAIL-2).

        Filter by queue or by the job's wire name. A page costs the page, however many are stored.
        """
        if queue is not None:
            check_queue_name(queue)
        check_limit(limit)
        position = await self._position(after) if after is not None else None
        records = await self._page(queue=queue, job=job, after=position, limit=limit)
        return [self._shown(record) for record in records]

    async def get(self, id: str) -> FailedJob | None:
        """Return the failed job with this id, or None."""
        record = await self._record(id)
        return self._shown(record) if record is not None else None

    async def count(self, *, queue: str | None = None, job: str | None = None) -> int:
        """Return how many failed jobs are kept."""
        if queue is not None:
            check_queue_name(queue)
        keeper = self._keeper()
        return await self._store.run("count", lambda: keeper.failed_count(queue=queue, job=job))

    async def retry(self, id: str) -> bool:
        """Put the job back on its queue with its id and fresh counters; True for the one call that did.

        Raises `JobReconstructionError` where the payload can't be verified or read: it stays in the store.
        """
        record = await self._record(id)
        return record is not None and await self._put_back(record)

    async def retry_all(self, *, queue: str | None = None, job: str | None = None) -> int:
        """Put back every failed job there is now and return how many; unreadable ones stay where they are."""
        left = await self.count(queue=queue, job=job)
        position: Position | None = None
        put_back = 0
        while left > 0:
            records = await self._page(queue=queue, job=job, after=position, limit=min(_PAGE, left))
            if not records:
                break
            for record in records:
                put_back += await self._put_back_if_readable(record)
            left -= len(records)
            position = _position_of(records[-1])
        return put_back

    async def discard(self, id: str) -> bool:
        """Delete the failed job for good; True for the one call that did."""
        record = await self._record(id)
        if record is None:
            return False
        keeper = self._keeper()
        return await self._store.run("discard", lambda: keeper.failed_discard(record))

    async def purge(self, *, older_than: float | timedelta = 0) -> int:
        """Delete every failed job older than this many seconds (or timedelta) and return how many."""
        age = check_seconds(older_than, "older_than")
        keeper = self._keeper()
        purged = 0
        while True:
            step = await self._store.run(
                "purge", lambda: keeper.failed_purge(older_than=age, keep=None, limit=_PAGE)
            )
            purged += step
            if step < _PAGE:
                return purged

    def _keeper(self) -> KeepsFailed:
        backend = self._store.backend
        if not isinstance(backend, KeepsFailed):
            raise FailedStoreMissing(
                f"{self._store.capabilities.system} keeps no failed jobs: give connect(failed=…) another URL"
            )
        return backend

    async def _page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        keeper = self._keeper()
        records = await self._store.run(
            "list", lambda: keeper.failed_page(queue=queue, job=job, after=after, limit=limit)
        )
        if records:
            self._remember(records[-1])
        return records

    def _remember(self, record: FailedRecord) -> None:
        """A page's last job may be retried before the next page is asked for; its place is still known."""
        self._seen[record.id] = _position_of(record)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    async def _position(self, id: str) -> Position:
        if id in self._seen:
            return self._seen[id]
        record = await self._record(id)
        if record is None:
            raise InvalidQueueArgument(
                f"no failed job {id} to list after: it was retried or removed; start anew"
            )
        return _position_of(record)

    async def _record(self, id: str) -> FailedRecord | None:
        keeper = self._keeper()
        return await self._store.run("get", lambda: keeper.failed_get(id))

    async def _put_back_if_readable(self, record: FailedRecord) -> bool:
        try:
            return await self._put_back(record)
        except JobReconstructionError:
            return False

    async def _put_back(self, record: FailedRecord) -> bool:
        self._verify(record)
        keeper = self._keeper()
        message = Message(record.id, record.queue, record.payload)
        if self._home is self._store:
            return await self._store.run("retry", lambda: keeper.failed_retry(record, message))
        # Two stores: the job first, so that a crash between the two may double it but can't lose it.
        stored = await self._home.run("push", lambda: self._home.backend.push([message]))
        if stored[0] is not None:
            raise self._home.translated(stored[0], "push", record.id)
        return await self._store.run("discard", lambda: keeper.failed_discard(record))

    def _verify(self, record: FailedRecord) -> None:
        try:
            envelope = decode_envelope(self._open_payload(record.payload))
            if envelope.id != record.id:
                raise Malformed("the envelope belongs to another job than its record")
        except AqueueError as error:
            raise JobReconstructionError(
                f"failed job {record.id} can't be put back: {error}; it stays in the failed store"
            ) from error

    def _shown(self, record: FailedRecord) -> FailedJob:
        self._remember(record)
        envelope = self._readable(record.payload)
        return FailedJob(
            id=record.id,
            name=record.name,
            queue=record.queue,
            args=msgspec.json.decode(envelope.args) if envelope is not None else None,
            attempts=record.attempts,
            lost=record.lost,
            reason=record.reason,
            error_type=record.error_type,
            error=record.error,
            traceback=record.traceback,
            pushed_at=datetime.fromtimestamp(record.pushed_at, UTC) if record.pushed_at is not None else None,
            failed_at=datetime.fromtimestamp(record.failed_at, UTC),
            worker=record.worker,
            payload=record.payload,
            metadata=envelope.metadata if envelope is not None else {},
        )

    def _readable(self, payload: bytes) -> Envelope | None:
        """One unreadable record must not hide the others from a listing."""
        try:
            envelope = decode_envelope(self._open_payload(payload))
            msgspec.json.decode(envelope.args)
        except (AqueueError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return envelope


class Retention:
    """Keeps the failed store within an age or a count, a bounded piece of work at a time."""

    def __init__(self, store: Store, *, age: float | None, count: int | None) -> None:
        self._store = store
        self._age = age
        self._count = count
        self._next_trim = 0.0

    def trim(self) -> None:
        """Start one bounded purge, at most one a second; a failing one is left to the next."""
        backend = self._store.backend
        if (self._age is None and self._count is None) or not isinstance(backend, KeepsFailed):
            return
        now = time.monotonic()
        if now >= self._next_trim:
            self._next_trim = now + 1.0
            self._store.spawn(
                self._store.call(
                    "purge", lambda: backend.failed_purge(older_than=self._age, keep=self._count, limit=_PAGE)
                )
            )


def _position_of(record: FailedRecord) -> Position:
    return Position(record.failed_at, record.id)
