"""SQS without AWS: ministack, and moto's server, both Python packages, each a private process.

`AQUEUE_TEST_SQS_URL` names a server for the suite to use in place of ministack: an `sqs://host:port` that
keeps regions apart, since every place is a region of its own.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen
from uuid import uuid4

import msgspec

from servers.processes import ServerProcess, free_port, fresh_directory, kept_until_exit

_MOTO = Path(__file__).with_name("moto_sqs.py")


class SQSServer:
    """One process that speaks as SQS does, with nothing on disk."""

    def __init__(self, program: Callable[[int], tuple[list[str], dict[str, str]]]) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        command, environment = program(self.port)
        set_first = [f"{name}={value}" for name, value in environment.items()]
        self.process = ServerProcess(["env", *set_first, *command], self._answers, fresh_directory("sqs"))

    def start(self) -> Self:
        """Start it, empty, and return it once it answers."""
        self.process.start()
        return self

    def stop(self) -> None:
        """End it; what it held is gone."""
        self.process.kill()

    def url(self, region: str = "us-east-1", *, port: int | None = None, more: str = "&create=true") -> str:
        """Return a URL of one of its regions, by way of another port if one is given."""
        return f"sqs://key:secret@{self.host}:{port or self.port}?region={region}{more}"

    def ask(self, operation: str, region: str = "us-east-1", **parameters: Any) -> Any:
        """Make one call past every client of ours."""
        request = Request(
            f"http://{self.host}:{self.port}/",
            data=msgspec.json.encode(parameters),
            headers={
                "X-Amz-Target": f"AmazonSQS.{operation}",
                "Content-Type": "application/x-amz-json-1.0",
                "Authorization": f"AWS4-HMAC-SHA256 Credential=key/20270101/{region}/sqs/aws4_request, "
                "SignedHeaders=host, Signature=none",
            },
        )
        with urlopen(request, timeout=10) as reply:
            return msgspec.json.decode(reply.read() or b"{}")

    def counts(self, queue: str = "default", region: str = "us-east-1") -> tuple[int, int, int]:
        """Return how many messages are ready, delayed and in flight."""
        url = self.ask("GetQueueUrl", region, QueueName=queue)["QueueUrl"]
        told = self.ask("GetQueueAttributes", region, QueueUrl=url, AttributeNames=["All"])["Attributes"]
        names = ("", "Delayed", "NotVisible")
        ready, delayed, in_flight = (int(told[f"ApproximateNumberOfMessages{name}"]) for name in names)
        return ready, delayed, in_flight

    def _answers(self) -> bool:
        try:
            self.ask("ListQueues")
        except HTTPError:
            return True
        except (URLError, OSError):
            return False
        return True


def ministack(port: int) -> tuple[list[str], dict[str, str]]:
    """Return what starts ministack."""
    here = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}  # else it binds every interface
    return [sys.executable, "-m", "ministack"], {**here, "SERVICES": "sqs", "LOG_LEVEL": "WARNING"}


def moto(port: int) -> tuple[list[str], dict[str, str]]:
    """Return what starts moto's server."""
    return [sys.executable, str(_MOTO), str(port)], {"MOTO_ALLOW_NONEXISTENT_REGION": "true"}


def ministack_missing() -> str | None:
    """Say why ministack can't be tried here, or None."""
    if os.environ.get("AQUEUE_TEST_SQS_URL") or find_spec("ministack"):
        return None
    return "ministack is not installed: pip install ministack, or set AQUEUE_TEST_SQS_URL"


def moto_missing() -> str | None:
    """Say why moto's server can't be tried here, or None."""
    if find_spec("moto") and find_spec("flask"):
        return None
    return "moto's server is not installed: pip install 'moto[server]'"


def fresh_ministack_url() -> str:
    """Return an empty place: a region of its own, on the given server or on ours."""
    if given := os.environ.get("AQUEUE_TEST_SQS_URL"):
        return f"{given.partition('?')[0]}?region={fresh_region()}&create=true"
    return shared_ministack().url(fresh_region())


def fresh_moto_url() -> str:
    """Return an empty place on moto's server."""
    return shared_moto().url(fresh_region())


def fresh_region() -> str:
    """Return the name of a region that nobody else uses."""
    return f"test-{uuid4().hex[:12]}"


@cache
def shared_ministack() -> SQSServer:
    """Return a server that the whole test run shares; give every use a region of its own."""
    return kept_until_exit(SQSServer(ministack).start, SQSServer.stop)


@cache
def shared_moto() -> SQSServer:
    """Return a moto server that the whole test run shares."""
    return kept_until_exit(SQSServer(moto).start, SQSServer.stop)
