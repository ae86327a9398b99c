"""MariaDB and its workers killed, cut off and deadlocked: nothing is lost, and work goes on by itself."""

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
from urllib.parse import urlsplit

import asyncmy
import pytest
from asyncmy.connection import Connection
from servers import mysql
from servers.mysql import MariaDBServer
from servers.proxy import Proxy
from servers.reach import check_reachable
from support.ledger import Ledger
from support.process_worker import Count

from aqueue import (
    AppScope,
    ConnectionFailed,
    InvalidQueueArgument,
    OutcomeUnknown,
    Queue,
    StoreError,
    Worker,
    connect,
)
from aqueue.backends.mysql import connections
from aqueue.testing import eventually

pytestmark = pytest.mark.usefixtures("reachable")

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def reachable() -> None:
    check_reachable("mysql", mysql.unreachable())


@pytest.fixture(scope="module")
def server(reachable: None) -> Iterator[MariaDBServer]:
    """A server of this file's own, honest about the disk, that may be stopped and crashed."""
    server = MariaDBServer(durable=True).start()
    yield server
    server.destroy()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
async def mine(reachable: None) -> AsyncIterator[Connection]:
    """A connection to look at the server with, and to kill others."""
    connection = await connected(mysql.url())
    yield connection
    await connection.ensure_closed()


async def connected(url: str) -> Connection:
    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.removeprefix("/"),
        autocommit=True,
    )


