"""Opening a directory: made if missing, checked, and looked after if somebody died in it."""

import os
from contextlib import suppress

from aqueue.backends.file.commit import Commit
from aqueue.backends.file.content import read_file
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import Draft, names_in, parent
from aqueue.backends.file.layout import VERSION
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.recovery import finish_draft, queue_of_draft
from aqueue.backends.file.state import StateFile
from aqueue.backends.file.steps import decoded
from aqueue.errors import InvalidQueueArgument
from aqueue.port import NotDispatched, Refused


def open_directory(directory: Directory, locks: Locks) -> StateFile:
    """Make this process known in the directory; return the lock that shows that it lives.

    Raises `NotDispatched` if the directory can't be used, and `Refused` if a newer aqueue wrote it.
    """
    root = directory.layout.root
    if not os.path.isdir(parent(root) or "/"):
        raise InvalidQueueArgument(f"there is no directory {parent(root)} to make {root} in")
    try:
        return _open(directory, locks)
    except OSError as error:
        raise NotDispatched(f"can't use {root} for jobs: {error.strerror or type(error).__name__}") from error


def _open(directory: Directory, locks: Locks) -> StateFile:
    layout, commit = directory.layout, Commit(directory, locks)
    if directory.disk.make_directory(layout.root):
        commit.touch(parent(layout.root) or "/")
    opening = StateFile(layout.opening, directory.disk)
    try:
        commit.lock(opening)
        _check_format(commit)
        for path in (layout.queues, layout.intents, directory.drafts):
            commit.ensure(path)
        alive = _come_alive(directory)
        _bury_the_dead(commit)
        commit.last()
    finally:
        opening.close()
    return alive


def close_directory(directory: Directory, alive: StateFile) -> None:
    """Leave nothing behind."""
    for name in names_in(directory.drafts):
        with suppress(OSError):
            directory.disk.unlink(f"{directory.drafts}/{name}")
    directory.disk.remove_directory(directory.drafts)
    alive.close()


def _check_format(commit: Commit) -> None:
    path = commit.layout.format
    try:
        version = read_file(path).decode(errors="replace").strip()
    except FileNotFoundError:
        draft = Draft(f"{path}.new", f"{VERSION}\n".encode())
        commit.disk.unlink(draft.path)
        commit.disk.write(draft)
        commit.disk.rename(draft.path, path)
        commit.touch(commit.layout.root)
        return
    if version != VERSION:
        raise Refused(
            f"{commit.layout.root} has format {version!r}, this aqueue knows {VERSION}: upgrade aqueue-jobs"
        )


def _come_alive(directory: Directory) -> StateFile:
    """Take the lock that ends with this process, and see whether files can have two names here."""
    path = f"{directory.drafts}/alive"
    alive = StateFile(path, directory.disk)
    try:
        alive.lock(lambda: False)
        directory.disk.link(path, f"{path}.link")
        directory.disk.unlink(f"{path}.link")
    except BaseException:
        alive.close()
        raise
    return alive


def _bury_the_dead(commit: Commit) -> None:
    """Finish what processes that are gone had begun, and remove what they had only drafted.

    A writer that lives has its lock, so none of its drafts is touched.
    """
    dead = [writer for writer in names_in(commit.layout.writers) if _is_dead(commit, writer)]
    for name in names_in(commit.layout.intents):
        with suppress(FileNotFoundError):
            intent = decoded(read_file(f"{commit.layout.intents}/{name}"))
            if intent is not None:
                with commit.locked(intent.queues):
                    """Whoever locks a queue for the first time finishes what is written down for it."""
    commit.last()
    for writer in dead:
        _bury(commit, f"{commit.layout.writers}/{writer}")


def _is_dead(commit: Commit, writer: str) -> bool:
    if writer == commit.directory.writer:
        return False
    try:
        alive = StateFile(f"{commit.layout.writers}/{writer}/alive", commit.disk)
    except FileNotFoundError:  # it is just leaving
        return False
    try:
        return alive.try_lock()
    finally:
        alive.close()


def _bury(commit: Commit, drafts: str) -> None:
    for name in names_in(drafts):
        path = f"{drafts}/{name}"
        queue = queue_of_draft(name)
        if queue is not None and os.path.isdir(commit.layout.queue(queue).directory):
            with commit.locked([queue]):
                finish_draft(commit, path)
        commit.disk.unlink(path)
    commit.disk.remove_directory(drafts)
