"""A failed store that is away: the job stays leased, its worker stays calm, and one record comes of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from servers import postgres, redis
from servers.proxy import Proxy
from servers.reach import check_reachable
from support.stores import Wrapper
from support.working import counts, running

from aqueue import Handlers, Queue, Worker, job
from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.connection import connect, open_backend
from aqueue.port import StoreOptions
from aqueue.queue import QueueOptions
from aqueue.testing import eventually

pytestmark = pytest.mark.rule("FAIL-1")

LEASE = 20.0
_CALM = 60


@job(name="doomed", max_attempts=1)
class Doomed:
    text: str = ""


class Failing:
    """A handler that fails, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.ran = 0
        self.handlers = Handlers()
        self.handlers.on(Doomed, self.handle)

    async def handle(self, doomed: Doomed) -> None:
        self.ran += 1
        raise ValueError("no")


class Stores:
    """A queue whose jobs are in one store and its failed jobs in another, both of which can be broken."""

    def __init__(self, directory: Path) -> None:
        home = open_backend(f"sqlite:///{directory / 'jobs.db'}", StoreOptions(lease=LEASE, clock=_now))
        self.home = Wrapper(home)  # type: ignore[arg-type]  # it has everything that SQLite has
        self.failed = Wrapper(MemoryBackend(Shelf(), lease=LEASE, clock=_now))
        self.queue = Queue(self.home, QueueOptions(lease=LEASE, call_timeout=0.5), failed=self.failed)


def _now() -> float:
    return 1_800_000_000.0


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(tmp_path)
    async with stores.queue:
        yield stores
        stores.home.recover()
        stores.failed.recover()


async def failed_once(queue: Queue, handler: Failing) -> None:
    """Hold the queue to it that its one job failed, was kept once, and is gone from the queue."""

    async def settled() -> None:
        assert [one.error for one in await queue.failed.list()] == ["no"]
        assert await counts(queue) == (0, 0, 0, 0)

    await eventually(settled, 30)
    assert handler.ran == 1, "the job ran again, though its lease was never over"


async def test_a_job_stays_leased_until_its_record_is_kept(stores: Stores) -> None:
    handler = Failing()
    stores.failed.break_down("keep")
    worker = Worker(stores.queue, handler.handlers)
    await stores.queue.push(Doomed())

    async with running(worker):
        await eventually(lambda: stores.failed.calls["keep"] >= 4, 30)
        assert (await stores.queue.stats()).leased == 1
        assert await stores.queue.failed.count() == 0
        assert not worker.health().ok
        stores.failed.recover()

        await failed_once(stores.queue, handler)
        await eventually(lambda: worker.health().ok)
    assert stores.failed.calls["keep"] < _CALM, "the worker burnt while its failed store was away"


@pytest.mark.parametrize("trouble", ["lost reply", "silence"])
async def test_a_record_that_may_have_been_kept_is_kept_once(stores: Stores, trouble: str) -> None:
    handler = Failing()
    if trouble == "silence":
        stores.failed.hang("keep")
    else:
        stores.failed.lose_reply("keep")
    await stores.queue.push(Doomed())

    async with running(Worker(stores.queue, handler.handlers)):
        await eventually(lambda: stores.failed.calls["keep"] >= 2, 30)
        stores.failed.recover()

        await failed_once(stores.queue, handler)


async def test_with_both_stores_away_nothing_is_lost(stores: Stores) -> None:
    handler = Failing()
    stores.failed.break_down("keep")
    stores.home.break_down("ack", "extend", "pop", "wait")
    queue = stores.queue
    stores.home.recover()
    await queue.push(Doomed())

    async with running(Worker(queue, handler.handlers)):
        stores.failed.break_down("keep")
        await eventually(lambda: stores.failed.calls["keep"] >= 2, 30)
        stores.home.break_down("ack", "extend", "pop", "wait")
        stores.failed.recover()
        await eventually(lambda: stores.home.calls["ack"] >= 2, 30)
        assert await queue.failed.count() == 1
        assert (await queue.stats()).leased == 1
        stores.home.recover()

        await failed_once(queue, handler)


async def test_a_failed_store_behind_a_black_hole_is_waited_out() -> None:
    """Redis keeps the jobs, PostgreSQL the failed ones: the same way as with any two stores."""
    check_reachable("redis", redis.redis_missing())
    check_reachable("postgres", postgres.unreachable())
    handler = Failing()
    async with Proxy(urlsplit(postgres.url()).port or 5432) as proxy:
        failed = _through(postgres.fresh_url(), proxy.port)
        async with connect(redis.fresh_redis_url(), failed=failed, call_timeout=1.0) as queue:
            await queue.migrate()
            await queue.push(Doomed())
            proxy.swallow()

            async with running(Worker(queue, handler.handlers)):
                await eventually(lambda: handler.ran == 1)
                assert (await queue.stats()).leased == 1
                proxy.cut()

                await failed_once(queue, handler)


def _through(url: str, port: int) -> str:
    parts = urlsplit(url)
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()
