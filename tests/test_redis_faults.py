"""Redis behind a bad network, restarted, or hung: nothing answered is lost, and nothing is sent twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from servers.proxy import Proxy
from servers.reach import check_reachable
from servers.redis import RedisServer, redis_program
from support.working import running

from aqueue import ConnectionFailed, OutcomeUnknown, Queue, Worker, connect, job
from aqueue.backends.redis import from_url
from aqueue.port import Message, StoreOptions
from aqueue.testing import eventually
from aqueue.urls import parse_url

done: list[int] = []


@job(name="redis.count")
class Count:
    number: int

    async def handle(self) -> None:
        done.append(self.number)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    check_reachable("redis", None if redis_program() else "redis-server is not installed")
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always").start()
    yield server
    server.process.resume()
    server.stop()


@pytest.fixture
async def proxy(server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def through(proxy: Proxy, options: str = "") -> str:
    return f"redis://127.0.0.1:{proxy.port}{options}"


async def counts(server: RedisServer, name: str = "default") -> tuple[int, int]:
    """Return how many jobs wait and are held, asked past the proxy."""
    async with connect(server.url) as queue:
        stats = await queue.stats(name)
    return stats.ready, stats.leased


@pytest.mark.rule("PUSH-4")
async def test_a_push_whose_reply_was_lost_is_unknown_and_never_sent_again(
    server: RedisServer, proxy: Proxy
) -> None:
    async with connect(through(proxy)) as queue:
        await queue.push(Count(0))
        proxy.drop_replies()
        pushing = asyncio.create_task(queue.push(Count(1), id="a" * 32))

        async def arrived() -> bool:
            return await counts(server) == (2, 0)

        await eventually(arrived)
        proxy.cut()
        with pytest.raises(OutcomeUnknown) as caught:
            await pushing
        assert caught.value.job_id == "a" * 32

        assert await queue.push(Count(1), id="a" * 32) == "a" * 32
        assert await counts(server) == (2, 0)


@pytest.mark.rule("PUSH-4")
async def test_a_push_without_a_server_was_never_sent_and_the_next_one_reconnects(
    server: RedisServer,
) -> None:
    async with connect(server.url) as queue:
        await queue.push(Count(0))
        server.process.stop()
        with pytest.raises(ConnectionFailed):
            await queue.push(Count(1))
        server.start()

        await queue.push(Count(2))
        assert await counts(server) == (2, 0)


@pytest.mark.rule("POP-6")
async def test_what_a_pop_took_whose_reply_was_lost_is_given_back_before_the_next(
    server: RedisServer, proxy: Proxy
) -> None:
    async with connect(through(proxy)) as queue:
        ids = [await queue.push(Count(number)) for number in range(3)]
        await queue.pop_now(1, queues=["elsewhere"])
        proxy.drop_replies()
        popping = asyncio.create_task(queue.pop_now(2))

        async def taken() -> bool:
            return await counts(server) == (1, 2)

        await eventually(taken)
        proxy.cut()
        with pytest.raises(OutcomeUnknown):
            await popping

        deliveries = await queue.pop_now(5)
        assert sorted(delivery.id for delivery in deliveries) == sorted(ids)
        assert deliveries[2].id == ids[2], "what was given back goes first"
        assert {(delivery.attempt, delivery.lost) for delivery in deliveries} == {(1, 0)}


@pytest.mark.rule("FENCE-1")
async def test_an_ack_whose_reply_was_lost_was_applied_once(server: RedisServer, proxy: Proxy) -> None:
    async with connect(through(proxy)) as queue:
        await queue.push_many([Count(0), Count(1)])
        first, delivery = await queue.pop_now(2)
        await queue.ack(first)  # the server has the script now
        proxy.drop_replies()
        acking = asyncio.create_task(queue.ack(delivery))

        async def applied() -> bool:
            return await counts(server) == (0, 0)

        await eventually(applied)
        proxy.cut()
        with pytest.raises(OutcomeUnknown):
            await acking


@pytest.mark.rule("CALL-1")
async def test_a_server_that_hangs_costs_a_call_its_time_and_the_next_uses_a_new_connection(
    server: RedisServer, proxy: Proxy
) -> None:
    async with connect(through(proxy), call_timeout=0.5) as queue:
        await queue.push(Count(0))
        proxy.freeze()  # and stays so: only a new connection gets through

        with pytest.raises(OutcomeUnknown):
            await queue.push(Count(1))

        await queue.push(Count(2))
        assert await counts(server) == (2, 0)


@pytest.mark.rule("CALL-1", "POP-6")
async def test_a_pop_that_timed_out_strands_nothing_once_the_server_answers_again(
    server: RedisServer,
) -> None:
    async with connect(server.url, call_timeout=0.5) as queue:
        id = await queue.push(Count(0))
        await queue.pop_now(1, queues=["elsewhere"])
        server.process.pause()
        with pytest.raises(OutcomeUnknown):
            await queue.pop_now(1)
        server.process.resume()

        async def back() -> bool:
            return [delivery.id for delivery in await queue.pop_now(1)] == [id]

        await eventually(back)


@pytest.mark.rule("STOP-1", "CALL-1")
async def test_a_queue_closes_although_the_server_hangs(server: RedisServer, proxy: Proxy) -> None:
    queue = connect(through(proxy), call_timeout=0.3)
    await queue.open()
    await queue.push(Count(0))
    proxy.freeze()

    async with asyncio.timeout(8):
        pushing = asyncio.create_task(queue.push(Count(1)))
        await asyncio.sleep(0)
        await queue.aclose()
        with pytest.raises(OutcomeUnknown):
            await pushing


@pytest.mark.rule("WORK-8", "PUSH-3")
async def test_a_worker_outlives_a_restart_and_loses_no_job(server: RedisServer) -> None:
    async with connect(server.url, lease=2.0) as queue, connect(server.url) as pusher:
        worker = Worker(queue, [Count], concurrency=5)
        async with running(worker):
            stored: list[int] = []
            for number in range(40):
                if number == 20:
                    server.process.kill()
                    server.start()
                try:
                    await pusher.push(Count(number))
                except (ConnectionFailed, OutcomeUnknown):
                    continue
                stored.append(number)
            assert len(stored) >= 38
            await eventually(lambda: set(stored) <= set(done), 20)


@pytest.mark.rule("WORK-8")
async def test_a_worker_whose_connections_are_killed_goes_on(server: RedisServer) -> None:
    async with connect(server.url, lease=2.0) as queue:
        worker = Worker(queue, [Count], concurrency=5)
        async with running(worker), connect(f"{server.url}?connections=1") as pusher:
            for number in range(30):
                if number % 10 == 5:
                    server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                    server.run("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
                await push_in_the_end(pusher, number)
            await eventually(lambda: set(done) >= set(range(30)), 20)


@pytest.mark.rule("WORK-8", "CALL-1", "POP-7")
async def test_resets_and_twenty_seconds_in_a_black_hole_leave_the_worker_working(
    server: RedisServer, proxy: Proxy
) -> None:
    """Case O-05: after each trouble the worker takes up by itself what was pushed past it."""

    async def one_reset() -> None:
        proxy.reset()

    async def three_resets_in_two_seconds() -> None:
        for _ in range(3):
            proxy.reset()
            await asyncio.sleep(0.6)

    async def silence() -> None:
        proxy.swallow()
        await asyncio.sleep(20)
        proxy.cut()

    pushed: set[int] = set()
    async with connect(through(proxy), lease=2.0, call_timeout=2.0) as queue, connect(server.url) as pusher:
        worker = Worker(queue, [Count], concurrency=4)
        async with running(worker):
            for trouble in (one_reset, three_resets_in_two_seconds, silence):
                struck = asyncio.create_task(trouble())
                for _ in range(20):
                    await pusher.push(Count(len(pushed)))
                    pushed.add(len(pushed))
                await struck
                await eventually(lambda: set(done) == pushed, 20)
                await eventually(lambda: worker.health().ok, 10)


async def push_in_the_end(queue: Queue, number: int) -> None:
    """Push under an id of the number's own: safe to repeat while the outcome is unknown (PUSH-10)."""
    while True:
        try:
            await queue.push(Count(number), id=f"{number:032x}")
        except (ConnectionFailed, OutcomeUnknown):
            continue
        return


@pytest.mark.rule("POP-3")
async def test_hints_come_again_after_their_connection_was_lost(server: RedisServer) -> None:
    backend = from_url(parse_url(server.url), StoreOptions(lease=60.0, clock=time.time))
    await backend.open()
    await backend.wait(["default"], 0.3)
    server.run("CLIENT", "KILL", "TYPE", "pubsub")

    def is_subscribed() -> bool:
        return b"name=aqueue" in server.run("CLIENT", "LIST", "TYPE", "pubsub")

    await eventually(is_subscribed)
    await backend.wait(["default"], 0.3)
    await backend.pop(["default"], 1)
    waiting = asyncio.create_task(backend.wait(["default"], 600))
    await asyncio.sleep(0)
    await backend.push([Message("b" * 32, "default", b"x")])

    async with asyncio.timeout(10):
        await waiting
    await backend.aclose()
