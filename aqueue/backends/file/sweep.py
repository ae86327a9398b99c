"""Taking jobs: what one process knows of its queues, so that a pop reads no directory for each job.

A queue's waiting jobs stand in segments, and one listing of the first of them serves a thousand pops. A name
in it is a hope: whoever renames the file first has the job, and the others take the next. Nothing is locked
for that; only jobs whose time has come are made ready under the queue's lock.
"""

import errno
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aqueue.backends.file.commit import Commit
from aqueue.backends.file.content import Content, read_job
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import names_in
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.names import (
    DELAY_BUCKET,
    LEASE_BUCKET,
    MICRO,
    UNREADABLE,
    Entry,
    Lease,
    bucket_of,
    delayed_entry,
    entry_of,
    leased_entry,
    leased_name,
)
from aqueue.backends.file.refusal import refused
from aqueue.backends.file.session import Session
from aqueue.backends.file.state import Counters
from aqueue.backends.file.timed import NEVER, Timed, TimedShelf
from aqueue.port import NotDispatched, Refused, Reserved

_MADE_READY_AT_ONCE = 100
_UNKNOWN = -1
_MANY = 256
_REMEMBERED = 1_000
_LONG_BUSY = 1.0
_NO_FILE = {errno.EISDIR, errno.ELOOP}
"""What reading a stranger's directory or link is answered with."""


class Emptiness(NamedTuple):
    """What a look at queues without jobs tells: their counters, and a time before which nothing is due."""

    arrivals: dict[str, int]
    next_time: int


