"""The port over PostgreSQL: each verb one statement, which commits by itself, on a connection of our own."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from secrets import randbits
from typing import TypeVar

import asyncpg

from aqueue.backends._sql_arrivals import Arrivals
from aqueue.backends.postgres import browsing, examining, failed, finding, jobs, migration
from aqueue.backends.postgres.address import Address
from aqueue.backends.postgres.browsing import browsing_statements
from aqueue.backends.postgres.failed_statements import failed_statements
from aqueue.backends.postgres.lanes import Lanes
from aqueue.backends.postgres.listener import Listener
from aqueue.backends.postgres.marks import Marks
from aqueue.backends.postgres.note_statements import note_statements
from aqueue.backends.postgres.notes import Notes
from aqueue.backends.postgres.statements import PLACE, job_statements
from aqueue.backends.postgres.troubles import FAULTS
from aqueue.backends.postgres.within import Callers
from aqueue.port import (
    Answer,
    Capabilities,
    Examination,
    FailedRecord,
    Failing,
    Found,
    Held,
    Message,
    NotDispatched,
    Note,
    NoteKey,
    Noting,
    Position,
    QueueStats,
    Releasing,
    Reserved,
)

_LANES = 4
_READERS = 1  # its own, so that no listing or counting keeps a settlement waiting
_UNCLAIMED = 16
_FIRST = Position(float("-inf"), "")

T = TypeVar("T")
Rows = list[asyncpg.Record]


class PostgresBackend:
    """Jobs in one table of a database that other processes, and the application's transactions, share."""

    capabilities = Capabilities(system="postgresql", atomic_push=True)
    faults = FAULTS

    def __init__(self, address: Address, *, lease: float) -> None:
        self._address = address
        self._lease = lease
        self._sql = job_statements(address.names)
        self._failed_sql = failed_statements(address.names)
        self._browsing_sql = browsing_statements(address.names)
        self._finding_sql = finding.finding_statement(address.names)
        self._channel = address.names.channel
        self._notes = Notes(note_statements(address.names), self._channel, self._fetch)
        self._arrivals = Arrivals()
        self._marks = Marks()
        self._callers = Callers(self._place)
        self._unclaimed: deque[tuple[Sequence[str], int]] = deque(maxlen=_UNCLAIMED)
        self._lanes: Lanes | None = None
        self._readers: Lanes | None = None
        self._listener: Listener | None = None

    async def open(self) -> None:
        """Connect once, to know that it can be done, and refuse a schema that a newer aqueue has made."""
        if self._lanes is None:
            lanes = self._lanes = Lanes(self._address.connect, _LANES)
            self._readers = Lanes(self._address.connect, _READERS)
            self._listener = Listener(self._address.connect, self._channel, self._arrivals, lanes.holds)
        await self._run(lambda connection: migration.version(connection, self._address.names))

    async def aclose(self) -> None:
        """Close every connection; idempotent."""
        parts = (self._listener, self._lanes, self._readers)
        self._listener = self._lanes = self._readers = None
        self._arrivals.announce_all()
        for part in parts:
            if part is not None:
                await part.aclose()

    async def migrate(self) -> None:
        """Create or upgrade the tables in one transaction; safe to repeat, and side by side."""
        await self._run(lambda connection: migration.migrate(connection, self._address.names))

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        """Insert the batch and announce it, in one statement (PUSH-3, PUSH-10)."""
        await self._fetch(self._sql.push, self._channel, *jobs.pushed(batch))
        for queue, due_in in {(message.queue, message.delay) for message in batch}:
            self._arrivals.announce(queue, due_in)
        return [None] * len(batch)

    async def push_within(self, connection: object, batch: Sequence[Message]) -> None:
        """Insert and announce the batch in the caller's transaction; seen once it is committed (PUSH-8)."""
        transaction = await self._callers.usable(connection)
        await transaction.fetch(self._sql.push, self._channel, *jobs.pushed(batch))

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Reserve in list order; what is due or was lost becomes ready first (DELAY-1, LEASE-2)."""
        await self._reclaim()
        taken: list[Reserved] = []
        try:
            await self._pop_into(taken, queues, limit)
        except Exception:
            if not taken:  # else what was taken first must reach its worker
                raise
        except BaseException:
            for token in {jobs.token(item) for item in taken}:
                self._unclaimed.append((queues, token))
            raise
        return taken

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival, at the next due time, or after `seconds`."""
        if self._listener is not None and not self._address.pgbouncer:
            self._listener.start()
        due_in = self._arrivals.due_in(queues)
        if due_in is None:
            due_in = await self._look(queues)
        await self._arrivals.wait(queues, min(seconds, due_in))

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Delete each job that its delivery still holds."""
        settling = jobs.settling(batch, jobs.itself)
        rows = await self._fetch(self._sql.ack, *settling.arrays)
        return settling.answers([row[0] for row in rows])

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back, an uncounted give-back to where it was in its queue (REL-1)."""
        settling = jobs.settling(batch, lambda item: item.reserved)
        further = jobs.released(batch, settling.order)
        rows = await self._fetch(self._sql.release, self._channel, *settling.arrays, *further)
        for place, seq, _ in rows:
            item = batch[settling.order[place - 1]]
            self._put_back(item.reserved.queue, seq, item.delay)
        return settling.answers([row[0] for row in rows])

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each job that its delivery still holds for its failed record, in one statement (FAIL-1)."""
        settling = jobs.settling(batch, lambda item: item.reserved)
        records = failed.arrays([batch[index].record for index in settling.order])
        rows = await self._fetch(self._failed_sql.fail, *records, *settling.arrays)
        return settling.answers([row[0] for row in rows])

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease that its delivery still holds anew (LEASE-3)."""
        settling = jobs.settling(batch, jobs.itself)
        rows = await self._fetch(self._sql.extend, *settling.arrays, self._lease)
        return settling.answers([row[0] for row in rows])

    async def stats(self, queue: str) -> QueueStats:
        """Count the queue's jobs by state; takes time with their number."""
        [row] = await self._read(self._sql.stats, queue)
        return jobs.stats(row)

    async def clear(self, queue: str) -> int:
        """Delete what nobody holds, in one statement (CLEAR-1)."""
        [row] = await self._fetch(self._sql.clear, queue)
        return int(row[0])

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """Return a page of the queue's jobs in the order of their ids."""
        arguments = browsing.page_arguments(queue, after, limit, head)
        return [browsing.held(row, queue) for row in await self._read(self._browsing_sql.page, *arguments)]

    async def find(self, queue: str, id: str) -> Found | None:
        """Say where one job stands."""
        rows = await self._read(self._finding_sql, *finding.arguments(queue, id))
        return finding.found(rows[0]) if rows else None

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold jobs or failed jobs."""
        return [row[0] for row in await self._read(self._browsing_sql.queues)]

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Ask the database how it is set up; a queue has no settings of its own."""
        return await self._run(lambda connection: examining.examine(connection, self._address))

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once."""
        await self._fetch(self._failed_sql.keep, *failed.arrays(failed.distinct(batch)))

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """List from a position on, oldest first, each filter in an index of its own."""
        statement = self._failed_sql.pages[queue is not None, job is not None]
        rows = await self._read(statement, queue, job, *(after or _FIRST), limit)
        return [failed.record(row) for row in rows]

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Find the oldest record of a job."""
        rows = await self._read(self._failed_sql.get, id)
        return failed.record(rows[0]) if rows else None

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        statement = self._failed_sql.counts[queue is not None, job is not None]
        [row] = await self._read(statement, queue, job)
        return int(row[0])

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job in one statement (FAIL-2)."""
        [row] = await self._fetch(
            self._failed_sql.retry,
            record.id,
            record.queue,
            record.failed_at,
            record.delivery,
            message.queue,
            message.id,
            message.payload,
            self._channel,
        )
        self._arrivals.announce(message.queue)
        return bool(row[0])

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Delete the record."""
        statement = self._failed_sql.discard
        return bool(await self._fetch(statement, record.id, record.queue, record.failed_at, record.delivery))

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Delete the oldest records past the age or beyond the count, in one bounded statement."""
        statement = self._failed_sql.purges[queue is not None]
        return len(await self._fetch(statement, older_than, keep, limit, queue))

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        """Return what each note says."""
        return await self._notes.read(keys)

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write each note, insert its messages and announce them, in one statement."""
        answers = await self._notes.write(batch, asyncio.get_running_loop().time())
        for queue, due_in in {(message.queue, message.delay) for item in batch for message in item.messages}:
            self._arrivals.announce(queue, due_in)
        return answers

    async def _pop_into(self, taken: list[Reserved], queues: Sequence[str], limit: int) -> None:
        counts = self._arrivals.counts(queues)
        marks = self._marks.hurry(queues, asyncio.get_running_loop().time())
        if marks is not None:
            taken += await self._claim(queues, marks, limit)
        moved = len(taken) < limit
        while moved:
            sweep = await self._sweep(queues, limit - len(taken))
            taken += sweep.reserved
            moved = sweep.moved > 0 and len(taken) < limit
            if not (taken or moved):
                self._arrivals.found_empty(queues, counts, sweep.due_in)
        taken.sort(key=lambda item: queues.index(item.queue))

    async def _claim(self, queues: Sequence[str], marks: list[int], limit: int) -> list[Reserved]:
        token = randbits(63)
        arguments = (list(queues), [str(mark) for mark in marks], limit, token, self._lease)
        rows = await self._reserve(queues, token, self._sql.claim, arguments)
        self._marks.claimed(queues, jobs.lasts(rows))
        return jobs.claim(rows, queues, token)

    async def _sweep(self, queues: Sequence[str], limit: int) -> jobs.Sweep:
        loop = asyncio.get_running_loop()
        start = self._marks.start(queues, loop.time())
        token = randbits(63)
        arguments = jobs.sweep_arguments(queues, start, limit, token, self._lease)
        rows = await self._reserve(queues, token, self._sql.sweep, arguments)
        sweep = jobs.sweep(rows, queues, limit, token)
        self._marks.swept(queues, start, sweep.swept, loop.time())
        return sweep

    async def _reserve(
        self, queues: Sequence[str], token: int, statement: str, arguments: tuple[object, ...]
    ) -> Rows:
        """Run a statement that reserves. If its reply is lost, what it took is given back before the next."""

        async def call(connection: asyncpg.Connection) -> Rows:
            try:
                return await connection.fetch(statement, *arguments)
            except BaseException:
                self._unclaimed.append((queues, token))
                raise

        return await self._run(call)

    async def _reclaim(self) -> None:
        """Give back what sweeps reserved whose replies were lost: nobody else knows that nobody has it."""
        while self._unclaimed:
            lost = self._unclaimed.popleft()
            try:
                rows = await self._fetch(self._sql.give_back, *lost)
            except BaseException:
                self._unclaimed.append(lost)
                raise
            for queue, seq in rows:
                self._put_back(queue, seq, 0)

    def _put_back(self, queue: str, seq: int, due_in: float) -> None:
        self._marks.returned(queue, seq)
        self._arrivals.announce(queue, due_in)

    async def _look(self, queues: Sequence[str]) -> float:
        """Return in how many seconds something falls due or a lease runs out; 0 for what is ready."""
        counts = self._arrivals.counts(queues)
        [(is_ready, due_in, expires_in)] = await self._read(self._sql.look, list(queues))
        if is_ready:
            return 0.0
        soonest = min((at for at in (due_in, expires_in) if at is not None), default=None)
        self._arrivals.found_empty(queues, counts, soonest)
        return float("inf") if soonest is None else max(0.0, soonest)

    async def _place(self) -> str:
        return str((await self._read(PLACE))[0][0])

    async def _fetch(self, statement: str, *arguments: object) -> Rows:
        return await self._run(lambda connection: connection.fetch(statement, *arguments))

    async def _read(self, statement: str, *arguments: object) -> Rows:
        if self._readers is None:
            raise NotDispatched("the database is not open")
        return await self._readers.run(lambda connection: connection.fetch(statement, *arguments))

    async def _run(self, call: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        if self._lanes is None:
            raise NotDispatched("the database is not open")
        return await self._lanes.run(call)