async def ask(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        return list(await cursor.fetchall())


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
    url = mysql.fresh_url()
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
    url, settings = mysql.fresh_url(), ("lease=2", "concurrency=4", "max_lost=0")
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


@pytest.mark.rule("POP-5", "ATT-1")
async def test_deadlocks_among_ten_processes_are_seen_by_nobody(
    tmp_path: Path, ledger: Ledger, mine: Connection
) -> None:
    """Case O-35, scaled down: workers drain, and four pushers push, with delays and releases mixed in."""
    url = mysql.fresh_url()
    async with connect(url) as queue:
        await queue.migrate()
        processes = [await start(tmp_path, "run", url, "concurrency=8") for _ in range(10)]
        await eventually(lambda: len(ledger.entries("ready")) == 10, timeout=60)
        ids: list[str] = []
        await asyncio.gather(*(_push_and_release(url, ids) for _ in range(4)))

        await all_done(ledger, ids, timeout=60)
        await nothing_left(queue)
        for process in processes:
            process.terminate()
        assert [await process.wait() for process in processes] == [0] * 10
        assert {entry.attempt for entry in ledger.entries("start")} == {1}
        assert Counter(entry.job for entry in ledger.entries("done")) == Counter(ids)


async def _push_and_release(url: str, ids: list[str]) -> None:
    async with connect(url) as queue:
        for turn in range(10):
            ids += await queue.push_many([Count(turn)] * 40, delay=0.05 * (turn % 3))
            for delivery in await queue.pop_now(5):
                await queue.release(delivery, delay=0.1 * (turn % 2), counted=False)


# -- connections that end --------------------------------------------------------------------------------


@pytest.mark.rule("WORK-8", "FENCE-1")
async def test_a_worker_outlives_each_of_its_connections_in_turn(ledger: Ledger, mine: Connection) -> None:
    name = f"w{os.getpid()}{time.time_ns() % 10**9}"
    url = re.sub(r"//[^@]*@", f"//{name}:own@", mysql.fresh_url())
    await ask(mine, f"CREATE USER {name}@'%' IDENTIFIED BY 'own'")
    await ask(mine, f"GRANT ALL ON *.* TO {name}@'%'")
    async with connect(url, lease=3.0) as queue:
        await queue.migrate()
        async with at_work(queue, ledger):
            ids = await _pushed(queue, 20)
            await all_done(ledger, ids)
            threads = await _threads(mine, name)
            assert threads
            for thread in threads:
                ids += [await queue.push(Count(0, seconds=0.3), id=os.urandom(16).hex())]
                await eventually(lambda job=ids[-1]: job in {e.job for e in ledger.entries("start")})

                await asyncio.gather(ask(mine, f"KILL {thread}"), return_exceptions=True)

                ids += await _pushed(queue, 5)
                await all_done(ledger, ids, timeout=15)
            await nothing_left(queue)
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


async def _threads(mine: Connection, user: str) -> list[int]:
    return [
        row[0]
        for row in await ask(mine, f"SELECT id FROM information_schema.processlist WHERE user = '{user}'")
    ]


@pytest.mark.rule("PUSH-4")
@pytest.mark.parametrize("how", ["killed", "timed out"])
async def test_a_connection_that_ended_while_idle_costs_no_call(
    mine: Connection, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Case O-S7: the first call after it succeeds, and nobody hears that anything was gone."""
    name = f"i{os.getpid()}{time.time_ns() % 10**9}"
    await ask(mine, f"CREATE USER {name}@'%' IDENTIFIED BY 'own'")
    await ask(mine, f"GRANT ALL ON *.* TO {name}@'%'")
    if how == "timed out":
        monkeypatch.setattr(
            connections,
            "_SET_UP",
            (*connections._SET_UP, "SET SESSION wait_timeout = 1", "SELECT @@max_allowed_packet, VERSION()"),
        )
    async with connect(re.sub(r"//[^@]*@", f"//{name}:own@", mysql.fresh_url())) as queue:
        await queue.migrate()
        for number in range(3):
            await queue.push(Count(number))
            if how == "killed":
                for thread in await _threads(mine, name):
                    await ask(mine, f"KILL {thread}")
            await eventually(lambda: _are_gone(mine, name))
            await asyncio.sleep(0.05)  # and word of it has reached this event loop
        assert await queue.size() == 3


async def _are_gone(mine: Connection, name: str) -> bool:
    return not await _threads(mine, name)


async def test_a_server_with_a_short_patience_changes_nothing(mine: Connection) -> None:
    """Case O-S7 again: `wait_timeout=5` is the server's default for others, not for us."""
    [(before,)] = await ask(mine, "SELECT @@GLOBAL.wait_timeout")
    await ask(mine, "SET GLOBAL wait_timeout = 1")
    try:
        async with connect(mysql.fresh_url()) as queue:
            await queue.migrate()
            await asyncio.sleep(1.5)
            await queue.push(Count(1))
            assert await queue.size() == 1
    finally:
        await ask(mine, f"SET GLOBAL wait_timeout = {before}")


async def test_a_connection_idle_for_long_is_replaced_before_the_server_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with connect(mysql.fresh_url()) as queue:
        await queue.migrate()
        backend: Any = queue._store.backend
        [before] = backend._connections._free
        monkeypatch.setattr(connections, "_IDLE", 0.0)

        await queue.push(Count(1))

        assert before not in backend._connections._free
        assert not before.is_alive()


# -- the server ------------------------------------------------------------------------------------------


@pytest.mark.rule("WORK-8", "PUSH-3")
@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_a_worker_resumes_by_itself_when_the_server_is_back(
    server: MariaDBServer, ledger: Ledger, how: str
) -> None:
    async with connect(mysql.fresh_url(server.url), lease=3.0) as queue:
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


@pytest.mark.rule("PUSH-4")
async def test_a_push_to_a_server_that_is_gone_was_certainly_never_sent(server: MariaDBServer) -> None:
    async with connect(mysql.fresh_url(server.url)) as queue:
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


@pytest.mark.rule("PUSH-4")
async def test_a_server_with_no_room_for_a_connection_was_certainly_sent_nothing(
    server: MariaDBServer,
) -> None:
    mine = await connected(server.url)
    url = mysql.fresh_url(server.url)
    async with connect(url) as queue:
        await queue.migrate()
    await ask(
        mine, "CREATE USER plain@'%' IDENTIFIED BY 'own'"
    )  # one that gets no place kept for administrators
    await ask(mine, "GRANT ALL ON jobs.* TO plain@'%'")
    [(before,)] = await ask(mine, "SELECT @@GLOBAL.max_connections")
    await ask(mine, "SET GLOBAL max_connections = 10")
    others = [await connected(server.url) for _ in range(9)]
    try:
        with pytest.raises(ConnectionFailed, match="1040"):
            await connect(re.sub(r"//[^@]*@", "//plain:own@", url)).open()
    finally:
        await ask(mine, f"SET GLOBAL max_connections = {before}")
        for other in (mine, *others):
            await other.ensure_closed()


@pytest.mark.rule("PUSH-8")
async def test_a_connection_to_another_server_is_refused(server: MariaDBServer) -> None:
    other = await connected(server.url)
    async with connect(mysql.fresh_url()) as queue:
        await queue.migrate()
        await other.begin()
        with pytest.raises(InvalidQueueArgument, match="another server"):
            await queue.push(Count(1), connection=other)
        assert await ask(other, "SELECT 1") == [(1,)]  # the caller's transaction goes on
    await other.ensure_closed()


# -- the network -----------------------------------------------------------------------------------------


class LosingProxy(Proxy):
    """Drops every reply from the request on that contains some words."""

    words = b""

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        listening: Any = reader if replies else _Listening(reader, self)
        await super()._forward(listening, writer, replies=replies)


class _Listening:
    def __init__(self, reader: asyncio.StreamReader, proxy: LosingProxy) -> None:
        self._reader = reader
        self._proxy = proxy

    async def read(self, most: int) -> bytes:
        data = await self._reader.read(most)
        if self._proxy.words and self._proxy.words in data:
            self._proxy.drop_replies()
        return data


@pytest.fixture
async def proxy() -> AsyncIterator[LosingProxy]:
    async with LosingProxy(urlsplit(mysql.url()).port or 3306) as proxy:
        yield proxy


def through(proxy: Proxy, url: str) -> str:
    return re.sub(r"@[^/]*/", f"@127.0.0.1:{proxy.port}/", url)


@pytest.mark.rule("PUSH-4", "PUSH-10", "CALL-1")
async def test_a_push_whose_reply_was_lost_may_be_repeated_with_its_id(proxy: Proxy) -> None:
    url, id = mysql.fresh_url(), "f" * 32
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
async def test_a_pop_whose_reply_was_lost_gives_back_what_it_reserved(proxy: LosingProxy) -> None:
    url = mysql.fresh_url()
    async with connect(through(proxy, url), call_timeout=0.5) as queue, connect(url) as direct:
        await queue.migrate()
        await queue.pop(timeout=0.05)
        ids = await direct.push_many([Count(number) for number in range(3)])
        proxy.words = b"SET state = 2"
        with pytest.raises(OutcomeUnknown):
            await queue.pop_now(2)
        assert (await direct.stats()).leased == 2
        proxy.words = b""
        proxy.cut()

        taken = await queue.pop_now(3)

        assert [(delivery.id, delivery.attempt) for delivery in taken] == [(id, 1) for id in ids]


@pytest.mark.rule("CALL-1", "POP-6")
async def test_rows_locked_by_a_pop_that_was_cut_off_are_free_at_once(proxy: LosingProxy) -> None:
    url = mysql.fresh_url()
    async with connect(through(proxy, url), call_timeout=0.5) as queue, connect(url) as direct:
        await queue.migrate()
        await direct.push_many([Count(number) for number in range(3)])
        proxy.words = b"FOR UPDATE SKIP LOCKED"
        with pytest.raises(OutcomeUnknown):
            await queue.pop_now(2)
        proxy.words = b""
        proxy.cut()

        taken: list[str] = []

        async def found() -> bool:
            taken.extend(delivery.id for delivery in await direct.pop_now(3))
            return len(taken) == 3

        await eventually(found)


@pytest.mark.rule("CALL-1", "WORK-8")
async def test_sockets_gone_silent_stop_a_worker_for_no_longer_than_the_call_timeout(
    proxy: Proxy, ledger: Ledger
) -> None:
    url = mysql.fresh_url()
    async with connect(through(proxy, url), call_timeout=1.0, lease=3.0) as queue, connect(url) as direct:
        await queue.migrate()
        async with at_work(queue, ledger):
            await all_done(ledger, await direct.push_many([Count(number) for number in range(5)]))

            proxy.freeze()

            await all_done(ledger, await direct.push_many([Count(number) for number in range(5)]), timeout=10)


@pytest.mark.rule("PUSH-4", "CALL-1")
async def test_a_server_that_accepts_and_never_greets_was_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_CONNECT_WITHIN", 0.3)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        was_hung_up_on.set()

    was_hung_up_on = asyncio.Event()
    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]

    with pytest.raises(ConnectionFailed, match="no answer"):
        await connect(f"mysql://me@127.0.0.1:{port}/jobs").open()

    await was_hung_up_on.wait()
    silent.close()


# -- closing ---------------------------------------------------------------------------------------------


@pytest.mark.rule("STOP-1", "CALL-1")
async def test_closing_a_queue_whose_server_is_silent_ends_within_the_call_timeout(proxy: Proxy) -> None:
    queue = connect(through(proxy, mysql.fresh_url()), call_timeout=1.0)
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
    async with connect(mysql.fresh_url(), call_timeout=5.0) as queue:
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


@pytest.mark.rule("PUSH-11", "CALL-1")
async def test_raw_cancellations_cut_connections_off_and_mix_up_no_answers() -> None:
    """Case O-05: the backend's own calls are cancelled, without the queue's shield around them."""
    async with connect(mysql.fresh_url()) as queue:
        await queue.migrate()
        backend: Any = queue._store.backend

        async def ask_for(number: int) -> int:
            [answer] = await backend._run(lambda session: session.run(f"SELECT {number}"))
            return int(answer.rows[0][0])

        for turn in range(300):
            tasks = [asyncio.create_task(ask_for(turn * 10 + number)) for number in range(6)]
            await asyncio.sleep((turn % 15) * 0.0003)
            tasks[turn % 6].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for number, answer in enumerate(answers):
                assert isinstance(answer, asyncio.CancelledError) or answer == turn * 10 + number
        assert len(backend._connections._free) <= 5
        assert not backend._connections._busy
