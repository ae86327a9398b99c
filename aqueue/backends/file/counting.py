"""Counting a queue's jobs, by the names of their files alone."""

from collections.abc import Iterator
from typing import NamedTuple

from aqueue.backends.file import records
from aqueue.backends.file.commit import Commit
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import names_in
from aqueue.backends.file.layout import QueuePlace
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.names import MICRO, delayed_entry, entry_of, leased_entry, time_of
from aqueue.port import QueueStats, Standing

_TRIES = 3


class Stood(NamedTuple):
    """A job where it was seen: `since` is when it became or becomes ready, in microseconds."""

    standing: Standing
    since: int


def stats(directory: Directory, queue: str) -> QueueStats:
    """Count the jobs as the next pop would find them; takes time with their number."""
    jobs = standings(directory, queue).values()
    of_kind = dict.fromkeys(Standing, 0)
    for job in jobs:
        of_kind[job.standing] += 1
    oldest = min((job.since for job in jobs if job.standing is Standing.READY), default=None)
    return QueueStats(
        ready=of_kind[Standing.READY],
        delayed=of_kind[Standing.DELAYED],
        leased=of_kind[Standing.LEASED],
        failed=records.count(directory.layout, queue=queue, job=None),
        oldest_age=max(0, directory.now() - oldest) / MICRO if oldest is not None else None,
    )


def standings(directory: Directory, queue: str) -> dict[str, Stood]:
    """Return where each of a queue's jobs stands, by its id.

    Without the lock a job may move behind the reader's back, so all is read again if the counters have
    changed, and at last with the lock. Whoever takes a job needs no lock and changes no counter, but only
    moves it to where is looked last.
    """
    place, locks = directory.layout.queue(queue), Locks(directory)
    try:
        for _ in range(_TRIES):
            before = locks.counters(place)
            found = _read(place, directory.now())
            if before is None or (before.is_settled and locks.counters(place) == before):
                return found
        with Commit(directory, locks).found(queue):
            return _read(place, directory.now())
    finally:
        locks.close()


def _read(place: QueuePlace, now: int) -> dict[str, Stood]:
    found: dict[str, Stood] = {}
    for name in (*names_in(place.returned), *_deep(place.ready)):
        entry = entry_of(name, at=now)
        found[entry.id] = Stood(Standing.READY, entry.since)
    for name in _deep(place.delayed):
        found[delayed_entry(name).id] = _timed(Standing.DELAYED, name, now)
    for name in _deep(place.leased):
        found[leased_entry(name).id] = _timed(Standing.LEASED, name, now)
    return found


def _timed(kind: Standing, name: str, now: int) -> Stood:
    time = time_of(name)
    return Stood(kind if time > now else Standing.READY, time)


def _deep(path: str) -> Iterator[str]:
    for part in names_in(path):
        yield from names_in(f"{path}/{part}")
