"""RabbitMQ killed, cut off, hung or out of memory: nothing confirmed is lost, and a worker takes up again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from servers.proxy import Proxy
from servers.rabbitmq import RabbitMQServer, unreachable
from servers.reach import check_reachable
from support.working import Records, logged, running

from aqueue import (
    ConnectionFailed,
    Delivery,
    OutcomeUnknown,
    PublishNotConfirmed,
    Queue,
    StaleDelivery,
    StoreError,
    Worker,
    connect,
    job,
)
from aqueue.testing import eventually

done: list[int] = []
NOT_STORED_FOR_SURE = (ConnectionFailed, OutcomeUnknown, PublishNotConfirmed)


@job(name="rabbitmq.count")
class Count:
    number: int

    async def handle(self) -> None:
        done.append(self.number)


@job(name="rabbitmq.long")
class Long:
    """Runs longer than the broker lets a delivery be held."""

    seconds: float

    async def handle(self) -> None:
        await asyncio.sleep(self.seconds)


@pytest.fixture(scope="module")
def shared() -> Iterator[RabbitMQServer]:
    """A broker for this file, that each test may break and has to leave whole."""
    check_reachable("rabbitmq", unreachable())
    server = RabbitMQServer().start()
    yield server
    server.process.resume()
    server.stop()


@pytest.fixture(params=["quorum", "classic"])
def place(request: pytest.FixtureRequest) -> str:
    """The options of a place nobody else uses."""
    return f"?queue_type={request.param}&prefix=t{uuid4().hex[:12]}"


@pytest.fixture
def server(shared: RabbitMQServer) -> RabbitMQServer:
    return shared


@pytest.fixture
async def proxy(server: RabbitMQServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def waiting(server: RabbitMQServer, place: str) -> int:
    """Return how many jobs wait, asked past the proxy."""
    async with connect(server.url(place)) as queue:
        return await queue.size()


async def take(queue: Queue, count: int) -> list[Delivery]:
    """Take exactly so many jobs, whatever happens to the connection."""
    found: list[Delivery] = []

    async def all_there() -> bool:
        with suppress(StoreError):
            found.extend(await queue.pop_many(count - len(found), timeout=1))
        return len(found) == count

    await eventually(all_there, 30)
    return found


async def settle_on_disk() -> None:
    """Give the broker time to write down that there is a new queue.

    RabbitMQ 3.10 keeps its register of quorum queues in memory for up to half a second, so that one which was
    made just before a crash comes back empty, or not at all.
    """
    await asyncio.sleep(2)


# Lost answers


@pytest.mark.rule("PUSH-4", "PUSH-5")
async def test_a_push_whose_confirm_was_lost_is_unknown_and_never_sent_again(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
    async with connect(server.url(place, port=proxy.port)) as queue:
        await queue.push(Count(0))
        proxy.drop_replies()
        pushing = asyncio.create_task(queue.push(Count(1)))

        async def arrived() -> bool:
            return await waiting(server, place) == 2

        await eventually(arrived)
        proxy.cut()
        with pytest.raises(OutcomeUnknown) as caught:
            await pushing
        assert caught.value.job_id is not None

        await queue.push(Count(2))
        assert await waiting(server, place) == 3


@pytest.mark.rule("PUSH-5", "CALL-1")
async def test_a_push_that_gets_no_answer_is_not_confirmed_and_the_next_uses_another_connection(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
    async with connect(server.url(f"{place}&confirm_timeout=0.3", port=proxy.port)) as queue:
        await queue.push(Count(0))
        proxy.freeze()  # and stays so: only a new connection gets through

        with pytest.raises(PublishNotConfirmed, match=r"no answer within 0\.3 s"):
            await queue.push(Count(1))

        await queue.push(Count(2))
        assert await waiting(server, place) == 2


@pytest.mark.rule("CALL-1")
async def test_a_call_past_its_upper_time_costs_its_connection_alone(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
    async with connect(server.url(place, port=proxy.port), call_timeout=2) as queue:
        await queue.push(Count(0))
        [delivery] = await take(queue, 1)
        proxy.freeze()

        with pytest.raises(OutcomeUnknown):
            await queue.push(Count(1))
        with pytest.raises(OutcomeUnknown):
            await queue.ack(delivery)

        await queue.push(Count(2))
        assert await queue.pop(timeout=10) is not None


@pytest.mark.rule("PUSH-4")
async def test_a_push_without_a_broker_was_never_sent(server: RabbitMQServer, place: str) -> None:
    async with connect(server.url(place)) as queue:
        await queue.push(Count(0))
        await settle_on_disk()
        server.kill()
        try:
            with pytest.raises(ConnectionFailed):
                await queue.push(Count(1))
        finally:
            server.start()

        await queue.push(Count(2))
        await holds(queue, 2)


async def holds(queue: Queue, expected: int) -> None:
    """Wait until so many jobs wait."""

    async def as_many() -> bool:
        try:
            return await queue.size() == expected
        except StoreError:
            return False

    await eventually(as_many, 10)


# Old channels


@pytest.mark.rule("FENCE-1")
async def test_what_an_old_channel_handed_out_is_stale_and_harms_no_new_delivery(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
    async with connect(server.url(place, port=proxy.port)) as queue:
        ids = await queue.push_many([Count(number) for number in range(4)])
        old = await take(queue, 4)
        proxy.cut()
        new = await take(queue, 4)
        assert sorted(delivery.id for delivery in new) == sorted(ids)

        for settle in (queue.ack, queue.release, queue.fail, queue.extend):
            with pytest.raises(StaleDelivery):
                await settle(old.pop())

        await asyncio.gather(*(queue.ack(delivery) for delivery in new))
        await holds(queue, 0)
        assert (await queue.stats()).failed == 0


@pytest.mark.rule("LEASE-3")
async def test_a_handler_whose_channel_is_gone_is_cancelled(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @job(name="rabbitmq.patient")
    class Patient:
        async def handle(self) -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    async with connect(server.url(place, port=proxy.port), lease=1.0) as queue:
        await queue.push(Patient())
        async with running(Worker(queue, [Patient])):
            await asyncio.wait({asyncio.ensure_future(begun.wait())}, timeout=10)
            proxy.cut()
            async with asyncio.timeout(10):
                await cancelled.wait()


@pytest.mark.rule("LEASE-1", "WORK-7", "WORK-8")
async def test_a_delivery_held_past_the_brokers_limit_is_lost_and_the_worker_goes_on(
    server: RabbitMQServer, place: str
) -> None:
    """Case O-38."""
    server.control("eval", "application:set_env(rabbit, consumer_timeout, 1000).")
    server.control("eval", "application:set_env(rabbit, channel_tick_interval, 500).")
    try:
        async with connect(server.url(place)) as queue, connect(server.url(place)) as pusher:
            await pusher.push(Long(3.0))
            with logged("aqueue") as records:
                worker = Worker(queue, [Long, Count], concurrency=4)
                async with running(worker):
                    for number in range(60):
                        await pusher.push(Count(number))
                        await asyncio.sleep(0.05)
                    await eventually(lambda: set(done) == set(range(60)), 20)
                    await eventually(lambda: _told_of_loss(records), 20)
                    assert worker.health().running
    finally:
        server.control("eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
        server.control("eval", "application:set_env(rabbit, channel_tick_interval, 60000).")


def _told_of_loss(records: Records) -> bool:
    return any("rabbitmq.long" in message for message in records.messages())


# A worker and its broker


@pytest.mark.rule("WORK-8", "PUSH-3")
async def test_a_worker_outlives_a_crash_of_the_broker_and_loses_no_confirmed_job(
    server: RabbitMQServer, place: str
) -> None:
    """Case O-06: the consumers come back, and what was confirmed before the crash is run."""
    async with connect(server.url(place)) as queue, connect(server.url(place)) as pusher:
        await pusher.push(Count(-1))
        await settle_on_disk()
        async with running(Worker(queue, [Count], concurrency=5)) as worker:
            stored = {-1}
            for number in range(60):
                if number == 30:
                    server.kill()
                    server.start()
                try:
                    await pusher.push(Count(number))
                except NOT_STORED_FOR_SURE:
                    continue
                stored.add(number)
            assert len(stored) >= 55
            await eventually(lambda: stored <= set(done), 30)
            assert not worker.done()


@pytest.mark.rule("PUSH-3", "DELAY-1")
async def test_delayed_jobs_outlive_a_crash_of_the_broker(server: RabbitMQServer, place: str) -> None:
    async with connect(server.url(place)) as queue:
        ids = [await queue.push(Count(seconds), delay=seconds) for seconds in (8, 11, 600)]
        await settle_on_disk()
        server.kill()
        server.start()

        async def back() -> bool:
            try:
                return await queue.size() == 3
            except StoreError:
                return False

        await eventually(back, 20)
        assert [delivery.id for delivery in await take(queue, 2)] == ids[:2]
        assert (await queue.stats()).delayed == 1


@pytest.mark.rule("WORK-8", "CALL-1", "POP-7")
async def test_resets_and_twenty_seconds_in_a_black_hole_leave_the_worker_working(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
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
    url = server.url(f"{place}&heartbeat=4", port=proxy.port)
    async with connect(url, call_timeout=2.0) as queue, connect(server.url(place)) as pusher:
        await pusher.push(Count(0))
        pushed.add(0)
        worker = Worker(queue, [Count], concurrency=4)
        async with running(worker):
            for trouble in (one_reset, three_resets_in_two_seconds, silence):
                struck = asyncio.create_task(trouble())
                for _ in range(20):
                    await pusher.push(Count(len(pushed)))
                    pushed.add(len(pushed))
                await struck
                await eventually(lambda: set(done) == pushed, 30)
                await eventually(lambda: worker.health().ok, 10)


# No memory left


@pytest.mark.rule("PUSH-4", "PUSH-5")
async def test_a_broker_without_memory_keeps_pushes_waiting_and_loses_none(
    server: RabbitMQServer, place: str
) -> None:
    """While it takes no messages, what waits there is handed out and settled all the same."""
    async with (
        connect(server.url(f"{place}&confirm_timeout=1")) as pusher,
        connect(server.url(place)) as queue,
    ):
        await pusher.push(Count(0))
        server.control("set_vm_memory_high_watermark", "0.00001")
        try:
            unsure: list[str | None] = []
            for number in (1, 2, 3):
                with pytest.raises(NOT_STORED_FOR_SURE) as caught:
                    await pusher.push(Count(number))
                unsure.append(caught.value.job_id)
                if isinstance(caught.value, ConnectionFailed):
                    assert "low on memory" in str(caught.value)
            assert None not in unsure
            [delivery] = await queue.pop_many(1, timeout=10)
            await queue.ack(delivery)
        finally:
            server.control("set_vm_memory_high_watermark", "0.4")

        async def takes_messages() -> bool:
            try:
                await pusher.push(Count(4))
            except NOT_STORED_FOR_SURE:
                return False
            return True

        await eventually(takes_messages, 20)
        found = {delivery.id for delivery in await _until_idle(queue)}
        assert found - set(unsure), "the job that was confirmed is missing"


async def _until_idle(queue: Queue) -> list[Delivery]:
    found: list[Delivery] = []
    while batch := await queue.pop_many(10, timeout=1):
        found += batch
    return found


@pytest.mark.rule("STOP-1", "CALL-1")
async def test_a_queue_closes_although_the_broker_hangs(
    server: RabbitMQServer, proxy: Proxy, place: str
) -> None:
    queue = connect(server.url(f"{place}&confirm_timeout=1", port=proxy.port), call_timeout=2)
    await queue.open()
    await queue.push_many([Count(number) for number in range(5)])
    await queue.pop_now(1)
    proxy.freeze()

    async with asyncio.timeout(30):
        pushing = asyncio.create_task(queue.push(Count(9)))
        await asyncio.sleep(0)
        await queue.aclose()
        with pytest.raises(NOT_STORED_FOR_SURE):
            await pushing
