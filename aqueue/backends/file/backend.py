"""The port over a directory."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar, cast

from aqueue.backends.file import clearing, counting, examining, failing, finding, jobs, notes, records
from aqueue.backends.file.browsing import Browsing
from aqueue.backends.file.commit import Commit
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import Disk
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.names import MICRO
from aqueue.backends.file.opening import close_directory, open_directory
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.refusal import refusing
from aqueue.backends.file.serving import Desk, Press
from aqueue.backends.file.state import StateFile
from aqueue.backends.file.threads import FileThread
from aqueue.backends.file.watch import Arrivals, CounterWatch
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
    Releasing,
    Reserved,
)

T = TypeVar("T")

_CENTURY = 100 * 365 * 86_400.0
_READERS = 2

# What certainly did nothing is `Refused` or `NotDispatched`; what comes raw is a disk in trouble.
_FAULTS: Faults = {OSError: Fault.UNKNOWN}


class _Open:
    """What an open store has: its threads, who waits, and its lock among the living."""

    def __init__(self, directory: Directory) -> None:
        desk_locks, press_locks = Locks(directory), Locks(directory)
        desk, press = Desk(directory, desk_locks), Press(directory, press_locks)
        watch = CounterWatch(desk.sweep.arrivals)
        self.directory = directory
        self.arrivals = Arrivals(watch)
        self.browsing = Browsing(directory)
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="aqueue-file-read")
        self.desk = FileThread("aqueue-file-desk", desk.serve, watch=watch, close=desk_locks.close)
        self.press = FileThread("aqueue-file-press", press.serve, close=press_locks.close)
        self.alive: StateFile | None = None
        desk_locks.is_hopeless = self.desk.is_hopeless
        press_locks.is_hopeless = self.press.is_hopeless

    def opening(self, commit: Commit) -> Plan[None]:
        """Come alive in the directory."""
        yield ()
        self.alive = open_directory(self.directory, commit.locks)

    def closing(self, _: Commit) -> Plan[None]:
        """Leave it."""
        yield ()
        if self.alive is not None:
            close_directory(self.directory, self.alive)


class FileBackend:
    """Jobs as files, which several processes rename under one another's eyes."""

    capabilities = Capabilities(
        system="file",
        shortest_lease=0.001,
        longest_lease=_CENTURY,
        longest_delay=_CENTURY,
        atomic_push=True,
    )
    faults = _FAULTS

    def __init__(self, root: str, disk: Disk, *, lease: float, clock: Callable[[], float]) -> None:
        self._root = root
        self._disk = disk
        self._lease = lease
        self._clock = clock
        self._open: _Open | None = None

    async def open(self) -> None:
        """Open the directory, made if missing; several processes may do so at once."""
        directory = Directory(self._root, self._disk, lease=self._lease, clock=self._clock)
        self._open = _Open(directory)
        await self._change(self._open.opening)

    async def aclose(self) -> None:
        """Finish what is under way, end the threads, and leave nothing in the directory but jobs."""
        was_open, self._open = self._open, None
        if was_open is None:
            return
        was_open.arrivals.end()
        await was_open.desk.stop(lambda _: None)
        await was_open.press.stop(was_open.closing)
        was_open.readers.shutdown(wait=False)
        self._disk.close()

    async def migrate(self) -> None:
        """Nothing to make: `open` has made what there is to be made."""
        self._opened()

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        """Store the batch whole; on disk once this returns (PUSH-3, PUSH-10)."""
        stored = await self._change(partial(jobs.push, batch=batch))
        self._announce(message.queue for message in batch)
        return stored

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Reserve in list order; what is due or expired is taken up first."""
        opened = self._opened()
        return await self._look(
            lambda desk: desk.sweep.pop(queues, limit),
            undo=lambda reserved: self._give_back(opened, reserved),
        )

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival, at the next due time or expiry, or after `seconds`."""
        opened = self._opened()
        arrival = opened.arrivals.expect(queues)
        try:
            emptiness = await self._look(lambda desk: desk.sweep.look(queues))
            if emptiness is None:
                return
            left = min(seconds, emptiness.next_time / MICRO - self._clock())
            if left > 0:
                await opened.arrivals.wait(opened.desk, arrival, emptiness.arrivals, left)
        finally:
            opened.arrivals.forget(arrival)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Remove each job that its delivery still holds."""
        return await self._change(partial(jobs.ack, batch=batch))

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back, an uncounted give-back to where it was in its queue (REL-1)."""
        answers = await self._change(partial(jobs.release, batch=batch))
        self._announce(item.reserved.queue for item in batch)
        return answers

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each job that its delivery still holds for its failed record (FAIL-1)."""
        return await self._change(partial(failing.fail, batch=batch))

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease that its delivery still holds anew (LEASE-3)."""
        return await self._look(lambda desk: jobs.extend(desk.commit(), batch))

    async def stats(self, queue: str) -> QueueStats:
        """Count the queue's jobs by state; takes time with their number."""
        return await self._read(lambda opened: counting.stats(opened.directory, queue))

    async def clear(self, queue: str) -> int:
        """Discard what nobody holds, in one step (CLEAR-1)."""
        return await self._change(partial(clearing.clear, queue=queue))

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """List waiting and leased jobs by id."""
        return await self._read(
            lambda opened: opened.browsing.page(queue, after=after, limit=limit, head=head)
        )

    async def find(self, queue: str, id: str) -> Found | None:
        """Say where one job stands."""
        return await self._read(lambda opened: finding.find(opened.directory, queue, id))

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold something."""
        return await self._read(lambda opened: opened.browsing.queues())

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Look at the directory's place and options."""
        return await self._read(lambda opened: examining.examine(opened.directory))

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once."""
        await self._change(partial(failing.keep, batch=batch))

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """List from a position on, oldest first; the records of other queues and jobs are not read."""
        return await self._read(
            lambda opened: records.page(
                opened.directory.layout, queue=queue, job=job, after=after, limit=limit
            )
        )

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Find the oldest record of a job."""
        return await self._read(lambda opened: records.oldest_of(opened.directory.layout, id))

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records, by their names."""
        return await self._read(lambda opened: records.count(opened.directory.layout, queue=queue, job=job))

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job (FAIL-2)."""
        put_back = await self._change(partial(failing.retry, record=record, message=message))
        self._announce([message.queue])
        return put_back

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Remove the record."""
        return await self._change(partial(failing.discard, record=record))

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Remove the oldest records past the age or beyond the count."""
        chosen = await self._read(
            lambda opened: records.removable(
                opened.directory.layout,
                queue,
                before=records.age_limit(opened.directory.now(), older_than),
                keep=keep,
                limit=limit,
            )
        )
        return await self._change(partial(failing.purge, chosen=chosen)) if chosen else 0

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note]:
        """Return what each note says."""
        return await self._read(lambda opened: notes.read(opened.directory, keys))

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write each note that still is what its writer read, and push its messages (NOTE-1, NOTE-2)."""
        answers = await self._change(partial(notes.write, batch=batch))
        self._announce(message.queue for noting in batch for message in noting.messages)
        return answers

    # -- the threads ------------------------------------------------------------------------------------

    def _opened(self) -> _Open:
        if self._open is None:
            raise NotDispatched("the directory is not open")
        return self._open

    async def _change(self, act: Callable[[Commit], Plan[T]]) -> T:
        return cast("T", await self._opened().press.do(act))

    async def _look(self, act: Callable[[Desk], T], *, undo: Callable[[T], object] | None = None) -> T:
        return cast("T", await self._opened().desk.do(act, undo=cast("Callable[[object], object]", undo)))

    async def _read(self, act: Callable[[_Open], T]) -> T:
        """Look at files without a lock, beside whatever else is done."""
        opened = self._opened()

        def read() -> T:
            with refusing():
                return act(opened)

        return await asyncio.get_running_loop().run_in_executor(opened.readers, read)

    def _announce(self, queues: Iterable[str]) -> None:
        if self._open is not None:
            self._open.arrivals.announce(queues)

    def _give_back(self, opened: _Open, reserved: Sequence[Reserved]) -> None:
        """Nobody took what this sweep reserved: the call was cancelled while it was made (POP-6)."""
        if reserved:
            batch = [Releasing(item, counted=False) for item in reserved]
            done = opened.press.post(partial(jobs.release, batch=batch))
            queues = {item.queue for item in reserved}
            done.add_done_callback(lambda _: opened.arrivals.announce(queues))
