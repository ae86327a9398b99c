"""What may be done to a queue while it is locked: each of these is whole when the process dies in it."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from aqueue.backends.file.disk import Draft, links_of, names_in, unless_gone
from aqueue.backends.file.layout import QueuePlace
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.names import (
    DELAY_BUCKET,
    Entry,
    Lease,
    bucket_of,
    delayed_name,
    file_id,
    leased_entry,
    micros,
    segment_of,
    token_of,
)
from aqueue.backends.file.steps import Place
from aqueue.port import Message

if TYPE_CHECKING:
    from aqueue.backends.file.commit import Commit


class Session:
    """One queue, locked by `commit`'s thread until `end`."""

    def __init__(self, commit: "Commit", place: QueuePlace, locks: Locks) -> None:
        self.commit = commit
        self.place = place
        self.stays_open = False
        """Whether something was left for the next session to finish."""
        self._state = locks.locked(place)
        try:
            self._counters = self._found = self._state.counters()
        except BaseException:
            self._state.unlock()
            raise
        self._is_marked = not self._counters.is_settled
        self._leases: dict[str, str] | None = None
        self._left_over: list[str] = []

    @property
    def was_left(self) -> bool:
        """Whether the last one to lock the queue died in it."""
        return not self._found.is_settled

    def mark(self) -> None:
        """Say that the queue is being changed, for those who look without the lock."""
        if not self._is_marked:
            self._is_marked = True
            self._counters = self._counters._replace(busy=self._counters.busy + 1)
            self._state.store(self._counters)

    def end(self) -> None:
        """Say that it was changed, and unlock it; if nobody can be told, the next looks after it."""
        try:
            for second in self._left_over:
                with suppress(OSError):  # it counts for nothing
                    self.forget(second)
            if self._is_marked and not self.stays_open:
                with suppress(OSError):
                    self._state.store(self._counters._replace(busy=self._counters.busy + 1))
        finally:
            self._state.unlock()

    # -- places -----------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Say that something comes that a waiting pop may take."""
        self.mark()
        if self._counters.arrivals == self._found.arrivals:
            self._counters = self._counters._replace(arrivals=self._counters.arrivals + 1)

    def next_seq(self) -> int:
        """Return the next place at the end of the queue."""
        self._counters = self._counters._replace(seq=self._counters.seq + 1)
        return self._counters.seq

    def home_of(self, entry: Entry, due: int = 0) -> str:
        """Return where a job waits: in its place in the queue, or for its time."""
        if due:
            bucket = f"{self.place.delayed}/{bucket_of(due, DELAY_BUCKET)}"
            return f"{bucket}/{delayed_name(due, entry)}"
        return f"{self.place.ready}/{segment_of(entry.seq)}/{entry.tail}"

    def arrival_of(self, message: Message, draft: Draft) -> Place:
        """Return the step that puts a new job where it waits."""
        now = self.commit.directory.now()
        due = now + micros(message.delay) if message.delay > 0 else 0
        id = file_id(message.id)
        self.arrive()
        home = self.home_of(Entry(self.next_seq(), id, since=due or now), due)
        return self.commit.place(draft, home, self.second(id))

    # -- second names -----------------------------------------------------------------------------------

    def holds(self, id: str) -> bool:
        """Whether a job with this id waits, is delayed or is leased (PUSH-10).

        A job's file has two names until it ends; one that is left over when a process dies is the only one.
        """
        return links_of(self.second(file_id(id))) > 1

    def forget(self, path: str) -> None:
        """Take away a second name, if it is the last one left."""
        if links_of(path) == 1:
            self.commit.disk.unlink(path)

    # -- hand-outs --------------------------------------------------------------------------------------

    def remove(self, path: str, second: str) -> None:
        """Remove a file and its second name; raises `FileNotFoundError` if it is gone."""
        self.do(second)
        self.commit.take_away(path)
        try:
            self.forget(second)
        except OSError:
            self._left_over.append(second)

    def second(self, id: str) -> str:
        """Return the second name of a job's file."""
        return f"{self.place.ids}/{id}"

    def settle(self, lease: Lease | None, act: Callable[[str, Entry], None]) -> bool:
        """Do something to the file of a hand-out, whose path and name are given; False if it is stale.

        `act` raises `FileNotFoundError` if the file isn't there, and then it was put elsewhere: by a renewal
        of this process's, which is known, or of another's, which is looked for.
        """
        if lease is None:
            return False
        self.mark()
        path = self.commit.directory.moved.pop(lease.token, None) or self.commit.layout.absolute(lease.path)
        if self._is_ours(path) and unless_gone(lambda: act(path, _entry_at(path))):
            return True
        found = self._leased_paths().get(lease.token)
        return found is not None and unless_gone(lambda: act(found, _entry_at(found)))

    def _is_ours(self, path: str) -> bool:
        """A receipt is only opaque by agreement; a path in it leads nowhere but to this queue's leases."""
        return path.startswith(f"{self.place.leased}/")

    def _leased_paths(self) -> dict[str, str]:
        """Find every hand-out of this queue, by its token."""
        if self._leases is None:
            leased = self.place.leased
            self._leases = {
                token_of(name): f"{leased}/{bucket}/{name}"
                for bucket in names_in(leased)
                for name in names_in(f"{leased}/{bucket}")
            }
        return self._leases

    def raise_seq(self, seq: int) -> None:
        """Give out no place before this one: the counter may be older than the files."""
        self._counters = self._counters._replace(seq=max(seq, self._counters.seq))

    @property
    def doing(self) -> str:
        """The file that was being moved last."""
        return self._state.doing()

    def do(self, path: str) -> None:
        """Write down which file is about to be moved, in case nobody is left to finish that."""
        self.mark()
        self._state.store_doing(self.commit.layout.relative(path))


def _entry_at(path: str) -> Entry:
    return leased_entry(path.rpartition("/")[2])
