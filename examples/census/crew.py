"""The worker processes: started, replaced when somebody kills one, and sent home at the end."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from .settings import Settings

_PATIENCE = 15.0


class WorkerBroken(Exception):
    """A worker ended by itself, which no killing explains: starting another would not help."""


class Crew:
    """`size` worker processes while the `with` block runs. What they log goes to `log`."""

    def __init__(self, settings: Settings, size: int, log: Path) -> None:
        self._settings = settings
        self._size = size
        self._log = log
        self._members: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self._log.write_text("")
        self._members = [self._start() for _ in range(self._size)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self._members:
            _send_home(member)
        for member in self._members:
            try:
                member.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self._members]

    def replace_killed(self) -> list[tuple[int, int]]:
        """Start a new worker for each that a signal ended; return (old pid, new pid) of each."""
        replaced = []
        for place, member in enumerate(self._members):
            status = member.poll()
            if status is None:
                continue
            if status >= 0:
                raise WorkerBroken(f"worker {member.pid} ended with status {status}; see {self._log}")
            _send_home(member)
            self._members[place] = self._start()
            replaced.append((member.pid, self._members[place].pid))
        return replaced

    def _start(self) -> "subprocess.Popen[str]":
        with self._log.open("a") as log:
            member = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the driver, which then sends its workers home
            )
        assert member.stdin is not None
        member.stdin.write(self._settings.dump() + "\n")
        member.stdin.flush()
        return member


def _send_home(member: "subprocess.Popen[str]") -> None:
    """Close the worker's standard input: it takes that as the end of the day."""
    assert member.stdin is not None
    member.stdin.close()
