"""RabbitMQ: a private broker on free ports, shared by all processes of a test run, and brokers to break.

`AQUEUE_TEST_RABBITMQ_URL` names a broker for the contract suite to use instead of starting one.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Self
from uuid import uuid4

from servers.processes import NotStarted, ServerProcess, free_port, fresh_directory

_HOME = Path("/usr/lib/rabbitmq/bin")  # Debian's own scripts in /usr/sbin insist on its own user and places
_STARTS_WITHIN = 90.0
_HELLO = b"AMQP\x00\x00\x09\x01"


class RabbitMQServer:
    """One broker and what it needs of Erlang, in a directory of its own; what it stores stays over restarts.

    `settings` are lines of its configuration. Brokers that are to form a cluster share a `home` and an
    `epmd`.
    """

    def __init__(
        self,
        *settings: str,
        directory: Path | None = None,
        port: int | None = None,
        epmd: "PortMapper | None" = None,
        cookie: str = "aqueue-test",
    ) -> None:
        self.port = port or free_port()
        self.directory = directory or fresh_directory("rabbitmq")
        self.node = node_on(self.port)
        self._owns_epmd = epmd is None
        self._epmd = epmd or PortMapper(self.directory)
        self._write(settings, cookie)
        self.process = ServerProcess(
            ["env", *self._environment(), _program("rabbitmq-server")], self._answers, self.directory
        )

    def start(self) -> Self:
        """Start it and return it once it takes connections; what it stored before is there again."""
        if self._owns_epmd:
            self._epmd.start()
        self.process.start(within=_STARTS_WITHIN)
        return self

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()

    def stop(self) -> None:
        """End it for good."""
        self.process.kill()
        if self._owns_epmd:
            self._epmd.stop()

    def control(self, *command: str) -> str:
        """Run `rabbitmqctl` on it and return what it prints."""
        done = subprocess.run(
            ["env", *self._environment(), _program("rabbitmqctl"), "-q", "-n", self.node, *command],
            check=False, capture_output=True, text=True, timeout=_STARTS_WITHIN, cwd=self.directory,
        )  # fmt: skip
        assert done.returncode == 0, f"rabbitmqctl {' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def url(self, options: str = "", *, port: int | None = None) -> str:
        """Return its URL, by way of another port if one is given."""
        return f"amqp://127.0.0.1:{port or self.port}{options}"

    def _write(self, settings: tuple[str, ...], cookie: str) -> None:
        given = (
            f"listeners.tcp.1 = 127.0.0.1:{self.port}", "loopback_users = none", "log.file.level = error",
            "log.console = false", "disk_free_limit.absolute = 1MB", *settings,
        )  # fmt: skip
        (self.directory / "rabbitmq.conf").write_text("\n".join(given) + "\n")
        (self.directory / "enabled_plugins").write_text("[].\n")
        (self.directory / "environment").touch()
        secret = self.directory / ".erlang.cookie"
        if not secret.exists():
            secret.write_text(cookie)
            secret.chmod(0o400)

    def _environment(self) -> list[str]:
        place = self.directory
        return [
            f"HOME={place}",
            f"RABBITMQ_NODENAME={self.node}",
            f"RABBITMQ_CONF_ENV_FILE={place / 'environment'}",
            f"RABBITMQ_CONFIG_FILE={place / 'rabbitmq.conf'}",
            f"RABBITMQ_ENABLED_PLUGINS_FILE={place / 'enabled_plugins'}",
            f"RABBITMQ_MNESIA_BASE={place / 'data'}",
            f"RABBITMQ_LOG_BASE={place / 'log'}",
            f"RABBITMQ_DIST_PORT={self._distribution_port()}",
            f"ERL_EPMD_PORT={self._epmd.port}",
            "ERL_EPMD_ADDRESS=127.0.0.1",
            "ERL_FLAGS=-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            "RUNNING_UNDER_SYSTEMD=yes",  # the script then becomes the broker instead of watching it
        ]

    def _distribution_port(self) -> int:
        kept = self.directory / "distribution-port"
        if not kept.exists():
            kept.write_text(str(free_port()))
        return int(kept.read_text())

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(1)
                connection.sendall(_HELLO)
                return len(connection.recv(7)) == 7
        except OSError:
            return False


class RabbitMQCluster:
    """Three brokers that know each other; a quorum queue lives on all of them."""

    def __init__(self) -> None:
        self._epmd = PortMapper(fresh_directory("epmd"))
        ports = [free_port() for _ in range(3)]
        peers = [
            "cluster_formation.peer_discovery_backend = classic_config",
            *(
                f"cluster_formation.classic_config.nodes.{n} = {node_on(port)}"
                for n, port in enumerate(ports, 1)
            ),
        ]
        self.servers = [RabbitMQServer(*peers, port=port, epmd=self._epmd) for port in ports]

    def start(self) -> Self:
        """Start them and return once they are one."""
        self._epmd.start()
        for server in self.servers:
            server.start()
        deadline = time.monotonic() + _STARTS_WITHIN
        while len(self._members()) < len(self.servers):
            assert time.monotonic() < deadline, "the brokers did not form a cluster"
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """End all of them for good."""
        for server in self.servers:
            server.stop()
        self._epmd.stop()

    def url(self, options: str = "") -> str:
        """Return a URL that names each of them."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"amqp://{hosts}/{options}"

    def _members(self) -> set[str]:
        status = self.servers[0].control("eval", "rabbit_nodes:all_running().")
        return {node_on(server.port) for server in self.servers if node_on(server.port) in status}


