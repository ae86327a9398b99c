"""The failed store page by page, oldest first; where a page ended is known even if its last job is gone."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from aqueue.errors import FailedStoreMissing, InvalidQueueArgument
from aqueue.port import FailedRecord, KeepsFailed, Position
from aqueue.store import Store

PAGE = 200
_REMEMBERED = 10_000


class Pages:
    """Reads records, a page at a time, and remembers where those that it read stood."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: OrderedDict[str, Position] = OrderedDict()

    def keeper(self) -> KeepsFailed:
        """Return the store's half that keeps failed jobs, or raise `FailedStoreMissing`."""
        backend = self._store.backend
        if not isinstance(backend, KeepsFailed):
            raise FailedStoreMissing(
                f"{self._store.capabilities.system} keeps no failed jobs that could be looked at: give "
                "connect(failed=…) another aqueue URL to keep them in"
            )
        return backend

    async def page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """Return up to `limit` records after a position."""
        keeper = self.keeper()
        records = await self._store.run(
            "list", lambda: keeper.failed_page(queue=queue, job=job, after=after, limit=limit)
        )
        for record in records:
            self._remember(record)
        return records

    async def through(
        self,
        *,
        queue: str | None,
        job: str | None,
        after: Position | None = None,
        most: int | None = None,
        page: int = PAGE,
    ) -> AsyncIterator[Sequence[FailedRecord]]:
        """Yield one page after the other, at most `most` records; one page is held at a time."""
        seen = 0
        while most is None or seen < most:
            limit = page if most is None else min(page, most - seen)
            records = await self.page(queue=queue, job=job, after=after, limit=limit)
            if not records:
                return
            yield records
            seen += len(records)
            after = position_of(records[-1])

    async def position(self, id: str) -> Position:
        """Return where the job stands or stood; raise `InvalidQueueArgument` if nobody knows."""
        if id in self._seen:
            return self._seen[id]
        record = await self.record(id)
        if record is None:
            raise InvalidQueueArgument(
                f"no failed job {id} to list after: it was retried or removed; start anew"
            )
        return position_of(record)

    async def record(self, id: str) -> FailedRecord | None:
        """Return the oldest record with this id."""
        keeper = self.keeper()
        record = await self._store.run("get", lambda: keeper.failed_get(id))
        if record is not None:
            self._remember(record)
        return record

    def _remember(self, record: FailedRecord) -> None:
        """A page's last job may be retried before the next page is asked for; its place is still known."""
        self._seen[record.id] = position_of(record)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


def position_of(record: FailedRecord) -> Position:
    """Return where the record stands in the listing."""
    return Position(record.failed_at, record.id)
