"""Three brokers in a cluster, and one of them goes while jobs flow."""

from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from servers.rabbitmq import RabbitMQCluster, unreachable
from servers.reach import check_reachable
from support.working import running

from aqueue import (
    ConnectionFailed,
    OutcomeUnknown,
    PublishNotConfirmed,
    Queue,
    StoreError,
    Worker,
    connect,
    job,
)
from aqueue.testing import eventually

done: list[int] = []


@job(name="rabbitmq.cluster")
class Count:
    number: int

    async def handle(self) -> None:
        done.append(self.number)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitMQCluster]:
    check_reachable("rabbitmq", unreachable())
    cluster = RabbitMQCluster().start()
    yield cluster
    cluster.stop()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def push_in_the_end(queue: Queue, number: int) -> None:
    """Push until it is confirmed; what was not may be there twice then."""

    async def confirmed() -> bool:
        try:
            await queue.push(Count(number))
        except (ConnectionFailed, OutcomeUnknown, PublishNotConfirmed):
            return False
        return True

    await eventually(confirmed, 60)


@pytest.mark.rule("PUSH-3", "WORK-8")
@pytest.mark.parametrize("gone", [0, 1, 2])
async def test_a_node_may_stop_while_jobs_flow(cluster: RabbitMQCluster, gone: int) -> None:
    """Quorum queues go on with two nodes of three, and whoever was connected to the third finds another."""
    url = cluster.url(f"?prefix=t{uuid4().hex[:8]}&confirm_timeout=2")
    async with connect(url, call_timeout=5) as queue, connect(url, call_timeout=5) as pusher:
        await push_in_the_end(pusher, 0)
        async with running(Worker(queue, [Count], concurrency=4)):
            for number in range(1, 90):
                if number == 30:
                    cluster.servers[gone].kill()
                if number == 60:
                    cluster.servers[gone].start()
                await push_in_the_end(pusher, number)
            await eventually(lambda: set(done) == set(range(90)), 60)


@pytest.mark.rule("DELAY-1")
async def test_a_delayed_job_outlives_a_node(cluster: RabbitMQCluster) -> None:
    url = cluster.url(f"?prefix=t{uuid4().hex[:8]}")
    async with connect(url) as queue:
        id = await queue.push(Count(1), delay=5)
        cluster.servers[0].kill()
        try:
            found: list[str] = []

            async def comes() -> bool:
                with suppress(StoreError):
                    found.extend(delivery.id for delivery in await queue.pop_many(1, timeout=1))
                return found == [id]

            await eventually(comes, 60)
        finally:
            cluster.servers[0].start()
