"""What the driver and its worker must agree on."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from aqueue import Queue, connect
from examples.census.ledger import Ledger

_KEEP_NO_FAILED = ("sqs", "amqp", "amqps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The queue's URL, the folder that keeps the results, and how the worker works.

    `lease` is in seconds, and short: that long after a worker was killed, its files go to the next.
    """

    url: str
    state: str
    lease: float = 5.0
    concurrency: int = 50

    @property
    def failed_url(self) -> str | None:
        """Where failed jobs go when the queue's own store can't keep them."""
        scheme = self.url.partition("://")[0]
        return f"sqlite:///{quote(self.state)}/failed.db" if scheme in _KEEP_NO_FAILED else None

    def connect(self) -> Queue:
        return connect(self.url, lease=self.lease, failed=self.failed_url)

    def ledger(self) -> Ledger:
        return Ledger(Path(self.state) / "results.db")

    def dump(self) -> str:
        """Return one line of text that `load` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, line: str) -> Self:
        return cls(**json.loads(line))
