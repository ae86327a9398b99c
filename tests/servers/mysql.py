"""A private MariaDB for the tests: on a free port of this machine, ended with them, by its own process id.

`AQUEUE_TEST_MYSQL_URL` names a server to use instead, MySQL or MariaDB, with a database in it that may be
filled. Otherwise the installed programs are used (on Debian: apt install mariadb-server-core). A server
should not run as root, so root starts it as another user.
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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

_PATIENCE = 30.0
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "max-connections": "200",
    "innodb-buffer-pool-size": "128M",
    "innodb-log-file-size": "96M",
    "skip-log-bin": "",
    "skip-name-resolve": "",
    "performance-schema": "OFF",
    "log-warnings": "1",
}
_FAST = {"innodb-flush-log-at-trx-commit": "0", "innodb-flush-method": "nosync"}
_USER, _PASSWORD, _DATABASE = "aqueue", "s3cret", "jobs"


class MariaDBServer:
    """One server and its data. `durable` keeps it honest about the disk; else it is only fast."""

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self.port = _free_port()
        self._settings = {**_SETTINGS, **({} if durable else _FAST), **(settings or {})}
        self._home = Path(tempfile.mkdtemp(prefix="aqueue-mariadb-"))
        self._process: subprocess.Popen[bytes] | None = None
        _give_away(self._home)
        self._install()

    @property
    def url(self) -> str:
        """The URL of its one database."""
        return f"mysql://{_USER}:{_PASSWORD}@127.0.0.1:{self.port}/{_DATABASE}"

    def start(self) -> "MariaDBServer":
        """Start it and wait until it takes connections."""
        options = [
            f"--{name}={value}" if value else f"--{name}"
            for name, value in {**self._settings, "port": str(self.port)}.items()
        ]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("mariadbd"), *self._places(), f"--init-file={self._home / 'init.sql'}", *options],
                stdout=log,
                stderr=log,
                **_as_servant(),
            )
        atexit.register(self.destroy)
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"MariaDB did not start:\n{(self._home / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """End every connection and the server, in order."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def destroy(self) -> None:
        """End it, if it runs, and remove its data."""
        atexit.unregister(self.destroy)
        self._end(signal.SIGKILL)
        shutil.rmtree(self._home, ignore_errors=True)

    def _install(self) -> None:
        subprocess.run(
            [_program("mariadb-install-db"), *self._places(), "--auth-root-authentication-method=normal",
             "--skip-test-db", "--skip-name-resolve"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **_as_servant(),
        )  # fmt: skip
        init = self._home / "init.sql"
        init.write_text(
            f"CREATE DATABASE IF NOT EXISTS {_DATABASE} CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS {_USER}@'%' IDENTIFIED BY '{_PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {_USER}@'%' WITH GRANT OPTION;\n"
        )
        init.chmod(0o644)

    def _places(self) -> list[str]:
        return [
            "--no-defaults",
            f"--datadir={self._home / 'data'}",
            f"--socket={self._home / 'sock'}",
            f"--pid-file={self._home / 'pid'}",
            f"--tmpdir={self._home}",
        ]

    def _answers(self) -> bool:
        """Whether it greets: a server that is still starting takes no connection on its port."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(1)
                return len(connection.recv(5)) == 5
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(_PATIENCE)


@cache
def unreachable() -> str | None:
    """Return why no MySQL or MariaDB can be tried here, or None."""
    if given := os.environ.get("AQUEUE_TEST_MYSQL_URL"):
        parts = urlsplit(given)
        try:
            socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 3306), 3).close()
        except OSError as error:
            return f"AQUEUE_TEST_MYSQL_URL: {error}"
        return None
    if _found("mariadbd") is None or _found("mariadb-install-db") is None:
        return "no MariaDB programs: install mariadb-server-core"
    return None


@cache
def url() -> str:
    """Return the URL of the server that this run's tests share."""
    return os.environ.get("AQUEUE_TEST_MYSQL_URL") or MariaDBServer().start().url


def fresh_url(base: str | None = None) -> str:
    """Return the URL of tables that nobody has made yet."""
    base = base or url()
    return f"{base}{'&' if '?' in base else '?'}table=t{uuid4().hex[:12]}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def _as_servant() -> dict[str, Any]:
    """Return how to start a process that must not be root's."""
    servant = _servant()
    if servant is None:
        return {"cwd": "/"}
    home = {"cwd": "/", "env": {**os.environ, "HOME": "/"}}
    return {"user": servant.pw_uid, "group": servant.pw_gid, "extra_groups": [], **home}


def _give_away(directory: Path) -> None:
    servant = _servant()
    if servant is not None:
        os.chown(directory, servant.pw_uid, servant.pw_gid)


def _servant() -> pwd.struct_passwd | None:
    if os.getuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("mysql") or known["nobody"]


def _program(name: str) -> str:
    program = _found(name)
    assert program is not None
    return program


def _found(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin")
