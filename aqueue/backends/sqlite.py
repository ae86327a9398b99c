"""Jobs in a SQLite file: durable, shared by one machine's processes, beside the application's own tables.

`sqlite:///jobs.db` is relative to the working directory, `sqlite:////var/lib/jobs.db` absolute. Options:

* `synchronous=full` (the default) has every commit on disk before `push` returns; `extra` also syncs the
  directory; `normal` is faster and may lose the last commits when the power fails.
* `journal=wal` or `journal=rollback`. The default is WAL from SQLite 3.51.3 on. Before that, several writers
  can damage a WAL database, so a rollback journal is used, unless the file is in WAL already; using WAL all
  the same warns on opening.

All times are read from the machine's clock while the write lock is held, so its processes agree on them.
"""

import sqlite3
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from aqueue.backends import _sqlite_browsing as browsing
from aqueue.backends import _sqlite_examining as examining
from aqueue.backends import _sqlite_failed as failed
from aqueue.backends import _sqlite_file as file
from aqueue.backends import _sqlite_finding as finding
from aqueue.backends import _sqlite_jobs as jobs
from aqueue.backends import _sqlite_notes as notes
from aqueue.backends import _sqlite_schema as schema
from aqueue.backends._sqlite_thread import DatabaseThread
from aqueue.backends._sqlite_watch import Arrivals, Emptiness, FileWatch
from aqueue.port import (
    Answer,
    Capabilities,
    Examination,
    FailedRecord,
    Failing,
    Fault,
    Faults,
    Found,
    Held,
    Message,
    NotDispatched,
    Note,
    NoteKey,
    Noting,
    Position,
    QueueStats,
    Refused,
    Releasing,
    Reserved,
    StoreOptions,
)
from aqueue.urls import StoreURL

# Errors of statements come as `Refused`, since they were rolled back, and locks as `NotDispatched`; an
# `OperationalError` that comes raw is an I/O error out of COMMIT.
_FAULTS: Faults = {
    sqlite3.Error: Fault.UNKNOWN,
    sqlite3.DataError: Fault.REFUSED,
    sqlite3.IntegrityError: Fault.REFUSED,
    sqlite3.InterfaceError: Fault.REFUSED,
    sqlite3.NotSupportedError: Fault.REFUSED,
    sqlite3.ProgrammingError: Fault.REFUSED,
}


class _Sweep(NamedTuple):
    """What a pop took, or what it learned if it saw without the write lock that there was nothing."""

    reserved: Sequence[Reserved] = ()
    emptiness: Emptiness | None = None


