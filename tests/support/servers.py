"""Programs of the tests' own, each in a process: a uvicorn with an application, an `aqueue worker`."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from aqueue.testing import eventually

ROOT = Path(__file__).parents[2]
_PATIENCE = 20.0


class Program:
    """A running `python -m …`; what it prints is kept in a file and shown when a wait for it is in vain."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def printed(self) -> str:
        """What it printed so far, on stdout and stderr."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def has_printed(self, pattern: str) -> "re.Match[str]":
        """Wait for a line that matches the pattern."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            found.extend(re.finditer(pattern, self.printed))
            assert found or self.process.poll() is None, f"it ended:\n{self.printed}"
            assert found, self.printed
            return True

        await eventually(look, _PATIENCE)
        return found[0]

    async def address(self) -> str:
        """Wait until it serves, and return where."""
        await self.has_printed("Application startup complete")
        return (await self.has_printed(r"running on (http://[\d.]+:\d+)"))[1]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and to nobody else."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end and return its status; negative for the signal that ended it."""

        def look() -> bool:
            assert self.process.poll() is not None, f"it still runs:\n{self.printed}"
            return True

        await eventually(look, _PATIENCE)
        return self.process.returncode


@contextmanager
def program(*args: str, env: Mapping[str, str], log: Path) -> Iterator[Program]:
    """Run `python -m …args` in the log's folder while the block lasts, then end it whatever it does."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *args],
            cwd=log.parent,
            env={
                **os.environ,
                "PYTHONPATH": f"{log.parent}:{ROOT}",
                "PYTHONDONTWRITEBYTECODE": "1",
                **env,
            },
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Program(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a session of its own: it and what it started
        process.wait()


def serving(app: str, *options: str, env: Mapping[str, str], log: Path) -> AbstractContextManager[Program]:
    """Run uvicorn with this application on a free port, while the block lasts."""
    return program("uvicorn", app, "--port", "0", "--no-access-log", *options, env=env, log=log)
