"""The stores under test: what each is called, and how to get a place in it that nobody else uses."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from servers import mysql, pgbouncer, postgres, rabbitmq, redis, sqs

from aqueue.testing.clock import ManualClock
from aqueue.testing.contract import Harness


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnderTest:
    """One row of the table.

    `fresh_url` makes a URL from an empty directory; `unreachable` says why the store can't be tried here, or
    None. A store with a clock of its own is given no other, so its checks wait out short leases, of `lease`
    seconds where a second is too short for it.
    """

    name: str
    fresh_url: Callable[[Path], str]
    takes_clock: bool = False
    lease: float | None = None
    unreachable: Callable[[], str | None] = lambda: None

    def harness(self, directory: Path) -> Harness:
        """Return a harness over an empty place of its own."""
        clock = ManualClock(ticking=True) if self.takes_clock else None
        return Harness(self.fresh_url(directory), lease=self.lease, clock=clock)


STORES = (
    StoreUnderTest(name="file", fresh_url=lambda place: f"file://{place}/jobs", takes_clock=True),
    StoreUnderTest(name="memory", fresh_url=lambda _: f"memory://{uuid4().hex}", takes_clock=True),
    StoreUnderTest(name="mysql", fresh_url=lambda _: mysql.fresh_url(), unreachable=mysql.unreachable),
    StoreUnderTest(
        name="postgres", fresh_url=lambda _: postgres.fresh_url(), unreachable=postgres.unreachable
    ),
    StoreUnderTest(
        name="pgbouncer", fresh_url=lambda _: pgbouncer.fresh_url(), unreachable=pgbouncer.unreachable
    ),
    StoreUnderTest(
        name="rabbitmq", fresh_url=lambda _: rabbitmq.fresh_url("quorum"), unreachable=rabbitmq.unreachable
    ),
    StoreUnderTest(
        name="rabbitmq-classic",
        fresh_url=lambda _: rabbitmq.fresh_url("classic"),
        unreachable=rabbitmq.unreachable,
    ),
    StoreUnderTest(
        name="redis", fresh_url=lambda _: redis.fresh_redis_url(), unreachable=redis.redis_missing
    ),
    StoreUnderTest(
        name="redis-cluster", fresh_url=lambda _: redis.fresh_cluster_url(), unreachable=redis.cluster_missing
    ),
    StoreUnderTest(
        name="redis-sentinel",
        fresh_url=lambda _: redis.fresh_sentinel_url(),
        unreachable=redis.sentinel_missing,
    ),
    StoreUnderTest(
        name="valkey", fresh_url=lambda _: redis.fresh_valkey_url(), unreachable=redis.valkey_missing
    ),
    StoreUnderTest(name="sqlite", fresh_url=lambda place: f"sqlite:///{place}/jobs.db", takes_clock=True),
    StoreUnderTest(
        name="sqs",
        fresh_url=lambda _: sqs.fresh_ministack_url(),
        lease=2.0,
        unreachable=sqs.ministack_missing,
    ),
    StoreUnderTest(
        name="sqs-moto", fresh_url=lambda _: sqs.fresh_moto_url(), lease=3.0, unreachable=sqs.moto_missing
    ),
)
