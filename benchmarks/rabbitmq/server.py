"""A RabbitMQ of the benchmark's own: free loopback ports, a directory that goes with it."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DEBIAN = Path("/usr/lib/rabbitmq/bin")
_STARTS_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    """Where it listens, and how to speak to its node."""

    port: int
    environment: dict[str, str]

    @property
    def version(self) -> str:
        """Its version."""
        return self.control("version").strip()

    def empty(self) -> None:
        """Remove every queue there is."""
        self.control("delete_vhost", "/")
        self.control("add_vhost", "/")
        self.control("set_permissions", "guest", ".*", ".*", ".*")

    def control(self, *command: str) -> str:
        """Run `rabbitmqctl` on it."""
        node = self.environment["RABBITMQ_NODENAME"]
        done = subprocess.run(
            [_program("rabbitmqctl"), "-q", "-n", node, *command],
            env=self.environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        return done.stdout


@contextlib.contextmanager
def rabbitmq_server() -> Iterator[RabbitMQ]:
    """Start a broker and end it."""
    port, epmd_port = _free_port(), _free_port()
    with tempfile.TemporaryDirectory(prefix="aqueue-bench-") as place:
        server = RabbitMQ(port, _environment(Path(place), port, epmd_port))
        epmd = subprocess.Popen(["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"])
        broker = subprocess.Popen(
            [_program("rabbitmq-server")], env=server.environment, stdout=subprocess.DEVNULL, cwd=place
        )
        try:
            _wait_for(port, broker)
            yield server
        finally:
            for process in (broker, epmd):
                process.terminate()
                process.wait()


def _environment(place: Path, port: int, epmd_port: int) -> dict[str, str]:
    settings = (f"listeners.tcp.1 = 127.0.0.1:{port}", "log.file.level = error", "log.console = false")
    (place / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
    (place / "plugins").write_text("[].\n")
    (place / "environment").touch()
    return {
        **os.environ,
        "HOME": str(place),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_CONF_ENV_FILE": str(place / "environment"),
        "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_DIST_PORT": str(_free_port()),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_FLAGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
        "RUNNING_UNDER_SYSTEMD": "yes",
    }


def _wait_for(port: int, broker: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and broker.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            if connection.recv(7):
                return
        time.sleep(0.1)
    raise RuntimeError(f"rabbitmq-server did not answer on port {port}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _program(name: str) -> str:
    debian = _DEBIAN / name
    found = str(debian) if debian.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed")
    return found
