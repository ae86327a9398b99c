"""What the two threads of a store do with what waits for them.

The *desk* takes jobs and looks at things; it answers one after another and never waits for the disk. The
*press* makes the changes that must last: all that waits is one group, whose files are written together and
whose directories are put on disk once, before any of them is answered (PUSH-3, PUSH-6).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from aqueue.backends.file.commit import Commit
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import Disk, Draft
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.sweep import Sweep
from aqueue.backends.file.threads import Outcome, Work
from aqueue.port import NotDispatched

Deliver: TypeAlias = Callable[[Sequence[Outcome]], None]
Look: TypeAlias = Callable[["Desk"], object]
Change: TypeAlias = Callable[[Commit], Plan[Any]]


class Desk:
    """The thread that takes jobs."""

    def __init__(self, directory: Directory, locks: Locks) -> None:
        self.sweep = Sweep(directory, locks)
        self.directory = directory
        self._locks = locks

    def commit(self) -> Commit:
        """Return a group for changes that a power failure may undo."""
        return Commit(self.directory, self._locks)

    def serve(self, works: Sequence[Work], deliver: Deliver) -> None:
        """Answer each in turn."""
        self._locks.trim()
        for work in works:
            deliver([self._outcome(work)])

    def _outcome(self, work: Work) -> Outcome:
        if work.withdrawn:
            return withdrawn(work)
        try:
            return Outcome(work, cast("Look", work.act)(self))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, not to this thread
            return Outcome(work, None, error)


class Press:
    """The thread that makes changes last."""

    def __init__(self, directory: Directory, locks: Locks) -> None:
        self._directory = directory
        self._locks = locks

    def serve(self, works: Sequence[Work], deliver: Deliver) -> None:
        """Make all these changes, and answer when the disk has them."""
        self._locks.trim()
        commit = Commit(self._directory, self._locks)
        begun = [_Begun(work, commit) for work in works]
        _write(self._directory.disk, begun)
        for change in begun:
            change.finish()
        try:
            commit.last()
        except OSError as error:
            deliver([change.in_doubt(error) for change in begun])
            return
        deliver([change.outcome for change in begun])


class _Begun:
    """A change under way: first it asks for drafts, then it is finished."""

    def __init__(self, work: Work, commit: Commit) -> None:
        self.outcome = withdrawn(work)
        self.drafts: Sequence[Draft] = ()
        self.errors: Sequence[OSError | None] = ()
        self._work = work
        self._plan = None if work.withdrawn else cast("Change", work.act)(commit)
        if self._plan is not None:
            self.drafts = self._step(next) or ()

    def finish(self) -> None:
        """Put the drafts where they belong, or withdraw."""
        if self._plan is None:
            return
        if self._work.withdrawn:
            self._plan.close()
            self.outcome = withdrawn(self._work)
            return
        self._step(lambda plan: plan.send(self.errors))

    def in_doubt(self, error: OSError) -> Outcome:
        """Return the outcome if the disk may not have what was done."""
        return self.outcome if self.outcome.error is not None else Outcome(self._work, None, error)

    def _step(self, step: Callable[[Plan[Any]], Sequence[Draft]]) -> Sequence[Draft] | None:
        assert self._plan is not None
        try:
            return step(self._plan)
        except StopIteration as ended:
            self.outcome = Outcome(self._work, ended.value)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, not to this thread
            self.outcome = Outcome(self._work, None, error)
        self._plan = None
        return None


def _write(disk: Disk, begun: Sequence[_Begun]) -> None:
    """Write everybody's drafts together."""
    errors = iter(disk.write_all([draft for change in begun for draft in change.drafts]))
    for change in begun:
        change.errors = [next(errors) for _ in change.drafts]


def withdrawn(work: Work) -> Outcome:
    """Return the outcome of what was not even begun."""
    return Outcome(work, None, NotDispatched("withdrawn before it began"))
