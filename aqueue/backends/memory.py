"""Jobs in this process's memory: for tests and single processes, under the same contract as every store.

No verb suspends, so each is one atomic step on the event loop. `memory://` is private to its connection,
`memory://name` is shared by the process and outlives its connections. Times come from an injected clock.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from types import MappingProxyType

from aqueue.backends._shelf import Job, Shelf
from aqueue.backends._shelf_browsing import Browsing
from aqueue.port import (
    Answer,
    Capabilities,
    Examination,
    FailedRecord,
    Failing,
    Faults,
    Found,
    Held,
    Message,
    Note,
    NoteKey,
    Noting,
    Position,
    QueueStats,
    Releasing,
    Reserved,
    StoreOptions,
    Verdict,
)
from aqueue.port.examining import warning
from aqueue.urls import StoreURL

_shared: dict[str, Shelf] = {}


class MemoryBackend:
    """The port over plain Python containers."""

    capabilities = Capabilities(
        system="memory", shortest_lease=0.001, immediate=True, max_batch=10_000, atomic_push=True
    )
    faults: Faults = MappingProxyType({})

    def __init__(self, shelf: Shelf, *, lease: float, clock: Callable[[], float]) -> None:
        self._shelf = shelf
        self._lease = lease
        self._clock = clock
        self._browsing = Browsing(shelf)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to release."""

    async def migrate(self) -> None:
        """Nothing to create."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        """Store each message unless its queue still holds its id (PUSH-10)."""
        now = self._clock()
        shelf = self._shelf
        for message in batch:
            id, queue, delay = message.id, message.queue, message.delay
            lane = shelf.lanes.get(queue) or shelf.lane(queue)
            if id not in lane.held:
                lane.admit(Job(id, queue, message.payload, now + delay), delay)
                if shelf.waiting:
                    shelf.announce(queue)
        return [None] * len(batch)

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Reserve in list order; what is due or expired is taken up first."""
        now = self._clock()
        taken: list[Reserved] = []
        for queue in queues:
            lane = self._shelf.lanes.get(queue)
            if lane is not None:
                lane.take_up(now)
                taken += [
                    Reserved(
                        job.id,
                        job.queue,
                        job.payload,
                        job.token,
                        job.attempts + 1,
                        job.lost,
                        now - job.ready_at if now > job.ready_at else 0.0,
                    )
                    for job in lane.reserve(now + self._lease, limit - len(taken))
                ]
        return taken

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival, at the next due time or expiry, or after `seconds`."""
        lanes = [self._shelf.lanes[queue] for queue in queues if queue in self._shelf.lanes]
        if any(lane.ready for lane in lanes):
            return
        due = min((lane.next_time() for lane in lanes), default=float("inf"))
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        self._shelf.waiting[arrival] = frozenset(queues)
        timer = loop.call_later(max(0.0, min(seconds, due - self._clock())), _wake, arrival)
        try:
            await arrival
        finally:
            timer.cancel()
            self._shelf.waiting.pop(arrival, None)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Remove each job that this very delivery still holds."""
        return [self.ack_now(item) for item in batch]

    def ack_now(self, item: Reserved) -> Answer:
        """Remove the job that this very delivery still holds."""
        lane = self._shelf.lanes.get(item.queue)
        return Verdict.STALE if lane is None or lane.let_go(item.receipt) is None else Verdict.SETTLED

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back; uncounted give-backs without delay return to the head, in the batch's order."""
        answers = {id(item): self._put_back(item) for item in batch if item.counted or item.delay > 0}
        for item in reversed(batch):
            if id(item) not in answers:
                answers[id(item)] = self._put_back(item)
        return [answers[id(item)] for item in batch]

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Keep the record of each job that this delivery still holds, and remove the job."""
        answers: list[Answer] = []
        for item in batch:
            if self._let_go(item.reserved) is None:
                answers.append(Verdict.STALE)
                continue
            self._shelf.failed.keep(item.record, self._clock())
            answers.append(Verdict.SETTLED)
        return answers

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease anew while this very delivery holds it."""
        until = self._clock() + self._lease
        answers: list[Answer] = []
        for item in batch:
            job = self._shelf.lane(item.queue).leased.get(item.receipt)  # type: ignore[call-overload]  # opaque
            if job is not None:
                job.lease_until = until
            answers.append(Verdict.STALE if job is None else Verdict.SETTLED)
        return answers

    async def stats(self, queue: str) -> QueueStats:
        """Count the jobs as the next pop would find them."""
        lane = self._shelf.lane(queue)
        now = self._clock()
        due = [at for at, _, _ in lane.delayed if at <= now]
        expired = [job.lease_until for job in lane.leased.values() if job.lease_until <= now]
        since = [*due, *expired, *(job.ready_at for job in islice(lane.ready, 1))]
        return QueueStats(
            ready=len(lane.ready) + len(due) + len(expired),
            delayed=len(lane.delayed) - len(due),
            leased=len(lane.leased) - len(expired),
            failed=sum(1 for _ in self._shelf.failed.matching(queue, None)),
            oldest_age=now - min(since) if since else None,
        )

    async def clear(self, queue: str) -> int:
        """Discard what nobody holds (CLEAR-1)."""
        return self._shelf.lane(queue).clear()

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """List waiting and leased jobs by id."""
        return self._browsing.page(queue, after=after, limit=limit, head=head, now=self._clock())

    async def find(self, queue: str, id: str) -> Found | None:
        """Say where one job stands."""
        return self._browsing.find(queue, id, self._clock())

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold something."""
        return self._browsing.queues()

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Say that nothing lasts here."""
        meaning = "every job is gone when the process ends, and no other process can see any"
        advice = "sqlite:// and file:// keep jobs on a disk, with nothing to install"
        return Examination([warning("durability", "none", meaning, advice)])

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once."""
        for record in batch:
            self._shelf.failed.keep(record, self._clock())

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """List from a position on, oldest first."""
        return list(islice(self._shelf.failed.matching(queue, job, after), limit))

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Find the oldest record of a job."""
        return next((record for record in self._shelf.failed.matching(None, None) if record.id == id), None)

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        return sum(1 for _ in self._shelf.failed.matching(queue, job))

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job."""
        if not self._shelf.failed.forget(record):
            return False
        await self.push([message])
        return True

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Remove the record."""
        return self._shelf.failed.forget(record)

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Remove the oldest records past the age or beyond the count."""
        before = self._clock() - older_than if older_than is not None else None
        surplus = self._shelf.failed.oldest(limit, queue=queue, before=before, beyond=keep)
        return sum(self._shelf.failed.forget(record) for record in surplus)

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        """Return what each note says."""
        now = self._clock()
        return [self._shelf.notes.read(at, now) for at in keys]

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write each note that still is what its writer read, and push its messages."""
        now = self._clock()
        answers: list[Answer] = []
        for noting in batch:
            is_written = self._shelf.notes.write(noting, now)
            if is_written and noting.messages:
                await self.push(noting.messages)
            answers.append(Verdict.SETTLED if is_written else Verdict.STALE)
        return answers

    def _let_go(self, item: Reserved) -> Job | None:
        lane = self._shelf.lanes.get(item.queue)
        return None if lane is None else lane.let_go(item.receipt)

    def _put_back(self, item: Releasing) -> Answer:
        job = self._let_go(item.reserved)
        if job is None:
            return Verdict.STALE
        if item.counted:
            job.attempts += 1
            job.lost = 0
        if item.counted or item.delay > 0:
            job.ready_at = self._clock() + item.delay
        self._shelf.lane(job.queue).admit(job, item.delay, first=not item.counted)
        self._shelf.announce(job.queue)
        return Verdict.SETTLED


def from_url(url: StoreURL, options: StoreOptions) -> MemoryBackend:
    """Return a private store for `memory://`, the process's own for `memory://name`."""
    url.read_options({})
    name = ",".join(host for host, _ in url.hosts) + url.path
    shelf = _shared.setdefault(name, Shelf()) if name else Shelf()
    return MemoryBackend(shelf, lease=options.lease, clock=options.clock)


def _wake(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)
