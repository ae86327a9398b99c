"""`queue.failed`: jobs set aside for a person, looked at, edited, and put back once (FAIL-1, FAIL-2)."""

import asyncio
import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from aqueue.contract.names import check_limit, check_queue_name, check_seconds
from aqueue.errors import InvalidQueueArgument, JobReconstructionError
from aqueue.failed.changes import check_changes, declared_job, edited
from aqueue.failed.dead import DeadQueue, refuse_to_choose
from aqueue.failed.groups import FailedGroup, Grouping
from aqueue.failed.pages import PAGE, Pages
from aqueue.failed.payloads import Payloads
from aqueue.failed.redriving import Fate, Pace, Redrive, Watch
from aqueue.failed.returning import Returns
from aqueue.failed.shown import FailedJob, shown, trouble
from aqueue.port import DeadLetters, FailedRecord
from aqueue.sealing import CloseEnvelope, OpenEnvelope
from aqueue.store import Store


class FailedJobs:
    """The failed jobs of a queue's store; `queue.failed` is one.

    Where they are in a dead-letter queue of the store's own, they can be counted, put back and purged by
    queue; everything else raises `FailedStoreMissing`, as all of it does where no failed jobs are kept.
    """

    def __init__(
        self,
        store: Store,
        home: Store,
        *,
        open_envelope: OpenEnvelope,
        close_envelope: CloseEnvelope,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._home = home
        self._payloads = Payloads(open_envelope, close_envelope)
        self._pages = Pages(store)
        self._returns = Returns(self._pages, store, home)
        backend = store.backend
        self._dead = (
            DeadQueue(store, backend, self._payloads, clock) if isinstance(backend, DeadLetters) else None
        )

    async def list(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        after: str | None = None,
        limit: int = 100,
        group: str | None = None,
    ) -> "list[FailedJob]":
        """Return up to `limit` failed jobs, oldest first, after the one with id `after` (FAIL-2).

        Filter by queue, by the job's wire name, or by a group's fingerprint. A page costs the page, however
        many are stored; one of a group costs what has to be read to fill it.
        """
        _check_filter(queue)
        check_limit(limit)
        position = await self._pages.position(after) if after is not None else None
        if group is None:
            records = await self._pages.page(queue=queue, job=job, after=position, limit=limit)
            return [self._shown(record) for record in records]
        found: builtins.list[FailedRecord] = []
        async for page in self._pages.through(queue=queue, job=job, after=position):
            found += [record for record in page if trouble(record).fingerprint == group]
            if len(found) >= limit:
                break
        return [self._shown(record) for record in found[:limit]]

    async def get(self, id: str) -> FailedJob | None:
        """Return the failed job with this id, or None."""
        record = await self._pages.record(id)
        return self._shown(record) if record is not None else None

    async def count(self, *, queue: str | None = None, job: str | None = None) -> int:
        """Return how many failed jobs are kept."""
        _check_filter(queue)
        if self._dead is not None:
            refuse_to_choose(self._store, job=job, group=None)
            return await self._dead.count(queue)
        keeper = self._pages.keeper()
        return await self._store.run("count", lambda: keeper.failed_count(queue=queue, job=job))

    async def groups(
        self, *, queue: str | None = None, job: str | None = None, limit: int = 1000
    ) -> "builtins.list[FailedGroup]":
        """Return the failed jobs counted by what went wrong, the most frequent first (FAIL-4).

        Reads all of them once, a page at a time. At most `limit` groups are told apart; failures that came
        later and fit in none of these are in one last group, with the fingerprint "".
        """
        _check_filter(queue)
        grouping = Grouping(check_limit(limit))
        async for page in self._pages.through(queue=queue, job=job):
            grouping.add(page)
            await asyncio.sleep(0)  # fingerprints take time, and others run on this loop
        return grouping.groups()

    async def retry(
        self, id: str, *, changes: Mapping[str, object] | None = None, job: object | None = None
    ) -> bool:
        """Put the job back on its queue with its id and fresh counters; True for the one call that did.

        `changes` are new values by field, plain JSON or, where the job's class is known, the field's own
        Python values; `job` is that class, by default the one that this process declares under the name. They
        are checked like a push, and go into the same step (FAIL-5). Raises `JobReconstructionError` where the
        payload can't be verified or read, and `InvalidQueueArgument` for a change that doesn't fit: the job
        stays in the failed store.
        """
        wanted = check_changes(changes) if changes is not None else None
        record = await self._pages.record(id)
        if record is None:
            return False
        envelope = self._payloads.verified(record)
        if wanted is None:
            return await self._returns.put_back(record, record.payload)
        args, metadata = edited(envelope, wanted, declared_job(envelope.name, job))
        payload = self._payloads.with_args(envelope, args, metadata)
        most = self._home.capabilities.max_message_bytes
        if len(payload) > most:
            raise InvalidQueueArgument(
                f"failed job {id} would take {len(payload)} bytes with these changes; "
                f"{self._home.capabilities.system} stores at most {most}; it stays as it was"
            )
        return await self._returns.put_back(record, payload)

    async def retry_all(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        group: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        watch: Watch | None = None,
    ) -> int:
        """Put back the failed jobs there are now, or those chosen, and return how many (FAIL-6).

        Unreadable ones stay where they are. `rate` is how many a second at most, `limit` how many at all.
        `dry_run` changes nothing and returns how many it would be. `watch` is told what became of each.
        """
        _check_filter(queue)
        redrive = Redrive(is_dry=dry_run, limit=limit, watch=watch, group=group)
        pace = Pace(None if dry_run else rate)
        Pace(rate)  # a dry run doesn't wait, and refuses what the real one would
        if self._dead is not None:
            refuse_to_choose(self._store, job=job, group=group)
            await self._dead.retry_all(queue, redrive, pace)
            return redrive.put_back
        now = await self.count(queue=queue, job=job)
        async for page in self._pages.through(queue=queue, job=job, most=now, page=pace.page):
            await self._redrive_page([record for record in page if redrive.wants(record)], redrive, pace)
            if redrive.is_full:
                break
        return redrive.put_back

    async def discard(self, id: str) -> bool:
        """Delete the failed job for good; True for the one call that did."""
        record = await self._pages.record(id)
        if record is None:
            return False
        keeper = self._pages.keeper()
        return await self._store.run("discard", lambda: keeper.failed_discard(record))

    async def purge(self, *, older_than: float | timedelta = 0, queue: str | None = None) -> int:
        """Delete every failed job, or the queue's, that failed longer ago than this (seconds or timedelta).

        Returns how many.
        """
        _check_filter(queue)
        age = check_seconds(older_than, "older_than")
        if self._dead is not None:
            return await self._dead.purge(queue, age)
        keeper = self._pages.keeper()
        purged = 0
        while True:
            step = await self._store.run(
                "purge", lambda: keeper.failed_purge(queue=queue, older_than=age, keep=None, limit=PAGE)
            )
            purged += step
            if step < PAGE:
                return purged

    async def _redrive_page(self, records: Sequence[FailedRecord], redrive: Redrive, pace: Pace) -> None:
        """As many side by side as may begin, since such calls share round trips and commits."""
        at = 0
        while at < len(records) and not redrive.is_full:
            chunk = records[at : at + min(redrive.room, pace.together)]
            await pace.turn(len(chunk))
            fates = await asyncio.gather(
                *(self._redrive(record, is_dry=redrive.is_dry) for record in chunk), return_exceptions=True
            )
            for record, fate in zip(chunk, fates, strict=True):
                if isinstance(fate, Fate):
                    redrive.tell(record, fate)
            for fate in fates:
                if isinstance(fate, BaseException):
                    raise fate
            at += len(chunk)

    async def _redrive(self, record: FailedRecord, *, is_dry: bool) -> Fate:
        try:
            self._payloads.verified(record)
        except JobReconstructionError:
            return Fate.UNREADABLE
        is_done = is_dry or await self._returns.put_back(record, record.payload)
        return Fate.PUT_BACK if is_done else Fate.GONE

    def _shown(self, record: FailedRecord) -> FailedJob:
        return shown(record, self._payloads.readable(record))


def _check_filter(queue: str | None) -> None:
    if queue is not None:
        check_queue_name(queue)