class PortMapper:
    """The daemon by which Erlang's nodes find each other, a private one."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        command = ["epmd", "-port", str(self.port), "-address", "127.0.0.1"]
        self._process = ServerProcess(command, self._answers, directory)
        self._is_running = False

    def start(self) -> None:
        """Start it, unless it runs."""
        if not self._is_running:
            self._process.start()
            self._is_running = True

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._is_running = False

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def node_on(port: int) -> str:
    """Return the name of the node of the broker on a port."""
    return f"aq{port}@localhost"


@cache
def unreachable() -> str | None:
    """Say why no RabbitMQ can be tried here, or None."""
    if os.environ.get("AQUEUE_TEST_RABBITMQ_URL"):
        return None
    missing = [name for name in ("rabbitmq-server", "rabbitmqctl") if _found(name) is None]
    if missing or shutil.which("epmd") is None:
        return "rabbitmq-server is not installed: install it, or set AQUEUE_TEST_RABBITMQ_URL"
    return None


def fresh_url(queue_type: str) -> str:
    """Return an empty place on one broker: the given one, or the run's own."""
    url = os.environ.get("AQUEUE_TEST_RABBITMQ_URL") or _shared()
    return f"{url}{'&' if '?' in url else '?'}queue_type={queue_type}&prefix=test-{uuid4().hex[:12]}"


@cache
def _shared() -> str:
    """Return the broker of this test run, started by whichever of its processes asks first.

    Each process holds a shared lock for as long as it lives; the keeper of the broker ends it when it gets
    the lock for itself, so also when the run was killed.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    directory = Path(tempfile.gettempdir()) / f"aq-rabbitmq-{run[:16]}"
    directory.mkdir(exist_ok=True)
    lock = os.open(directory / "users", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_SH)
    begun = directory / "begun"
    try:
        begun.touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        command = ["setsid", "--fork", sys.executable, "-m", "servers.rabbitmq_keeper", str(directory)]
        subprocess.run(command, cwd=Path(__file__).parents[1], check=True)
    deadline = time.monotonic() + _STARTS_WITHIN
    while not (directory / "url").exists():
        if time.monotonic() > deadline or (directory / "trouble").exists():
            raise NotStarted(f"no RabbitMQ: see {directory}")
        time.sleep(0.05)
    return (directory / "url").read_text()


def _program(name: str) -> str:
    program = _found(name)
    assert program is not None
    return program


def _found(name: str) -> str | None:
    debian = _HOME / name
    return str(debian) if debian.exists() else shutil.which(name)
