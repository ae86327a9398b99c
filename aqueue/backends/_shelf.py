"""The containers of the memory store: plain, synchronous, each change complete before anyone looks."""

import asyncio
import heapq
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from itertools import count, islice

import msgspec

from aqueue.backends._shelf_notes import NoteShelf
from aqueue.port import FailedRecord, Position


class Job(msgspec.Struct, eq=False):
    """One stored job. `token` is the receipt of the hand-out that holds it, 0 while it waits."""

    id: str
    queue: str
    payload: bytes
    ready_at: float
    attempts: int = 0
    lost: int = 0
    token: int = 0
    lease_until: float = 0.0

    def __repr__(self) -> str:
        return f"<Job {self.id} on {self.queue!r}>"


class Lane:
    """One queue's jobs: waiting in order, delayed by due time, leased by receipt."""

    __slots__ = ("_numbers", "delayed", "expiries", "held", "leased", "ready")

    def __init__(self, numbers: "count[int]") -> None:
        self._numbers = numbers
        self.held: dict[str, Job] = {}
        self.ready: deque[Job] = deque()
        self.delayed: list[tuple[float, int, Job]] = []
        self.leased: dict[int, Job] = {}
        self.expiries: list[tuple[float, int]] = []

    def admit(self, job: Job, delay: float, *, first: bool = False) -> None:
        """Let the job wait, ready or delayed; `first` puts it at the head."""
        self.held[job.id] = job
        if delay > 0:
            heapq.heappush(self.delayed, (job.ready_at, next(self._numbers), job))
        elif first:
            self.ready.appendleft(job)
        else:
            self.ready.append(job)

    def take_up(self, now: float) -> None:
        """Make due jobs ready, and take back the jobs whose lease ran out (LEASE-2, DELAY-1)."""
        if len(self.expiries) > 64 + 4 * len(self.leased):
            self.expiries = [(held.lease_until, token) for token, held in self.leased.items()]
            heapq.heapify(self.expiries)
        while self.delayed and self.delayed[0][0] <= now:
            self.ready.append(heapq.heappop(self.delayed)[2])
        while self.expiries and self.expiries[0][0] <= now:
            _, token = heapq.heappop(self.expiries)
            job = self.leased.get(token)
            if job is None:
                continue
            if job.lease_until > now:  # it was renewed since
                heapq.heappush(self.expiries, (job.lease_until, token))
                continue
            del self.leased[token]
            job.token = 0
            job.attempts += 1
            job.lost += 1
            job.ready_at = job.lease_until
            self.ready.append(job)

    def reserve(self, until: float, limit: int = 1) -> list[Job]:
        """Hand out the first ready jobs, each under a receipt never used before."""
        ready, leased, expiries = self.ready, self.leased, self.expiries
        jobs = [ready.popleft() for _ in range(min(limit, len(ready)))]
        for job, token in zip(jobs, self._numbers, strict=False):
            job.token = token
            job.lease_until = until
            leased[token] = job
            heapq.heappush(expiries, (until, token))
        return jobs

    def let_go(self, receipt: object) -> Job | None:
        """End the hand-out with this receipt; None if it ended before."""
        job = self.leased.pop(receipt, None) if isinstance(receipt, int) else None
        if job is not None:
            del self.held[job.id]
            job.token = 0
        return job

    def clear(self) -> int:
        """Discard what nobody holds; a delivery past its lease is still held (CLEAR-1)."""
        removed = len(self.ready) + len(self.delayed)
        self.ready.clear()
        self.delayed.clear()
        self.held = {job.id: job for job in self.leased.values()}
        return removed

    def next_time(self) -> float:
        """Return when the next delayed job is due or the next lease may run out; infinity for never."""
        due = self.delayed[0][0] if self.delayed else float("inf")
        return min(due, self.expiries[0][0]) if self.expiries else due


class FailedShelf:
    """Failed jobs in the order they failed, found by job and by position."""

    def __init__(self) -> None:
        self._records: dict[Position, FailedRecord] = {}
        self._order: list[Position] = []
        self._places: dict[tuple[str, str], Position] = {}

    def __len__(self) -> int:
        return len(self._order)

    def keep(self, record: FailedRecord, now: float) -> None:
        """Store the record once; a later failure of the same job takes the earlier one's place."""
        place = self._places.get((record.queue, record.id))
        known = self._records[place] if place is not None else None
        if known is not None:
            if known.delivery == record.delivery:
                return
            self.forget(known)
        while (at := Position(now, record.id)) in self._records:  # one id may fail on two queues at once
            now += 1e-6
        self._records[at] = msgspec.structs.replace(record, failed_at=at.failed_at)
        self._places[record.queue, record.id] = at
        insort(self._order, at)

    def matching(
        self, queue: str | None, job: str | None, after: Position | None = None
    ) -> Iterator[FailedRecord]:
        """Yield the records, oldest first, from after a position."""
        start = bisect_right(self._order, after) if after is not None else 0
        for position in islice(self._order, start, None):
            record = self._records[position]
            if (queue is None or record.queue == queue) and (job is None or record.name == job):
                yield record

    def forget(self, record: FailedRecord) -> bool:
        """Remove exactly this record; False when it is gone."""
        position = Position(record.failed_at, record.id)
        if self._records.get(position) != record:
            return False
        del self._records[position]
        del self._places[record.queue, record.id]
        del self._order[bisect_left(self._order, position)]
        return True

    def oldest(
        self, limit: int, *, queue: str | None, before: float | None, beyond: int | None
    ) -> list[FailedRecord]:
        """Return up to `limit` of the oldest records that are past a time or beyond a count."""
        order = self._order
        if queue is not None:
            order = [place for place in order if self._records[place].queue == queue]
        surplus = max(0, len(order) - beyond) if beyond is not None else 0
        if before is not None:
            surplus = max(surplus, bisect_right(order, Position(before, "~")))
        return [self._records[place] for place in order[: min(surplus, limit)]]


class Shelf:
    """What a memory store holds, and who waits for it."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.failed = FailedShelf()
        self.notes = NoteShelf()
        self.waiting: dict[asyncio.Future[None], frozenset[str]] = {}
        self._numbers = count(1)

    def lane(self, queue: str) -> Lane:
        """Return the queue's lane, made at first sight."""
        lane = self.lanes.get(queue)
        if lane is None:
            lane = self.lanes[queue] = Lane(self._numbers)
        return lane

    def announce(self, queue: str) -> None:
        """Wake everyone who waits for this queue, the longest waiting first; they wait no more."""
        for future, queues in tuple(self.waiting.items()):
            if queue in queues:
                del self.waiting[future]
                if not future.done():
                    future.set_result(None)
