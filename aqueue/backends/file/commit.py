"""One group of changes: the locks it takes, the steps it takes under them, and what makes them last.

Names are changed first, and only then are the directories with the changed names put on disk, once for all
changes of the group. Nobody is answered before that.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from aqueue.backends.file.content import read_note
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import Draft, links_of, parent
from aqueue.backends.file.locks import Locks
from aqueue.backends.file.recovery import recover
from aqueue.backends.file.refusal import refused, refusing
from aqueue.backends.file.session import Session
from aqueue.backends.file.state import StateFile
from aqueue.backends.file.steps import Drop, Erase, Forget, Intent, Move, Place, Step, encoded

_KNOWN = 10_000


class Commit:
    """The changes of one thread, from their locks to the disk."""

    def __init__(self, directory: Directory, locks: Locks) -> None:
        self.directory = directory
        self.layout = directory.layout
        self.disk = directory.disk
        self.locks = locks
        self._touched: set[str] = set()
        self._made_in: set[str] = set()
        self._intents: list[str] = []

    # -- locks ------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, queues: Iterable[str]) -> Iterator[dict[str, Session]]:
        """Lock these queues, made where they are missing, always in the same order."""
        with ExitStack() as stack:
            sessions: dict[str, Session] = {}
            for name in sorted(set(queues)):
                with refusing():
                    self.ensure(self.layout.queue(name).directory)
                sessions[name] = stack.enter_context(self._session(name))
            yield sessions

    @contextmanager
    def found(self, queue: str) -> Iterator[Session | None]:
        """Lock a queue, if there is such a queue."""
        if not os.path.isdir(self.layout.queue(queue).directory):
            yield None
            return
        with self._session(queue) as session:
            yield session

    @contextmanager
    def _session(self, queue: str) -> Iterator[Session]:
        with refusing():
            session = Session(self, self.layout.queue(queue), self.locks)
        try:
            if session.was_left or queue not in self.directory.settled:
                session.stays_open = True  # until what was left is done
                with refusing():
                    recover(session)
                session.stays_open = False
                self.directory.settled.add(queue)
            yield session
        finally:
            session.end()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep out whoever else finishes what others left."""
        state = StateFile(self.layout.recovering, self.disk)
        try:
            self.lock(state)
            yield
        finally:
            state.close()

    def lock(self, state: StateFile) -> None:
        """Take another lock, for as long as the file is open."""
        state.lock(self.locks.is_hopeless)

    # -- steps ------------------------------------------------------------------------------------------

    def perform(self, sessions: Iterable[Session], steps: Sequence[Step]) -> None:
        """Take all these steps or none, whoever dies meanwhile.

        Raises `Refused` if nothing was done. After any other error the queues' next sessions take them.
        """
        sessions = tuple(sessions)
        intent = Intent([session.place.name for session in sessions], list(steps))
        draft = self.directory.draft("intent", encoded(intent))
        path = f"{self.layout.intents}/{self.directory.writer}.{self.directory.number():x}"
        with refusing():
            for session in sessions:
                session.mark()
            for step in steps:
                if isinstance(step, Place | Move):
                    self.ensure(parent(self.layout.absolute(step.home)))
            self.disk.write(draft)
            self.disk.sync_directories([self.directory.drafts])
        for session in sessions:
            session.stays_open = True
        self.disk.rename(draft.path, path)
        self.disk.sync_directories([self.layout.intents])
        for step in steps:
            self.take(step)
        self.finished(path)
        for session in sessions:
            session.stays_open = False

    def take(self, step: Step, *, again: bool = False) -> None:
        """Take one step; `again` where it may have been taken before."""
        match step:
            case Place():
                self._take_place(step, again=again)
            case Move():
                home = self.layout.absolute(step.home)
                with suppress(FileNotFoundError):
                    self.into(home, lambda: self.disk.rename(self.layout.absolute(step.draft), home))
            case Drop():
                with suppress(FileNotFoundError):
                    self.take_away(self.layout.absolute(step.path))
            case Forget():
                if links_of(self.layout.absolute(step.path)) == 1:
                    self.disk.unlink(self.layout.absolute(step.path))
            case Erase():
                note = read_note(self.layout.absolute(step.path))
                if note is not None and note.token == step.token:
                    self.take_away(self.layout.absolute(step.path))

    def _take_place(self, step: Place, *, again: bool) -> None:
        draft, home, ids = map(self.layout.absolute, (step.draft, step.home, step.ids))
        links = links_of(draft) if again else 1
        if links == 1:  # with two it is in its place, or was taken from there
            self.into(home, lambda: self.disk.link(draft, home))
        if links:
            self.into(ids, lambda: self.disk.rename(draft, ids))

    def place(self, draft: Draft, home: str, ids: str) -> Place:
        """Return the step that brings a draft to where it belongs."""
        return Place(*map(self.layout.relative, (draft.path, home, ids)))

    def place_alone(self, session: Session, step: Place) -> None:
        """Put a single draft in its place: whole once it has a name there, whoever gives it the other.

        Raises `Refused` if it could not be put there. After any other error the next session looks after it.
        """
        draft, home, ids = map(self.layout.absolute, (step.draft, step.home, step.ids))
        with refusing():
            session.do(draft)
            self.into(home, lambda: self.disk.link(draft, home))
        session.stays_open = True
        try:
            self.into(ids, lambda: self.disk.rename(draft, ids))
        except OSError as error:
            if self.disk.unlink(home):
                session.stays_open = False
                raise refused(error) from error
            self.discard(draft)  # it was handed out meanwhile, so it is stored
        session.stays_open = False

    def discard(self, path: str) -> None:
        """Remove a draft or an intent that isn't wanted any more; if that fails, it does no harm."""
        with suppress(OSError):
            self.disk.unlink(path)

    def take_away(self, path: str) -> None:
        """Remove a name; raises `FileNotFoundError` if it is gone. A stranger's directory is set aside."""
        try:
            if not self.disk.unlink(path):
                raise FileNotFoundError(path)
        except (IsADirectoryError, PermissionError):
            if not os.path.isdir(path):
                raise
            self.set_aside(path)
        self.touch(parent(path))

    def set_aside(self, directory: str) -> None:
        """Put a directory that holds what a stranger has put there where it is in nobody's way."""
        aside = f"{self.layout.strangers}/{self.directory.writer}.{self.directory.number():x}"
        self.into(aside, lambda: self.disk.rename(directory, aside))

    def move(self, old: str, new: str) -> None:
        """Give a file another name; raises `FileNotFoundError` if it isn't there."""
        self.into(new, lambda: self.disk.rename(old, new))
        self.touch(parent(old))

    def into(self, path: str, act: Callable[[], object]) -> None:
        """Do what gives a file this name, in a directory that may have to be made, or made again."""
        directory = parent(path)
        self.ensure(directory)
        try:
            act()
        except FileNotFoundError:
            if os.path.isdir(directory):
                raise
            self.directory.made.discard(directory)
            self.ensure(directory)
            act()
        self.touch(directory)

    def ensure(self, directory: str) -> None:
        """Make a directory, and those above it, unless it is known to be there."""
        made = self.directory.made
        if directory in made or directory == self.layout.root:
            return
        above = parent(directory)
        self.ensure(above)
        try:
            self.disk.make_directory(directory)
        except FileNotFoundError:
            made.discard(above)
            self.ensure(above)
            self.disk.make_directory(directory)
        if len(made) >= _KNOWN:  # others remove directories that are forgotten only here
            made.clear()
        made.add(directory)
        self.touch(above)
        self._made_in.add(above)

    # -- the disk ---------------------------------------------------------------------------------------

    def touch(self, directory: str) -> None:
        """Have the names of this directory on disk before anybody is answered."""
        self._touched.add(directory)

    def finished(self, intent: str) -> None:
        """Remove this intent once its steps are on disk."""
        self._intents.append(intent)

    def last_directories(self) -> None:
        """Put on disk what directories were made, and not what was moved into them: a pop may be undone."""
        made_in, self._made_in = self._made_in, set()
        self.disk.sync_directories(made_in)

    def last(self) -> None:
        """Put the changed names on disk, and let go of the intents that this makes needless."""
        touched, self._touched = self._touched, set()
        self.disk.sync_directories(touched)
        while self._intents:
            self.discard(self._intents.pop())
