"""Where one job stands, by the names of files alone."""

from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import links_of, names_in
from aqueue.backends.file.layout import QueuePlace
from aqueue.backends.file.names import (
    MICRO,
    UNREADABLE,
    Entry,
    delayed_entry,
    entry_of,
    leased_entry,
    time_of,
)
from aqueue.port import Found

_TRIES = 3


def find(directory: Directory, queue: str, id: str) -> Found | None:
    """Return where the job stands; takes time with the queue's length.

    Whoever takes the job meanwhile moves it to where is looked last, and only one that is put back may be
    missed; then all is looked through again.
    """
    place = directory.layout.queue(queue)
    for _ in range(_TRIES):
        if links_of(f"{place.ids}/{id}") < 2:
            return None
        found = _looked_for(place, id, directory.now())
        if found is not None:
            return found
    return Found(ahead=None)


def _looked_for(place: QueuePlace, id: str, now: int) -> Found | None:
    return (
        _waiting(place, id, now)
        or _timed(place.delayed, id, now, is_leased=False)
        or _timed(place.leased, id, now, is_leased=True)
    )


def _waiting(place: QueuePlace, id: str, now: int) -> Found | None:
    """What was given back goes before what waits; in both, jobs are handed out in the order of names."""
    ahead = 0
    for path in (place.returned, *(f"{place.ready}/{part}" for part in sorted(names_in(place.ready)))):
        for name in sorted(names_in(path)):
            entry = entry_of(name, at=now)
            if entry.id == id:
                return _found(entry, waited=max(0, now - entry.since) / MICRO, ahead=ahead)
            ahead += 1
    return None


def _timed(path: str, id: str, now: int, *, is_leased: bool) -> Found | None:
    for part in names_in(path):
        for name in names_in(f"{path}/{part}"):
            entry = leased_entry(name) if is_leased else delayed_entry(name)
            if entry.id == id:
                left = (time_of(name) - now) / MICRO
                return _found(entry, held_for=left) if is_leased else _found(entry, due_in=left)
    return None


def _found(
    entry: Entry,
    *,
    due_in: float | None = None,
    held_for: float | None = None,
    waited: float = 0.0,
    ahead: int | None = 0,
) -> Found:
    attempts = 0 if entry.attempts == UNREADABLE else entry.attempts
    return Found(
        due_in=due_in, held_for=held_for, waited=waited, ahead=ahead, attempts=attempts, lost=entry.lost
    )
