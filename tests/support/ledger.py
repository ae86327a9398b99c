"""A file that many processes append to: what was started and done, when and by whom, whatever was killed."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One line: an event of one job in one process. `at` is the machine's clock, in seconds."""

    event: str
    job: str
    pid: int
    attempt: int
    at: float


class Ledger:
    """Each line is one write at the end of the file, on disk before `write` returns if `durable`."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable

    def write(self, event: str, job: str = "-", attempt: int = 0) -> None:
        """Append an entry; a process that is killed afterwards has written it all the same."""
        line = f"{event} {job} {os.getpid()} {attempt} {time.time()!r}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
            if self._durable:
                os.fsync(file)
        finally:
            os.close(file)

    def entries(self, *events: str) -> list[Entry]:
        """Return what was written so far, of these events or of all, in order."""
        return [entry for entry in self._all() if not events or entry.event in events]

    def _all(self) -> Iterator[Entry]:
        if not self._path.exists():
            return
        for line in self._path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                event, job, pid, attempt, at = line.split()
                yield Entry(event, job, int(pid), int(attempt), float(at))
