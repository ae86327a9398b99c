"""Where everything is in the directory.

format               the version of all this
opening, recovering  locks: of who opens the directory, and of who finishes what the dead left
stamps               likewise, and when the last job failed
writers/W/           one process's drafts, and the lock `alive` that shows that it lives
intents/             what must be done whole, written down before it is done
strangers/           directories that somebody put among the jobs
queues/Q/state       the queue's lock, and its counters
         ids/        a second name of every job's file, by its id
         waiting/    ready/SEGMENT/, returned/, delayed/BUCKET/
         leased/     BUCKET/
         cleared/    what a `clear` is removing
         failed/     SEGMENT/, and failed-ids/ as ids/
         notes/
"""

from functools import lru_cache

from aqueue.backends.file.names import folded

VERSION = "1"


class QueuePlace:
    """The paths of one queue."""

    __slots__ = (
        *("name", "directory", "state", "ids", "waiting", "ready", "returned", "delayed", "leased"),
        *("cleared", "failed", "failed_ids", "notes"),
    )

    def __init__(self, queues: str, name: str) -> None:
        self.name = name
        self.directory = f"{queues}/{folded(name)}"
        self.state = f"{self.directory}/state"
        self.ids = f"{self.directory}/ids"
        self.waiting = f"{self.directory}/waiting"
        self.ready = f"{self.waiting}/ready"
        self.returned = f"{self.waiting}/returned"
        self.delayed = f"{self.waiting}/delayed"
        self.leased = f"{self.directory}/leased"
        self.cleared = f"{self.directory}/cleared"
        self.failed = f"{self.directory}/failed"
        self.failed_ids = f"{self.directory}/failed-ids"
        self.notes = f"{self.directory}/notes"

    def note(self, key: str) -> str:
        """Return the file of a note."""
        return f"{self.notes}/k{folded(key)}"


class Layout:
    """The paths of a whole store."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.format = f"{root}/format"
        self.opening = f"{root}/opening"
        self.recovering = f"{root}/recovering"
        self.stamps = f"{root}/stamps"
        self.writers = f"{root}/writers"
        self.intents = f"{root}/intents"
        self.strangers = f"{root}/strangers"
        self.queues = f"{root}/queues"
        self.queue = lru_cache(4096)(self._queue)

    def _queue(self, name: str) -> QueuePlace:
        return QueuePlace(self.queues, name)

    def relative(self, path: str) -> str:
        """Return a path as intents hold it, so that the directory can be moved."""
        return path[len(self.root) + 1 :]

    def absolute(self, path: str) -> str:
        """Return the path that an intent means."""
        return f"{self.root}/{path}"
