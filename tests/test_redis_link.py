"""The shared connection: who gets which reply, and what became of a command when there was none."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis import exceptions as driver
from servers.proxy import Proxy
from servers.reach import check_reachable
from servers.redis import RedisServer, redis_program

from aqueue.backends.redis.dialling import Address, Dialler, Identity
from aqueue.backends.redis.link import Link, Unsent, packed
from aqueue.backends.redis.node import Node
from aqueue.port import NotDispatched
from aqueue.testing import eventually

PING = packed(("PING",))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    check_reachable("redis", None if redis_program() else "redis-server is not installed")
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
async def link(server: RedisServer) -> AsyncIterator[Link]:
    made = await Dialler(Identity(), None).dial(Address(server.host, server.port))
    yield made
    await made.aclose()


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[tuple[Address, list[bytes]]]:
    """Run a server that says OK to its naming, then answers each read with the next of these."""
    heard: list[bytes] = []
    left = list(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"+OK\r\n")
        while left and (data := await reader.read(65536)):
            heard.append(data)
            writer.write(left.pop(0))
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    yield Address("127.0.0.1", listening.sockets[0].getsockname()[1]), heard
    listening.close()


@pytest.mark.rule("PUSH-6")
async def test_commands_of_one_turn_travel_in_one_write() -> None:
    async with scripted(b"+1\r\n+2\r\n+3\r\n") as (address, heard):
        link = await Dialler(Identity(), None).dial(address)

        replies = await asyncio.gather(*(link.call(packed(("ECHO", word))) for word in "abc"))

        assert replies == [b"1", b"2", b"3"]
        assert len(heard) == 1
        await link.aclose()


@pytest.mark.rule("PUSH-11")
async def test_abandoned_callers_leave_every_reply_with_its_own_command(link: Link) -> None:
    kept: list[tuple[int, asyncio.Future[object]]] = []
    for number in range(2_000):
        reply = link.call(packed(("ECHO", number)))
        if number % 3:
            kept.append((number, reply))
        else:
            asyncio.get_running_loop().call_soon(reply.cancel)
        if number % 50 == 0:
            await asyncio.sleep(0)

    for number, reply in kept:
        assert await reply == str(number).encode()


async def test_an_error_reply_reaches_its_caller_alone(link: Link) -> None:
    good, bad, after = link.call(PING), link.call(packed(("NO-SUCH-COMMAND",))), link.call(PING)

    assert (await good, await after) == (b"PONG", b"PONG")
    with pytest.raises(driver.ResponseError):
        await bad


@pytest.mark.rule("PUSH-4")
async def test_a_lost_connection_leaves_what_was_sent_unknown_and_the_rest_unsent(link: Link) -> None:
    sent = link.call(packed(("BLPOP", "nothing", 0)))
    await asyncio.sleep(0.05)  # it has left
    link.abort()

    with pytest.raises(driver.ConnectionError):
        await sent
    with pytest.raises(Unsent):
        await link.call(PING)


@pytest.mark.rule("PUSH-4")
async def test_what_waits_in_the_outbox_when_the_connection_goes_was_never_sent(link: Link) -> None:
    waiting = link.call(PING)
    link.abort()

    with pytest.raises(Unsent):
        await waiting


@pytest.mark.rule("PUSH-4")
async def test_an_answer_that_is_no_answer_ends_the_connection() -> None:
    async with scripted(b"what?\r\n") as (address, _):
        link = await Dialler(Identity(), None).dial(address)

        with pytest.raises(driver.ConnectionError):
            await link.call(PING)
        await eventually(lambda: not link.is_open)


async def test_large_commands_wait_for_the_socket_and_all_arrive(link: Link) -> None:
    payload = b"x" * 3_000_000
    setting = [link.call(packed(("SET", f"large{number}", payload))) for number in range(8)]

    assert await asyncio.gather(*setting) == [b"OK"] * 8
    assert await link.call(packed(("STRLEN", "large7"))) == len(payload)


@pytest.mark.rule("PUSH-4")
async def test_a_link_that_the_server_closed_while_idle_is_made_anew_unnoticed(server: RedisServer) -> None:
    node = node_at(Address(server.host, server.port))
    for _ in range(5):
        await (await node.link(0)).call(PING)
        await asyncio.sleep(0.03)
        server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # blocks the loop: nothing is noticed
        link = await node.link(0)
        try:
            assert await link.call(PING) == b"PONG"
        except Unsent:
            assert await (await node.link(0)).call(PING) == b"PONG"
    await node.aclose()


async def test_callers_that_come_while_a_link_is_made_share_it(server: RedisServer) -> None:
    async with Proxy(server.port) as proxy:
        node = node_at(Address("127.0.0.1", proxy.port))
        waiting = [asyncio.create_task(node.link(0)) for _ in range(20)]
        await asyncio.sleep(0)
        waiting[0].cancel()

        links = await asyncio.gather(*waiting[1:])

        assert len({id(link) for link in links}) == 1
        assert await links[0].call(PING) == b"PONG"
        await node.aclose()


@pytest.mark.rule("PUSH-4")
async def test_a_refused_connection_is_told_to_everybody_who_waited_for_it() -> None:
    node = node_at(Address("127.0.0.1", 1))

    outcomes = await asyncio.gather(*(node.link(0) for _ in range(5)), return_exceptions=True)

    assert all(isinstance(outcome, NotDispatched) for outcome in outcomes)
    assert all(
        isinstance(outcome.__cause__, OSError) for outcome in outcomes if isinstance(outcome, Exception)
    )
    await node.aclose()


def node_at(address: Address) -> Node:
    async def find() -> Address:
        return address

    return Node(Dialler(Identity(), None), 1, find)
