"""The port over MySQL and MariaDB: each verb one short transaction on a connection of our own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aqueue.backends._sql_arrivals import Arrivals
from aqueue.backends._sql_forgetting import Forgetting
from aqueue.backends.mysql import examining, failed, finding, jobs, migration, notes
from aqueue.backends.mysql.address import Address
from aqueue.backends.mysql.browsing import browsing_statements, held
from aqueue.backends.mysql.connections import Connections, Session
from aqueue.backends.mysql.failed import Filter
from aqueue.backends.mysql.failed_statements import failed_statements
from aqueue.backends.mysql.literals import name
from aqueue.backends.mysql.marks import Marks
from aqueue.backends.mysql.note_statements import note_statements
from aqueue.backends.mysql.statements import PLACE, job_statements
from aqueue.backends.mysql.sweep import Sweep, Sweeper, look
from aqueue.backends.mysql.troubles import FAULTS, meaning
from aqueue.backends.mysql.unclaimed import Unclaimed
from aqueue.backends.mysql.within import Callers, Place
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

_CONNECTIONS = 5

T = TypeVar("T")


class MySQLBackend:
    """Jobs in one table of a database that other processes, and the application's transactions, share."""

    capabilities = Capabilities(system="mysql", max_message_bytes=7 * 1024 * 1024, atomic_push=True)
    faults = FAULTS

    def __init__(self, address: Address, *, lease: float) -> None:
        self._address = address
        self._lease = lease
        self._sql = job_statements(address.names)
        self._failed_sql = failed_statements(address.names)
        self._browsing_sql = browsing_statements(address.names)
        self._note_sql = note_statements(address.names)
        self._forgetting = Forgetting()
        self._arrivals = Arrivals()
        self._callers = Callers(self._place)
        self._unclaimed = Unclaimed(self._sql, lease)
        self._marks = Marks()
        self._full_sweeps: set[tuple[str, ...]] = set()
        self._connections: Connections | None = None

    async def open(self) -> None:
        """Connect once, to know that it can be done, and refuse tables that a newer aqueue has made."""
        if self._connections is None:
            self._connections = Connections(self._address.connect, _CONNECTIONS)
        await self._run(migration.check_server)
        await self._run(lambda session: migration.version(session, self._address.names))

    async def aclose(self) -> None:
        """Close every connection; idempotent."""
        connections, self._connections = self._connections, None
        self._arrivals.announce_all()
        if connections is not None:
            await connections.aclose()

    async def migrate(self) -> None:
        """Create or upgrade the tables; safe to repeat, and side by side."""
        await self._run(lambda session: migration.migrate(session, self._address.names))

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        """Insert the batch in one statement, which commits by itself (PUSH-3, PUSH-10)."""
        statement = jobs.push(self._sql, batch)
        await self._run(lambda session: session.run(statement))
        for queue, due_in in {message.queue: message.delay for message in batch}.items():
            self._arrivals.announce(queue, due_in)
        return [None] * len(batch)

    async def push_within(self, connection: object, batch: Sequence[Message]) -> None:
        """Insert the batch in the caller's transaction; seen once it is committed (PUSH-8)."""
        transaction = await self._callers.usable(connection)
        try:
            await transaction.write(jobs.push(self._sql, batch))
        except Exception as error:
            proved = meaning(error)
            if proved is error:
                raise
            raise proved from error

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Reserve in list order; what is due or was lost becomes ready first (DELAY-1, LEASE-2)."""
        for queue in await self._unclaimed.reclaim(self._run):
            self._put_back(queue)
        counts = self._arrivals.counts(queues)
        sweep = await self._run(lambda session: self._sweep(session, queues, limit))
        if len(sweep.reserved) == limit:
            self._full_sweeps.add(tuple(queues))
        else:
            self._full_sweeps.discard(tuple(queues))
        if not sweep.reserved:
            self._arrivals.found_empty(queues, counts, sweep.due_in)
        return sweep.reserved

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival by way of this process, at the next due time, or after `seconds`."""
        due_in = self._arrivals.due_in(queues)
        if due_in is None:
            due_in = await self._look(queues)
        await self._arrivals.wait(queues, min(seconds, due_in))

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Delete each job that its delivery still holds."""
        changes = jobs.ack(self._sql, batch)
        return await self._settle(batch, changes)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back, an uncounted give-back to where it was in its queue (REL-1)."""
        answers = await self._settle([item.reserved for item in batch], jobs.release(self._sql, batch))
        for item in batch:
            self._put_back(item.reserved.queue, item.delay)
        return answers

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each job that its delivery still holds for its failed record (FAIL-1)."""
        return await self._run(lambda session: failed.fail(session, self._failed_sql, self._sql, batch))

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease that its delivery still holds anew (LEASE-3)."""
        return await self._settle(batch, jobs.extend(self._sql, batch, self._lease))

    async def stats(self, queue: str) -> QueueStats:
        """Count the queue's jobs by state; takes time with their number."""
        [counted] = await self._run(lambda session: session.run(self._sql.stats.format(queue=name(queue))))
        return jobs.stats(counted.rows[0])

    async def clear(self, queue: str) -> int:
        """Delete what nobody holds, in one statement (CLEAR-1)."""
        [cleared] = await self._run(lambda session: session.run(self._sql.clear.format(queue=name(queue))))
        return cleared.affected

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """Return a page of the queue's jobs in the order of their ids."""
        statement = self._browsing_sql.page_of(queue, after, limit, head)
        [page] = await self._run(lambda session: session.run(statement))
        return [held(row, queue) for row in page.rows]

    async def find(self, queue: str, id: str) -> Found | None:
        """Say where one job stands."""
        return await self._run(lambda session: finding.find(session, self._address.names, queue, id))

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold jobs or failed jobs."""
        [found] = await self._run(lambda session: session.run(self._browsing_sql.queues))
        return [row[0].decode() for row in found.rows]

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Ask the server how it is set up; a queue has no settings of its own."""
        return await self._run(lambda session: examining.examine(session, self._address.names))

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once."""
        await self._run(lambda session: failed.keep(session, self._failed_sql, batch))

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """List from a position on, oldest first, each filter in an index of its own."""
        wanted = Filter(queue, job)
        return await self._run(lambda session: failed.page(session, self._failed_sql, wanted, after, limit))

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Find the oldest record of a job."""
        return await self._run(lambda session: failed.get(session, self._failed_sql, id))

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        return await self._run(lambda session: failed.count(session, self._failed_sql, Filter(queue, job)))

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job in one transaction (FAIL-2)."""
        is_back = await self._run(
            lambda session: failed.retry(session, self._failed_sql, self._sql, record, message)
        )
        self._arrivals.announce(message.queue)
        return is_back

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Delete the record."""
        return await self._run(lambda session: failed.discard(session, self._failed_sql, record))

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Delete the oldest records past the age or beyond the count, in one bounded transaction."""
        return await self._run(
            lambda session: failed.purge(
                session, self._failed_sql, Filter(queue, None), older_than=older_than, keep=keep, limit=limit
            )
        )

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        """Return what each note says."""
        return await self._run(lambda session: notes.read(session, self._note_sql, keys))

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write each note and insert its messages, in one transaction."""
        limit = self._forgetting.due(len(batch), asyncio.get_running_loop().time())
        answers = await self._run(
            lambda session: notes.write(session, self._note_sql, self._sql, batch, limit)
        )
        for queue, due_in in {(message.queue, message.delay) for item in batch for message in item.messages}:
            self._arrivals.announce(queue, due_in)
        return answers

    async def _sweep(self, session: Session, queues: Sequence[str], limit: int) -> Sweep:
        """Make one sweep. If its reply is lost, what it may have reserved is given back before the next."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        sweeper = Sweeper(session, self._sql, queues, limit)
        starts = self._marks.starts(queues, began)
        try:
            if starts is None:
                sweep = await sweeper.sweep(self._lease, eager=tuple(queues) in self._full_sweeps)
            else:
                sweep = await sweeper.go_on(self._lease, starts)
        except BaseException:
            self._unclaimed.add(sweeper.claimed)
            raise
        self._marks.swept(sweeper.places, loop.time() - began, loop.time(), is_whole=starts is None)
        return sweep

    async def _settle(self, batch: Sequence[Reserved], changes: Sequence[str]) -> list[Answer]:
        return await self._run(lambda session: jobs.settle(session, self._sql, batch, changes))

    def _put_back(self, queue: str, due_in: float = 0.0) -> None:
        self._marks.returned(queue)
        self._arrivals.announce(queue, due_in)

    async def _look(self, queues: Sequence[str]) -> float:
        """Return in how many seconds something falls due or a lease runs out; 0 for what is ready."""
        counts = self._arrivals.counts(queues)
        looks = await self._run(lambda session: look(session, self._sql, queues))
        if not all(seen.is_empty for seen in looks):
            return 0.0
        due_in = Sweep([], looks).due_in
        self._arrivals.found_empty(queues, counts, due_in)
        return float("inf") if due_in is None else due_in

    async def _place(self) -> Place:
        [asked] = await self._run(lambda session: session.run(PLACE))
        return asked.rows[0]

    async def _run(self, call: Callable[[Session], Awaitable[T]]) -> T:
        if self._connections is None:
            raise NotDispatched("the database is not open")
        return await self._connections.run(call)
