"""Starting a server program, waiting until it answers, and ending exactly that process."""

import atexit
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_START_WITHIN = 20.0
_STOP_WITHIN = 10.0


class NotStarted(Exception):
    """The program ended or did not answer; the message holds the end of what it said."""


class ServerProcess:
    """One process of ours, in a directory of its own. `start` may be called again after `stop` or `kill`."""

    def __init__(self, command: Sequence[str], answers: Callable[[], bool], directory: Path) -> None:
        self._command = list(command)
        self._answers = answers
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = directory

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, within: float = _START_WITHIN) -> None:
        """Start it and return once it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.directory, stdout=log, stderr=log)
        deadline = time.monotonic() + within
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise NotStarted(f"{self._command[0]} did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end, and insist after a while."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_WITHIN)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it neither run nor answer, while its sockets stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def free_port(*, below: int = 65_536) -> int:
    """Return a loopback port that was free just now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < below:
            return port


def fresh_directory(name: str) -> Path:
    """Return a new temporary directory that goes with this process; short, since sockets live in it."""
    directory = Path(tempfile.mkdtemp(prefix=f"aq-{name}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def kept_until_exit(start: Callable[[], T], stop: Callable[[T], None]) -> T:
    """Start something that the rest of this process shares."""
    started = start()
    atexit.register(stop, started)
    return started
