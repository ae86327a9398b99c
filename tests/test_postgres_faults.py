"""PostgreSQL and its workers killed, cut off and restarted: nothing is lost, and work goes on by itself."""

import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from servers import postgres
from servers.postgres import PostgresServer
from servers.proxy import Proxy
from servers.reach import check_reachable
from support.ledger import Ledger
from support.process_worker import Count

from aqueue import AppScope, ConnectionFailed, OutcomeUnknown, Queue, StoreError, Worker, connect
from aqueue.testing import eventually

pytestmark = pytest.mark.usefixtures("reachable")

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def reachable() -> None:
    check_reachable("postgres", postgres.unreachable())


@pytest.fixture(scope="module")
def server(reachable: None) -> Iterator[PostgresServer]:
    """A server of this file's own, honest about the disk, that may be stopped and crashed."""
    server = PostgresServer(durable=True).start()
    yield server
    server.destroy()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@asynccontextmanager
async def at_work(queue: Queue, ledger: Ledger, *, concurrency: int = 4) -> AsyncIterator[None]:
    """Run a worker beside the test."""
    worker = Worker(queue, [Count], concurrency=concurrency, scope=AppScope({Ledger: ledger}), max_lost=0)
    task = asyncio.create_task(worker.run())
    try:
        yield
        assert not task.done(), "the worker gave up"
    finally:
        worker.stop(at_once=True)
        await task


async def all_done(ledger: Ledger, ids: list[str], timeout: float = 30.0) -> None:
    def look() -> None:
        missing = set(ids) - {entry.job for entry in ledger.entries("done")}
        assert not missing, f"{len(missing)} jobs are not done"

    await eventually(look, timeout)


async def nothing_left(queue: Queue) -> None:
    async def look() -> None:
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.leased) == (0, 0, 0), f"{stats}"

    await eventually(look, 15)


# -- processes ------------------------------------------------------------------------------------------


async def start(tmp_path: Path, mode: str, url: str, *settings: str) -> asyncio.subprocess.Process:
    arguments = [str(tmp_path / "ledger"), mode, url, *settings]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "support.process_worker", *arguments, cwd=TESTS
    )


@pytest.mark.rule("POP-5", "FENCE-1")
async def test_six_processes_handle_each_of_3000_jobs_exactly_once(tmp_path: Path, ledger: Ledger) -> None:
    url = postgres.fresh_url()
    async with connect(url) as queue:
        await queue.migrate()
        ids = await queue.push_many([Count(number) for number in range(3000)])
        processes = [await start(tmp_path, "drain", url, "concurrency=50") for _ in range(6)]
        await eventually(lambda: len(ledger.entries("ready")) == 6, timeout=30)
        (tmp_path / "go").touch()
        assert [await process.wait() for process in processes] == [0] * 6

        starts = ledger.entries("start")
        assert Counter(entry.job for entry in starts) == Counter(ids)
        assert Counter(entry.job for entry in ledger.entries("done")) == Counter(ids)
        assert {entry.attempt for entry in starts} == {1}
        await nothing_left(queue)


@pytest.mark.rule("LEASE-2", "ATT-1")
async def test_ten_kills_lose_nothing(tmp_path: Path, ledger: Ledger) -> None:
    url, settings = postgres.fresh_url(), ("lease=2", "concurrency=4", "max_lost=0")
    async with connect(url, lease=2.0) as queue:
        await queue.migrate()
        ids: list[str] = []
        for _ in range(10):
            ids += await queue.push_many([Count(number, seconds=0.2) for number in range(6)])
            process = await start(tmp_path, "run", url, *settings)
            await eventually(lambda pid=process.pid: _started_by(ledger, pid) >= 2, timeout=30)
            process.kill()
            await process.wait()
        process = await start(tmp_path, "run", url, *settings)

        await all_done(ledger, ids, timeout=60)
        await nothing_left(queue)
        process.terminate()
        assert await process.wait() == 0


def _started_by(ledger: Ledger, pid: int) -> int:
    return sum(entry.pid == pid for entry in ledger.entries("start"))


# -- connections that end --------------------------------------------------------------------------------