class Lane:
    """One queue as this process sees it."""

    def __init__(self, directory: Directory, locks: Locks, queue: str) -> None:
        self.arrivals = _UNKNOWN
        """The queue's counter when it was last looked at, unless somebody was changing it."""
        self._directory = directory
        self._locks = locks
        self._place = directory.layout.queue(queue)
        self._delayed = TimedShelf(self._place.delayed, DELAY_BUCKET, directory.disk)
        self._leased = TimedShelf(self._place.leased, LEASE_BUCKET, directory.disk)
        self._returned: deque[str] = deque()
        self._ready: deque[str] = deque()
        self._returned_at = _UNKNOWN
        self._empty_at = _UNKNOWN
        self._left: tuple[int, float] = (0, 0.0)

    @property
    def next_time(self) -> int:
        """A time before which no delay ends and no lease."""
        return min(self._delayed.bound, self._leased.bound)

    def take(self, limit: int) -> list[Reserved]:
        """Reserve up to so many jobs; what is due or was lost becomes ready first."""
        now = self._directory.now()
        if not self._may_have_any(now):
            return []
        if self.next_time <= now:
            self._make_ready(now, max(limit, _MADE_READY_AT_ONCE))
            self._look(now)
        taken: list[Reserved] = []
        commit = Commit(self._directory, self._locks)
        while len(taken) < limit and (names := self._names()) is not None:
            try:
                reserved = self._claim(commit, names.popleft(), now)
            except OSError:
                if taken:  # the next pop says it
                    break
                raise
            if reserved is not None:
                taken.append(reserved)
        commit.last_directories()
        return taken

    def is_empty(self) -> bool:
        """Whether a pop would find nothing now."""
        now = self._directory.now()
        return not self._may_have_any(now) or (self.next_time > now and self._names() is None)

    def _may_have_any(self, now: int) -> bool:
        """Look at what is cheap to look at; whether anything can be there."""
        if not self._look(now):
            return False
        is_known_empty = self._empty_at != _UNKNOWN and self._empty_at == self.arrivals
        return not is_known_empty or self.next_time <= now

    def _look(self, now: int) -> bool:
        """See what has changed; False if there is no such queue."""
        counters = self._locks.counters(self._place)
        if counters is None:
            self.arrivals = 0
            return False
        if not counters.is_settled:
            counters = self._after_the_dead(counters)
        self.arrivals = counters.arrivals if counters.is_settled else _UNKNOWN
        self._leased.look(now)
        self._delayed.look(now)
        if _UNKNOWN in {self.arrivals, self._returned_at} or self.arrivals != self._returned_at:
            if len(self._returned) < _MANY:
                self._returned = deque(_paths(self._place.returned))
            self._returned_at = self.arrivals
        return True

    def _after_the_dead(self, counters: Counters) -> Counters:
        """Wait for who changes the queue; one that does so for long may have died in it."""
        busy, since = self._left
        if busy != counters.busy:
            self._left = counters.busy, time.monotonic()
        elif time.monotonic() - since > _LONG_BUSY:
            self._left = 0, 0.0
            with Commit(self._directory, self._locks).found(self._place.name):
                return self._locks.counters(self._place) or counters
        return counters

    def _names(self) -> deque[str] | None:
        """Return the files to take from, those that were given back first; None if there are none."""
        if self._returned:
            return self._returned
        if not self._ready:
            self._ready = self._first_segment()
        if self._ready:
            return self._ready
        self._empty_at = self.arrivals
        return None

    def _first_segment(self) -> deque[str]:
        """List the first segment that has jobs, and remove those that never will have any again."""
        segments = sorted(names_in(self._place.ready))
        for segment in segments:
            directory = f"{self._place.ready}/{segment}"
            if paths := _paths(directory):
                return deque(paths)
            if segment is not segments[-1] and self._directory.disk.remove_directory(directory):
                self._directory.made.discard(directory)
        return deque()

    def _claim(self, commit: Commit, path: str, now: int) -> Reserved | None:
        """Rename a job's file into a lease of our own; None if somebody else did."""
        entry = entry_of(path.rpartition("/")[2], at=now)
        token, expiry = self._directory.token(), now + self._directory.lease
        bucket = f"{self._place.leased}/{bucket_of(expiry, LEASE_BUCKET)}"
        lease = Lease(token, f"{bucket}/{leased_name(expiry, token, entry)}")
        try:
            commit.into(lease.path, lambda: commit.disk.rename(path, lease.path))
            self._leased.soon(expiry)
            content = read_job(lease.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            content = Content(b"", is_whole=False)
        return self._reserved(entry, content, lease, now)

    def _reserved(self, entry: Entry, content: Content, lease: Lease, now: int) -> Reserved:
        """What can't be read has made no attempt, which tells the queue so (MAL-1)."""
        is_readable = content.is_whole and entry.attempts != UNREADABLE
        attempt = entry.attempts + 1 if is_readable else 0
        receipt = Lease(lease.token, self._directory.layout.relative(lease.path))
        waited = max(0, now - entry.since) / MICRO
        return Reserved(entry.id, self._place.name, content.payload, receipt, attempt, entry.lost, waited)

    def _make_ready(self, now: int, most: int) -> None:
        """Put due jobs (DELAY-1) and those whose lease ran out (LEASE-2) at the end of the queue."""
        with Commit(self._directory, self._locks).found(self._place.name) as session:
            if session is not None:
                self._move(session, self._delayed.due(now, most), _due)
                self._move(session, self._leased.due(now, most), _lost)
        self._delayed.look(now)
        self._leased.look(now)

    def _move(self, session: Session, files: Sequence[Timed], turned: Callable[[Timed], Entry]) -> None:
        for timed in files:
            session.arrive()
            entry = turned(timed)._replace(seq=session.next_seq())
            try:
                session.commit.move(timed.path, session.home_of(entry))
            except FileNotFoundError:
                continue


def _due(timed: Timed) -> Entry:
    return delayed_entry(timed.path.rpartition("/")[2])._replace(since=timed.time)


def _lost(timed: Timed) -> Entry:
    entry = leased_entry(timed.path.rpartition("/")[2])._replace(since=timed.time)
    if entry.attempts == UNREADABLE:
        return entry
    return entry._replace(attempts=entry.attempts + 1, lost=entry.lost + 1)


def _paths(directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in sorted(names_in(directory))]


class Sweep:
    """The lanes of one thread."""

    def __init__(self, directory: Directory, locks: Locks) -> None:
        self._directory = directory
        self._locks = locks
        self._lanes: dict[str, Lane] = {}

    def pop(self, queues: Sequence[str], limit: int) -> list[Reserved]:
        """Reserve up to so many jobs, in list order."""
        taken: list[Reserved] = []
        for queue in queues:
            if len(taken) == limit:
                break
            try:
                taken += self._lane(queue).take(limit - len(taken))
            except (OSError, Refused, NotDispatched) as error:
                if taken:  # the next pop says it
                    break
                raise refused(error) if isinstance(error, OSError) else error from error
        return taken

    def look(self, queues: Sequence[str]) -> Emptiness | None:
        """Return what is known of queues without jobs; None if one has a job that a pop would take."""
        lanes = {queue: self._lane(queue) for queue in queues}
        if not all(lane.is_empty() for lane in lanes.values()):
            return None
        next_time = min((lane.next_time for lane in lanes.values()), default=NEVER)
        return Emptiness({queue: lane.arrivals for queue, lane in lanes.items()}, next_time)

    def arrivals(self, queue: str) -> int:
        """Return the queue's counter of what was put into it."""
        counters = self._locks.counters(self._directory.layout.queue(queue))
        return counters.arrivals if counters is not None else 0

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            if len(self._lanes) >= _REMEMBERED:
                self._lanes.clear()
            lane = self._lanes[queue] = Lane(self._directory, self._locks, queue)
        return lane
