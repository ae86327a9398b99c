"""One process's hand in a directory of jobs, without threads or a loop: for looking at each single step."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aqueue.backends.file import failing, jobs, notes, records
from aqueue.backends.file.commit import Commit
from aqueue.backends.file.content import read_job, read_note
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import Disk
from aqueue.backends.file.layout import Layout
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.names import delayed_entry, entry_of, leased_entry, time_of
from aqueue.backends.file.opening import close_directory, open_directory
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.sweep import Sweep
from aqueue.port import Message, Releasing, Reserved

T = TypeVar("T")

Facts = dict[tuple[str, str, str], object]
"""What a store holds, by kind, queue and id: enough to compare two of them."""


class Hand:
    """Does what the threads of a store do, at once."""

    def __init__(
        self,
        root: Path,
        *,
        disk: Disk | None = None,
        lease: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = Directory(str(root), disk or Disk(syncs=False), lease=lease, clock=clock)
        self.locks = Locks(self.directory)
        self.alive = open_directory(self.directory, self.locks)
        self.sweep = Sweep(self.directory, Locks(self.directory))

    def close(self) -> None:
        """Leave the directory."""
        close_directory(self.directory, self.alive)
        self.locks.close()

    def do(self, act: Callable[[Commit], Plan[T]]) -> T:
        """Make one change, as a group of its own."""
        commit = Commit(self.directory, self.locks)
        plan = act(commit)
        drafts = next(plan)
        try:
            plan.send(self.directory.disk.write_all(drafts))
        except StopIteration as ended:
            commit.last()
            result: T = ended.value
            return result
        raise AssertionError("the plan goes on")

    def push(self, *batch: Message) -> None:
        """Push messages in one batch."""
        self.do(lambda commit: jobs.push(commit, batch))

    def pop(self, *queues: str, limit: int = 100) -> list[Reserved]:
        """Reserve what is due."""
        return self.sweep.pop(queues or ("default",), limit)

    def ack(self, *batch: Reserved) -> list[Any]:
        """Acknowledge deliveries."""
        return self.do(lambda commit: jobs.ack(commit, batch))

    def release(self, *batch: Releasing) -> list[Any]:
        """Put deliveries back."""
        return self.do(lambda commit: jobs.release(commit, batch))

    def extend(self, *batch: Reserved) -> list[Any]:
        """Renew leases."""
        return jobs.extend(Commit(self.directory, self.locks), batch)

    def fail(self, *batch: Any) -> list[Any]:
        """Set jobs aside."""
        return self.do(lambda commit: failing.fail(commit, batch))

    def write_notes(self, *batch: Any) -> list[Any]:
        """Write notes."""
        return self.do(lambda commit: notes.write(commit, batch))

    def look_after(self, *queues: str) -> None:
        """Lock queues, as whoever changes them next will."""
        for queue in queues:
            with Commit(self.directory, self.locks).found(queue):
                pass


def facts(root: Path) -> Facts:
    """Return what the store holds, places in the queue and tokens left out."""
    layout = Layout(str(root))
    return {
        (kind, queue, id): what
        for queue in records.queues_in(layout)
        for kind, id, what in _of_queue(layout, queue)
    }


def _of_queue(layout: Layout, queue: str) -> Iterator[tuple[str, str, object]]:
    place = layout.queue(queue)
    for path in Path(place.waiting).glob("r*/**/*-*"):
        entry = entry_of(path.name)
        yield "job", entry.id, ("ready", *entry[2:], read_job(str(path)).payload)
    for kind, root, read in (
        ("delayed", place.delayed, delayed_entry),
        ("leased", place.leased, leased_entry),
    ):
        for path in Path(root).glob("*/*"):
            entry = read(path.name)
            yield "job", entry.id, (kind, *entry[2:], time_of(path.name), read_job(str(path)).payload)
    for found in records.records(layout, queue):
        record = records.read_record(found)
        assert record is not None
        yield "failed", record.id, (record.reason, record.delivery, record.payload)
    for path in Path(place.notes).glob("*"):
        note = read_note(str(path))
        assert note is not None
        yield "note", path.name, (note.token, note.value)


def troubles(root: Path, *, living: Sequence[Hand] = ()) -> list[str]:
    """Return what is not as it should be where nobody is at work."""
    layout = Layout(str(root))
    found = [f"an intent is left: {path}" for path in Path(layout.intents).glob("*")]
    writers = {hand.directory.writer for hand in living}
    found += [
        f"a draft is left: {path}"
        for path in Path(layout.writers).glob("*/*")
        if path.name != "alive" or path.parent.name not in writers
    ]
    for queue in records.queues_in(layout):
        place = layout.queue(queue)
        homes = [*Path(place.waiting).glob("*/**/*-*"), *Path(place.leased).glob("*/*")]
        found += _pairs(homes, Path(place.ids))
        found += _pairs(list(Path(place.failed).glob("*/*")), Path(place.failed_ids))
        found += [f"cleared jobs are left: {path}" for path in Path(place.cleared).glob("*")]
    return found


def _pairs(homes: Sequence[Path], ids: Path) -> Iterator[str]:
    """Every file has exactly two names, one of each kind."""
    first = sorted(path.stat().st_ino for path in homes)
    second = sorted(path.stat().st_ino for path in ids.glob("*"))
    if first != second:
        yield f"{len(first)} files and {len(second)} second names don't belong together: {homes} {ids}"
    for path in homes:
        if path.stat().st_nlink != 2:
            yield f"{path} has {path.stat().st_nlink} names"
