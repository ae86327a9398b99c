"""Every change that is made to the file system, each of them one step; and what makes it last.

A process may be killed before, between and within any of these steps, which is why there are so few kinds
of them. `before` is called ahead of each: a subclass that ends the process there shows what that leaves.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

_SYNCERS = 8
_FEW = 4
"""So many files are written one after another; for more, several threads share the disk's own commits."""
_TOGETHER = 100
"""So many files at most are open at once."""


class Draft(NamedTuple):
    """A file that nobody looks at until it is put in its place."""

    path: str
    data: bytes


class Disk:
    """The file system, with `syncs` made to keep what it was given."""

    def __init__(self, *, syncs: bool) -> None:
        self.syncs = syncs
        self._pool: ThreadPoolExecutor | None = None

    def before(self, step: str, path: str) -> None:
        """Called before each step with its name and its file."""

    def write(self, draft: Draft) -> None:
        """Write a new file whole, on disk when this returns; leave nothing of it if that fails."""
        self._keep(draft, self._begin(draft))

    def write_all(self, drafts: Sequence[Draft]) -> list[OSError | None]:
        """Write new files, and say of each why it could not be written."""
        if not self.syncs or len(drafts) <= _FEW:
            return [_tried(self.write, draft) for draft in drafts]
        errors: list[OSError | None] = []
        for first in range(0, len(drafts), _TOGETHER):
            errors += self._write_together(drafts[first : first + _TOGETHER])
        return errors

    def _write_together(self, drafts: Sequence[Draft]) -> Iterator[OSError | None]:
        """Have all of them on their way to the disk before waiting for the first to be there."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_SYNCERS, thread_name_prefix="aqueue-file-sync")
        files: list[int] = []

        def begin(draft: Draft) -> None:
            files.append(self._begin(draft))
            _hurry(files[-1])

        begun = [_tried(begin, draft) for draft in drafts]
        whole = [draft for draft, error in zip(drafts, begun, strict=True) if error is None]
        kept = self._pool.map(partial(_tried, self._keep), whole, files)
        return (error if error is not None else next(kept) for error in begun)

    def rename(self, old: str, new: str) -> None:
        """Give a file its other name."""
        self.before("rename", old)
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        self.before("link", old)
        os.link(old, new)

    def unlink(self, path: str) -> bool:
        """Take a name away; False if there was none. Of a stranger's directory nothing is removed."""
        self.before("unlink", path)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: str) -> bool:
        """Make a directory; False if it is there."""
        self.before("mkdir", path)
        try:
            os.mkdir(path)
        except FileExistsError:
            return False
        return True

    def remove_directory(self, path: str) -> bool:
        """Remove a directory that is empty; False if it isn't, or isn't there."""
        try:
            self.before("rmdir", path)
            os.rmdir(path)
        except OSError:
            return False
        return True

    def store(self, file: int, data: bytes, offset: int, path: str) -> None:
        """Write a few bytes over those that an open file has at an offset."""
        self.before("store", path)
        os.pwrite(file, data, offset)

    def sync_directories(self, paths: Iterable[str]) -> None:
        """Have the names in these directories on disk; one that is gone has none."""
        if not self.syncs:
            return
        for path in sorted(paths):
            self.before("sync", path)
            with suppress(FileNotFoundError):
                sync(path)

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def _begin(self, draft: Draft) -> int:
        """Make a file and write it; return it open."""
        self.before("create", draft.path)
        file = os.open(draft.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(draft.data)
            while left:
                self.before("write", draft.path)
                left = left[os.write(file, left) :]
        except BaseException:
            os.close(file)
            _undo(draft)
            raise
        return file

    def _keep(self, draft: Draft, file: int) -> None:
        """Wait until a written file is on disk, and close it."""
        try:
            if self.syncs:
                self.before("sync", draft.path)
                os.fsync(file)
        except BaseException:
            _undo(draft)
            raise
        finally:
            os.close(file)


def _undo(draft: Draft) -> None:
    with suppress(OSError):
        os.unlink(draft.path)


def _tried(act: Callable[..., None], *arguments: object) -> OSError | None:
    try:
        act(*arguments)
    except OSError as error:
        return error
    return None


def _hurry(file: int) -> None:
    """Ask the system to begin writing; it is asked for no more than that, and may not know how."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def sync(path: str) -> None:
    """Have a file's bytes, or the names in a directory, on disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def names_in(path: str) -> list[str]:
    """Return the names in a directory, hidden ones left out; none if there is no such directory."""
    try:
        return [name for name in os.listdir(path) if name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return []


def links_of(path: str) -> int:
    """Return how many names a file has; 0 if there is no such file."""
    try:
        return os.lstat(path).st_nlink
    except FileNotFoundError:
        return 0


def unless_gone(act: Callable[[], object]) -> bool:
    """Do something to a file; False if there is no such file."""
    try:
        act()
    except FileNotFoundError:
        return False
    return True


def parent(path: str) -> str:
    """Return the directory that a file is in."""
    return path.rpartition("/")[0]