@pytest.mark.rule("WORK-8", "FENCE-1")
async def test_a_worker_outlives_each_of_its_connections_in_turn(ledger: Ledger) -> None:
    name = f"worker-{os.getpid()}-{time.time_ns()}"
    url = f"{postgres.fresh_url()}&application_name={name}"
    mine = await asyncpg.connect(postgres.url())
    async with connect(url, lease=3.0) as queue:
        await queue.migrate()
        async with at_work(queue, ledger):
            ids = await _pushed(queue, 20)
            await all_done(ledger, ids)
            pids = await _connections(mine, name)
            assert len(pids) >= 2, "there is no listener, or no lane"
            for pid in pids:
                ids += [await queue.push(Count(0, seconds=0.3))]
                await eventually(lambda job=ids[-1]: job in {e.job for e in ledger.entries("start")})

                assert await mine.fetchval("SELECT pg_terminate_backend($1)", pid)

                ids += await _pushed(queue, 5)
                await all_done(ledger, ids, timeout=15)
            await nothing_left(queue)
            await eventually(lambda: _is_listening(mine, name), timeout=10)
    await mine.close()
    assert set(Counter(entry.job for entry in ledger.entries("done"))) == set(ids)


async def _pushed(queue: Queue, count: int) -> list[str]:
    """Push as an application would whose store is having a moment: the same job under the same id again."""
    ids: list[str] = []
    for number in range(count):
        id = os.urandom(16).hex()
        while True:
            try:
                ids.append(await queue.push(Count(number), id=id))
                break
            except StoreError:
                await asyncio.sleep(0.05)
    return ids


async def _connections(mine: asyncpg.Connection, name: str) -> list[int]:
    rows = await mine.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = $1", name)
    return [row[0] for row in rows]


async def _listeners(mine: asyncpg.Connection, name: str) -> list[int]:
    rows = await mine.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND query ~ '^(LISTEN|SELECT 1)'", name
    )
    return [row[0] for row in rows]


async def _is_listening(mine: asyncpg.Connection, name: str) -> bool:
    return bool(await _listeners(mine, name))


# -- the server ------------------------------------------------------------------------------------------


@pytest.mark.rule("WORK-8", "PUSH-3")
@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_a_worker_resumes_by_itself_when_the_server_is_back(
    server: PostgresServer, ledger: Ledger, how: str
) -> None:
    async with connect(postgres.fresh_url(server.url), lease=3.0) as queue:
        await queue.migrate()
        async with at_work(queue, ledger):
            ids = await queue.push_many([Count(number, seconds=0.05) for number in range(60)])
            ids += [await queue.push(Count(number, seconds=1.5)) for number in range(2)]
            await eventually(lambda: len(ledger.entries("start")) >= 5)

            await asyncio.to_thread(getattr(server, how))
            await asyncio.sleep(0.5)  # an outage of some length
            await asyncio.to_thread(server.start)

            ids += await _pushed(queue, 5)
            await all_done(ledger, ids, timeout=20)
            await nothing_left(queue)


async def test_a_server_is_reached_by_its_socket_in_the_file_system(server: PostgresServer) -> None:
    async with connect(postgres.fresh_url(server.socket_url)) as queue:
        await queue.migrate()
        await queue.push(Count(1))
        assert await queue.size() == 1


@pytest.mark.rule("PUSH-4")
async def test_a_push_to_a_server_that_is_gone_was_certainly_never_sent(server: PostgresServer) -> None:
    async with connect(postgres.fresh_url(server.url)) as queue:
        await queue.migrate()
        await asyncio.to_thread(server.stop)
        try:
            await eventually(lambda: _never_sent(queue))
        finally:
            await asyncio.to_thread(server.start)

        await queue.push(Count(1))
        assert await queue.size() == 1


async def _never_sent(queue: Queue) -> bool:
    """The first push may still find a connection whose end the client has not heard of."""
    try:
        await queue.push(Count(0))
    except ConnectionFailed as error:
        return error.job_id is not None
    except OutcomeUnknown:
        return False
    raise AssertionError("a push to a stopped server succeeded")


# -- the network -----------------------------------------------------------------------------------------


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(int(_port(postgres.url()))) as proxy:
        yield proxy


def _port(url: str) -> str:
    found = re.search(r":(\d+)/", url)
    return found[1] if found else "5432"


def through(proxy: Proxy, url: str) -> str:
    return re.sub(r"@[^/]*/", f"@127.0.0.1:{proxy.port}/", url)


