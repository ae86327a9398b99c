"""A Redis of the benchmark's own: a free loopback port, nothing on disk, ended with the benchmark."""

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RedisServer:
    """Where it listens."""

    port: int

    def run(self, command: str) -> str:
        """Send one plain command and return what comes first of its reply."""
        with socket.create_connection((HOST, self.port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(65_536).decode()

    @property
    def version(self) -> str:
        """Its version."""
        return next(line for line in self.run("INFO server").split() if "redis_version:" in line)[14:]


@contextlib.contextmanager
def redis_server(program: str = "redis-server") -> Iterator[RedisServer]:
    """Start a server and end it."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        server = RedisServer(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as directory:
        command = [program, "--port", str(server.port), "--bind", HOST, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([*command, "--dir", directory], stdout=subprocess.DEVNULL)
        try:
            _wait_for(server, process)
            yield server
        finally:
            process.terminate()
            process.wait()


def _wait_for(server: RedisServer, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            if server.run("PING").startswith("+PONG"):
                return
        time.sleep(0.05)
    raise RuntimeError(f"redis-server did not answer on port {server.port}")
