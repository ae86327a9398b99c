"""Discarding what nobody holds: one rename takes it all out of the queue, then it is removed (CLEAR-1)."""

from typing import TYPE_CHECKING

from aqueue.backends.file.disk import names_in
from aqueue.backends.file.names import delayed_entry, entry_of
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.refusal import refused

if TYPE_CHECKING:
    from aqueue.backends.file.commit import Commit
    from aqueue.backends.file.session import Session


def clear(commit: "Commit", queue: str) -> Plan[int]:
    """Discard every job that waits, and count those that were there."""
    yield ()
    with commit.found(queue) as session:
        if session is None:
            return 0
        place = session.place
        aside = f"{place.cleared}/{commit.directory.writer}.{commit.directory.number():x}"
        try:
            session.mark()
            commit.move(place.waiting, aside)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise refused(error) from error
        made = commit.directory.made
        made.difference_update({name for name in tuple(made) if name.startswith(place.waiting)})
        session.stays_open = True  # until all of it is removed
        removed = remove_cleared(session, aside)
        session.stays_open = False
        return removed


def remove_cleared(session: "Session", aside: str) -> int:
    """Remove what was cleared; a pop that had found a job before may still take it, and it doesn't count."""
    commit, removed = session.commit, 0
    for name in names_in(f"{aside}/returned"):
        removed += _remove(session, f"{aside}/returned/{name}", entry_of(name).id)
    for kind, entry in (("ready", entry_of), ("delayed", delayed_entry)):
        for part in names_in(f"{aside}/{kind}"):
            for name in names_in(f"{aside}/{kind}/{part}"):
                removed += _remove(session, f"{aside}/{kind}/{part}/{name}", entry(name).id)
            commit.disk.remove_directory(f"{aside}/{kind}/{part}")
    for kind in ("returned", "ready", "delayed"):
        commit.disk.remove_directory(f"{aside}/{kind}")
    if not commit.disk.remove_directory(aside):
        commit.set_aside(aside)
    return removed


def _remove(session: "Session", path: str, id: str) -> bool:
    try:
        session.remove(path, session.second(id))
    except FileNotFoundError:
        return False
    return True
