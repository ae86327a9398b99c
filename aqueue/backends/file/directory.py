"""One process's hold on a store's directory: what its threads share."""

from collections.abc import Callable
from itertools import count
from secrets import token_hex

from aqueue.backends.file.content import job_bytes
from aqueue.backends.file.disk import Disk, Draft
from aqueue.backends.file.layout import Layout
from aqueue.backends.file.names import file_id, folded, micros
from aqueue.port import Message


class Directory:
    """Where the store is, how it is written, and what this process is called in it.

    Only single operations on these containers are relied upon, so the threads need no lock of their own.
    """

    def __init__(self, root: str, disk: Disk, *, lease: float, clock: Callable[[], float]) -> None:
        self.layout = Layout(root)
        self.disk = disk
        self.writer = token_hex(8)
        self.drafts = f"{self.layout.writers}/{self.writer}"
        self.lease = micros(lease)
        self.settled: set[str] = set()
        """Queues that were looked after since this process first met them."""
        self.made: set[str] = set()
        """Directories that were there when last seen."""
        self.moved: dict[str, str] = {}
        """Where hand-outs stand whose leases were renewed, by their tokens."""
        self.rounds: dict[str, tuple[float, list[str]]] = {}
        """By queue: when looking through its notes began, and those not looked at yet."""
        self._clock = clock
        self._numbers = count(1)

    def now(self) -> int:
        """Return the store's time in microseconds."""
        return micros(self._clock())

    def number(self) -> int:
        """Return a number that this process has not used yet."""
        return next(self._numbers)

    def token(self) -> str:
        """Return what no other hand-out of any job is called (FENCE-1)."""
        return f"{self.writer}{self.number() & 0xFFFFFFFF:08x}"

    def draft(self, kind: str, data: bytes, *, queue: str = "", id: str = "") -> Draft:
        """Return a file to write; its name says where a finder has to bring it."""
        return Draft(f"{self.drafts}/{self.number():x}.{kind}.{folded(queue)}.{file_id(id)}", data)

    def job_draft(self, message: Message) -> Draft:
        """Return the file of a job."""
        return self.draft("job", job_bytes(message.payload), queue=message.queue, id=message.id)