class SQLiteBackend:
    """The port over one connection on a thread of its own."""

    capabilities = Capabilities(system="sqlite", shortest_lease=0.001, atomic_push=True)
    faults = _FAULTS

    def __init__(self, database: file.DatabaseFile, *, lease: float, clock: Callable[[], float]) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock
        self._watch = FileWatch(database.path)
        self._arrivals = Arrivals(self._watch)
        self._thread: DatabaseThread | None = None

    async def open(self) -> None:
        """Open the file, made if missing, with its tables; several processes may do so at once."""
        self._thread = DatabaseThread(self._database.connect, self._watch)
        await self.migrate()
        warning = await self._thread.read(file.wal_warning)
        if warning is not None:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    async def aclose(self) -> None:
        """Close the connection and end its thread."""
        thread, self._thread = self._thread, None
        self._arrivals.end()
        if thread is not None:
            await thread.stop()

    async def migrate(self) -> None:
        """Make or upgrade the tables; `open` has done it already."""
        if not await self._running().read(schema.is_current):
            await self._running().write(lambda connection: schema.migrate(connection, self._clock()))

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        """Insert the batch in one commit, shared with whatever else waits (PUSH-3, PUSH-10)."""
        await self._running().write(lambda connection: jobs.push(connection, batch, self._clock()))
        self._announce(batch)
        return [None] * len(batch)

    async def push_within(self, connection: object, batch: Sequence[Message]) -> None:
        """Insert the batch in the transaction of the caller's `sqlite3.Connection` to the same file (PUSH-8).

        It runs at once, on the caller's thread, and waits for locks as that connection does.
        """
        usable = file.check_usable(connection, self._database.path)
        try:
            jobs.push(usable, batch, self._clock())
        except sqlite3.OperationalError as error:
            raise Refused(str(error)) from error

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Reserve in list order in one transaction; what is due or expired is taken up first."""
        arrivals = self._arrivals.counts(queues)
        thread = self._running()
        sweep = await thread.write(
            lambda connection: self._sweep(connection, queues, limit),
            glance=lambda connection: self._glance(connection, queues),
            undo=lambda unreceived: self._give_back(thread, unreceived),
        )
        if sweep.emptiness is not None:
            self._arrivals.found_empty(queues, arrivals, sweep.emptiness)
        return sweep.reserved

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival, when the file changes, at the next due time or expiry, or after `seconds`."""
        known = self._arrivals.emptiness(queues)
        if known is None:
            arrivals = self._arrivals.counts(queues)
            known = await self._running().read(lambda connection: self._look(connection, queues))
            self._arrivals.found_empty(queues, arrivals, known)
        left = min(seconds, known.next_time - self._clock())
        if left > 0:
            await self._arrivals.wait(self._running(), queues, known.signature, left)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Delete each job that its delivery still holds."""
        return await self._running().write(lambda connection: jobs.ack(connection, batch))

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back, an uncounted give-back to where it was in its queue (REL-1)."""
        answers = await self._running().write(
            lambda connection: jobs.release(connection, batch, self._clock())
        )
        self._announce([item.reserved for item in batch])
        return answers

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each job that its delivery still holds for its failed record (FAIL-1)."""
        return await self._running().write(lambda connection: failed.fail(connection, batch, self._clock()))

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease that its delivery still holds anew (LEASE-3)."""
        return await self._running().write(
            lambda connection: jobs.extend(connection, batch, self._clock() + self._lease)
        )

    async def stats(self, queue: str) -> QueueStats:
        """Count the queue's jobs by state; takes time with their number."""
        return await self._running().read(lambda connection: jobs.stats(connection, queue, self._clock()))

    async def clear(self, queue: str) -> int:
        """Delete what nobody holds, in one transaction (CLEAR-1)."""
        return await self._running().write(lambda connection: jobs.clear(connection, queue))

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """Return a page of the queue's jobs in the order of their ids."""
        return await self._running().read(
            lambda connection: browsing.page(
                connection, queue, after=after, limit=limit, head=head, now=self._clock()
            )
        )

    async def find(self, queue: str, id: str) -> Found | None:
        """Say where one job stands."""
        return await self._running().read(
            lambda connection: finding.find(connection, queue, id, now=self._clock())
        )

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold jobs or failed jobs."""
        return await self._running().read(browsing.queues)

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Look at the database, its settings and its place."""
        return await self._running().read(
            lambda connection: examining.examine(connection, self._database.path)
        )

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once."""
        await self._running().write(lambda connection: failed.keep(connection, batch, self._clock()))

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """List from a position on, oldest first, each filter in an index of its own."""
        return await self._running().read(
            partial(failed.page, queue=queue, job=job, after=after, limit=limit)
        )

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Find the oldest record of a job."""
        return await self._running().read(partial(failed.get, id=id))

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        return await self._running().read(partial(failed.count, queue=queue, job=job))

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job in one transaction (FAIL-2)."""
        put_back = await self._running().write(
            lambda connection: failed.retry(connection, record, message, self._clock())
        )
        self._announce([message])
        return put_back

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Delete the record."""
        return await self._running().write(partial(failed.discard, record=record))

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Delete the oldest records past the age or beyond the count, in one bounded transaction."""
        return await self._running().write(
            lambda connection: failed.purge(
                connection,
                queue,
                before=self._clock() - older_than if older_than is not None else None,
                keep=keep,
                limit=limit,
            )
        )

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        """Return what each note says."""
        return await self._running().read(lambda connection: notes.read(connection, keys, self._clock()))

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write notes and insert their messages in one transaction."""
        answers = await self._running().write(
            lambda connection: notes.write(connection, batch, self._clock())
        )
        self._announce([message for noting in batch for message in noting.messages])
        return answers

    def _running(self) -> DatabaseThread:
        if self._thread is None:
            raise NotDispatched("the database is not open")
        return self._thread

    def _announce(self, stored: Sequence[Message] | Sequence[Reserved]) -> None:
        for queue in {item.queue for item in stored}:
            self._arrivals.announce(queue)

    def _sweep(self, connection: sqlite3.Connection, queues: Sequence[str], limit: int) -> _Sweep:
        return _Sweep(jobs.pop(connection, queues, limit, now=self._clock(), lease=self._lease))

    def _glance(self, connection: sqlite3.Connection, queues: Sequence[str]) -> _Sweep | None:
        """An idle worker's sweep: nothing is due, so the write lock is left to those who have to write."""
        emptiness = self._look(connection, queues)
        return _Sweep(emptiness=emptiness) if emptiness.next_time > self._clock() else None

    def _look(self, connection: sqlite3.Connection, queues: Sequence[str]) -> Emptiness:
        """The files first: what is committed after they were looked at shows in them or in the tables."""
        signature = self._watch.signature()
        return Emptiness(signature, jobs.next_time(connection, queues))

    def _give_back(self, thread: DatabaseThread, sweep: _Sweep) -> None:
        """Nobody took what this sweep reserved: the call was cancelled while it was committed (POP-6)."""
        if sweep.reserved:
            batch = [Releasing(item, counted=False) for item in sweep.reserved]
            done = thread.post(lambda connection: jobs.release(connection, batch, self._clock()))
            done.add_done_callback(lambda _: self._announce(sweep.reserved))


def from_url(url: StoreURL, options: StoreOptions) -> SQLiteBackend:
    """Return the store in the URL's file."""
    return SQLiteBackend(file.from_url(url), lease=options.lease, clock=options.clock)
