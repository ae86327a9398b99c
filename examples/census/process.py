"""The worker's process: started, replaced when somebody kills it, and sent home at the end."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.census.settings import Settings

_PATIENCE = 15.0


class WorkerBroken(Exception):
    """The worker ended by itself, which no killing explains: starting another would not help."""


class WorkerProcess:
    """A worker in a process of its own while the `with` block runs. What it logs goes to `log`."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings = settings
        self._log = log

    def __enter__(self) -> Self:
        self._log.write_text("")
        self._process = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _send_home(self._process)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def replace_if_killed(self) -> bool:
        """Start another worker if a signal ended this one, and say whether it did."""
        status = self._process.poll()
        if status is None:
            return False
        if status >= 0:
            raise WorkerBroken(f"the worker ended with status {status}; {self._log} says why")
        _send_home(self._process)
        self._process = self._start()
        return True

    def _start(self) -> "subprocess.Popen[str]":
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "examples.census.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the driver, which then sends its worker home
            )
        assert process.stdin is not None
        process.stdin.write(self._settings.dump() + "\n")
        process.stdin.flush()
        return process


def _send_home(process: "subprocess.Popen[str]") -> None:
    """Close the worker's standard input: it takes that as the end of the day."""
    assert process.stdin is not None
    process.stdin.close()