@pytest.mark.rule("PUSH-4", "PUSH-10", "CALL-1")
async def test_a_push_whose_reply_was_lost_may_be_repeated_with_its_id(proxy: Proxy) -> None:
    url, id = postgres.fresh_url(), "f" * 32
    async with connect(through(proxy, url), call_timeout=0.5) as queue, connect(url) as direct:
        await queue.migrate()
        await queue.push(Count(0), queue="warm")
        proxy.drop_replies()

        with pytest.raises(OutcomeUnknown) as caught:
            await queue.push(Count(1), id=id)

        assert caught.value.job_id == id
        proxy.cut()
        await eventually(lambda: _size_is(direct, 1))
        assert await queue.push(Count(1), id=id) == id
        assert await direct.size() == 1


async def _size_is(queue: Queue, size: int) -> bool:
    return await queue.size() == size


@pytest.mark.rule("CALL-1", "POP-6")
async def test_a_pop_whose_reply_was_lost_gives_back_what_it_reserved(proxy: Proxy) -> None:
    url = postgres.fresh_url()
    async with connect(through(proxy, url), call_timeout=0.5) as queue, connect(url) as direct:
        await queue.migrate()
        await queue.pop(timeout=0.05)
        ids = await direct.push_many([Count(number) for number in range(3)])
        proxy.drop_replies()
        with pytest.raises(OutcomeUnknown):
            await queue.pop_now(2)
        assert (await direct.stats()).leased == 2
        proxy.cut()

        taken = await queue.pop_now(3)

        assert [(delivery.id, delivery.attempt) for delivery in taken] == [(id, 1) for id in ids]


@pytest.mark.rule("CALL-1", "WORK-8")
async def test_sockets_gone_silent_stop_a_worker_for_no_longer_than_the_call_timeout(
    proxy: Proxy, ledger: Ledger
) -> None:
    url = postgres.fresh_url()
    async with connect(through(proxy, url), call_timeout=1.0, lease=3.0) as queue, connect(url) as direct:
        await queue.migrate()
        async with at_work(queue, ledger):
            await all_done(ledger, await direct.push_many([Count(number) for number in range(5)]))

            proxy.freeze()

            await all_done(ledger, await direct.push_many([Count(number) for number in range(5)]), timeout=10)


@pytest.mark.rule("POP-3")
async def test_a_listener_gone_deaf_notices_and_listens_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aqueue.backends.postgres.listener._PROBE_EVERY", 0.2)
    monkeypatch.setattr("aqueue.backends.postgres.listener._PROBE_PATIENCE", 0.5)
    name = f"listener-{time.time_ns()}"
    url = postgres.fresh_url()
    mine = await asyncpg.connect(postgres.url())
    async with connect(f"{through(proxy, url)}&application_name={name}", call_timeout=1.0) as queue:
        await queue.migrate()
        backend: Any = queue._store.backend
        await backend.wait(["default"], 0.05)
        await eventually(lambda: _is_listening(mine, name))
        before = set(await _listeners(mine, name))

        proxy.freeze()

        await eventually(lambda: _listens_anew(mine, name, before), timeout=10)
    await mine.close()


async def _listens_anew(mine: asyncpg.Connection, name: str, before: set[int]) -> bool:
    return bool(set(await _listeners(mine, name)) - before)


# -- closing ---------------------------------------------------------------------------------------------


@pytest.mark.rule("STOP-1", "CALL-1")
async def test_closing_a_queue_whose_server_is_silent_ends_within_the_call_timeout(proxy: Proxy) -> None:
    queue = connect(through(proxy, postgres.fresh_url()), call_timeout=1.0)
    await queue.open()
    await queue.migrate()
    pushes: list[Awaitable[Any]] = [asyncio.create_task(queue.push(Count(number))) for number in range(3)]
    await asyncio.gather(*pushes)
    proxy.freeze()
    pushing = asyncio.create_task(queue.push(Count(9)))
    await asyncio.sleep(0.05)  # it must be under way

    async with asyncio.timeout(5):
        await queue.aclose()

    [outcome] = await asyncio.gather(pushing, return_exceptions=True)
    assert isinstance(outcome, StoreError)


@pytest.mark.rule("POP-6", "PUSH-11")
async def test_a_storm_of_cancelled_calls_leaves_every_connection_whole() -> None:
    async with connect(postgres.fresh_url(), call_timeout=5.0) as queue:
        await queue.migrate()
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: queue.push(Count(0)), lambda: queue.pop(timeout=1), queue.stats, queue.failed.count
        ]  # fmt: skip
        for turn in range(200):
            task = asyncio.ensure_future(calls[turn % 4]())
            await asyncio.sleep((turn % 20) * 0.0002)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        for _ in range(20):
            await queue.push(Count(1), queue="after")
        assert await queue.size("after") == 20
