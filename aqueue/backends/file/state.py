"""A queue's lock, and the counters that are read without it.

The lock is `flock`, so it ends with its process. The counters stand in the locked file itself and are only
ever compared, never relied on: `busy` is odd while somebody changes the queue, and stays so if that process
dies; `arrivals` grows when something was put into the queue; `seq` is the last place that was given out.
Behind them stands `doing`, the file that was being moved, for whoever cleans up after the dead.
"""

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from secrets import SystemRandom
from typing import NamedTuple

from aqueue.backends.file.disk import Disk
from aqueue.port import NotDispatched

PATIENCE = 5.0
"""How many seconds a call waits for a lock that another process keeps."""

_COUNTERS = struct.Struct("<QQQ")
_LONGEST_PATH = 512
_uniform = SystemRandom().uniform


class Counters(NamedTuple):
    """What a queue's file tells everybody."""

    busy: int = 1
    arrivals: int = 0
    seq: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether nobody is changing the queue."""
        return self.busy % 2 == 0


class StateFile:
    """One open `state` file. Each thread has its own, so that they lock each other out as processes do."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def close(self) -> None:
        """Let go of the file, and of its lock."""
        os.close(self._file)

    def lock(self, is_hopeless: Callable[[], bool]) -> None:
        """Take the lock; raises `NotDispatched` where that takes too long."""
        until = time.monotonic() + PATIENCE
        for pause in _pauses():
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until or is_hopeless():
                    raise NotDispatched(
                        f"another process has kept {self._path} locked for too long"
                    ) from None
                time.sleep(pause)
            else:
                return

    def try_lock(self) -> bool:
        """Take the lock if nobody has it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Give the lock to the next."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def counters(self) -> Counters:
        """Read the counters; those of a new file, or of one that lost its bytes, are unsettled."""
        data = os.pread(self._file, _COUNTERS.size, 0)
        return Counters(*_COUNTERS.unpack(data)) if len(data) == _COUNTERS.size else Counters()

    def store(self, counters: Counters) -> None:
        """Write the counters; who has the lock may."""
        self._disk.store(self._file, _COUNTERS.pack(*counters), 0, self._path)

    def doing(self) -> str:
        """Return the file that was being moved last."""
        text = os.pread(self._file, _LONGEST_PATH, _COUNTERS.size)
        return text.partition(b"\n")[0].decode(errors="replace")

    def store_doing(self, path: str) -> None:
        """Write down which file is about to be moved."""
        self._disk.store(self._file, path.encode() + b"\n", _COUNTERS.size, self._path)


def _pauses() -> Iterator[float]:
    """Yield growing, jittered pauses in seconds, none so long that a stop would notice."""
    pause = 0.0001
    while True:
        yield pause * _uniform(0.5, 1.0)
        pause = min(pause * 1.4, 0.005)
