"""SQS behind a bad network: nothing is sent twice, what is not known is said, and a worker goes on."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from servers import sqs
from servers.reach import check_reachable
from servers.sqs_tap import Tap
from support.working import all_settled, running

from aqueue import (
    ConnectionFailed,
    JobSettlementLost,
    OutcomeUnknown,
    Queue,
    Worker,
    connect,
    job,
)
from aqueue.testing import eventually

done: list[int] = []


@job(name="sqs.faults.count")
class Count:
    number: int
    seconds: float = 0.0

    async def handle(self) -> None:
        await asyncio.sleep(self.seconds)
        done.append(self.number)


@pytest.fixture
def server() -> Iterator[sqs.SQSServer]:
    check_reachable("sqs", sqs.ministack_missing())
    done.clear()
    server = sqs.SQSServer(sqs.ministack).start()
    yield server
    server.process.resume()
    server.stop()


@pytest.fixture
async def tap(server: sqs.SQSServer) -> AsyncIterator[Tap]:
    async with Tap(server.port) as tap:
        yield tap


def through(server: sqs.SQSServer, tap: Tap) -> str:
    return server.url(port=tap.port)


@pytest.mark.rule("PUSH-4")
async def test_a_push_whose_reply_was_lost_is_unknown_and_never_sent_again(
    server: sqs.SQSServer, tap: Tap
) -> None:
    async with connect(through(server, tap)) as queue:
        await queue.push(Count(0))
        tap.drop_replies()
        pushing = asyncio.create_task(queue.push(Count(1)))
        await eventually(lambda: server.counts() == (2, 0, 0))
        tap.forget()
        tap.cut()

        with pytest.raises(OutcomeUnknown) as caught:
            await pushing

        assert caught.value.job_id is not None
        await queue.push(Count(2))
        assert server.counts() == (3, 0, 0)
        assert tap.calls() == {"SendMessageBatch": 1}


@pytest.mark.rule("PUSH-4")
async def test_a_connection_that_breaks_in_the_middle_of_a_push_proves_nothing(
    server: sqs.SQSServer, tap: Tap
) -> None:
    """The driver calls this by the same name as an endpoint that can't be reached."""
    async with connect(through(server, tap)) as queue:
        await queue.push(Count(0))
        tap.swallow()
        tap.forget()
        pushing = asyncio.create_task(queue.push(Count(1)))
        await eventually(lambda: tap.calls()["SendMessageBatch"] == 1)
        tap.reset()

        with pytest.raises(OutcomeUnknown):
            await pushing


@pytest.mark.rule("PUSH-4", "PUSH-7")
async def test_each_call_of_a_large_push_has_its_own_fate(server: sqs.SQSServer, tap: Tap) -> None:
    async with connect(through(server, tap)) as queue:
        await queue.push(Count(0), queue="first")
        tap.drop_replies()
        lost = asyncio.create_task(queue.push(Count(1), queue="first"))
        await eventually(lambda: server.counts("first") == (2, 0, 0))
        tap.reset()
        with pytest.raises(OutcomeUnknown):
            await lost

        ids = await queue.push_many(Count(number) for number in range(35))

        assert len(set(ids)) == 35
        assert server.counts() == (35, 0, 0)


@pytest.mark.rule("PUSH-4")
async def test_a_push_without_a_server_was_never_sent_and_the_next_one_reconnects(
    server: sqs.SQSServer,
) -> None:
    async with connect(server.url()) as queue:
        await queue.push(Count(0))
        server.stop()
        with pytest.raises(ConnectionFailed) as caught:
            await queue.push(Count(1))
        assert caught.value.job_id is not None
        server.start()

        await queue.push(Count(2))  # the queue is gone with the server, and is made anew
        assert server.counts() == (1, 0, 0)


@pytest.mark.rule("CALL-1")
async def test_a_black_hole_costs_a_call_its_time_and_the_next_uses_a_new_connection(
    server: sqs.SQSServer, tap: Tap
) -> None:
    async with connect(through(server, tap), call_timeout=0.5) as queue:
        await queue.push(Count(0))
        tap.freeze()  # and stays so: only a new connection gets through

        with pytest.raises(OutcomeUnknown):
            await queue.push(Count(1))

        await queue.push(Count(2))
        assert server.counts() == (2, 0, 0)


@pytest.mark.rule("FENCE-1")
async def test_an_ack_whose_reply_was_lost_is_unknown(server: sqs.SQSServer, tap: Tap) -> None:
    async with connect(through(server, tap)) as queue:
        await queue.push(Count(1))
        [delivery] = await queue.pop_many(1)
        tap.drop_replies()
        acking = asyncio.create_task(queue.ack(delivery))
        await eventually(lambda: server.counts() == (0, 0, 0))
        tap.cut()

        with pytest.raises(OutcomeUnknown):
            await acking


@pytest.mark.rule("LEASE-2")
async def test_a_job_whose_hand_out_was_lost_comes_back_when_its_lease_is_over(
    server: sqs.SQSServer, tap: Tap
) -> None:
    async with connect(through(server, tap), lease=1) as queue:
        id = await queue.push(Count(1))
        tap.drop_replies()
        popping = asyncio.create_task(queue.pop_now(1))
        await eventually(lambda: server.counts() == (0, 0, 1))
        tap.cut()
        with pytest.raises(OutcomeUnknown):
            await popping

        [delivery] = await queue.pop_many(1, timeout=10)

        assert (delivery.id, delivery.attempt) == (id, 2)


@pytest.mark.rule("POP-3")
async def test_a_long_poll_that_breaks_is_the_waits_trouble(server: sqs.SQSServer, tap: Tap) -> None:
    async with connect(through(server, tap)) as queue:
        await queue.size()
        popping = asyncio.create_task(queue.pop(timeout=0))
        await eventually(lambda: tap.calls()["ReceiveMessage"] == 2)
        tap.reset()

        with pytest.raises(OutcomeUnknown):
            await popping


@pytest.mark.rule("WORK-8")
async def test_a_worker_goes_on_after_resets_and_a_black_hole(server: sqs.SQSServer, tap: Tap) -> None:
    expected = {100 * number + each for number in range(6) for each in range(20)}
    url = through(server, tap)
    async with connect(server.url()) as pushing, connect(url, call_timeout=1, lease=2) as queue:
        worker = Worker(queue, [Count], concurrency=20, max_lost=0)
        async with running(worker):
            for number in range(6):
                await pushing.push_many(Count(100 * number + each) for each in range(20))
                if number % 3 == 2:
                    tap.swallow()
                    await eventually(lambda: not worker.health().ok, timeout=20)
                tap.reset()
            await eventually(lambda: set(done) == expected, timeout=60)
            await all_settled(pushing, timeout=30)
            await eventually(lambda: worker.health().ok, timeout=20)


@pytest.mark.rule("LEASE-3", "WORK-7")
async def test_a_handler_that_could_not_be_renewed_is_told_and_the_worker_goes_on(
    server: sqs.SQSServer, tap: Tap
) -> None:
    """Its job is somebody else's by then; the settlement isn't even sent (case O-22)."""
    lost: list[JobSettlementLost] = []
    async with (
        connect(through(server, tap), lease=2, call_timeout=1) as queue,
        connect(server.url()) as other,
    ):
        worker = Worker(queue, [Count])
        worker.listen(JobSettlementLost, lost.append)
        await queue.push(Count(1, seconds=30.0))
        async with running(worker):
            await _handed_out(server)
            tap.swallow()
            [again] = await other.pop_many(1, timeout=20)
            assert again.attempt == 2
            tap.forget()
            tap.reset()
            await eventually(lambda: len(lost) == 1, timeout=20)
            await other.ack(again)

            await other.push(Count(2))
            await eventually(lambda: done == [2], timeout=20)

    assert lost[0].id == again.id


async def _handed_out(server: sqs.SQSServer) -> None:
    await eventually(lambda: server.counts()[2] == 1)


@pytest.mark.rule("STOP-1", "CALL-1")
async def test_closing_while_the_server_hangs_takes_no_longer_than_a_long_poll(
    server: sqs.SQSServer,
) -> None:
    async with asyncio.timeout(40):
        async with connect(server.url(), call_timeout=1) as queue:
            await queue.size()
            popping = asyncio.create_task(queue.pop(timeout=0))
            await _polling(queue)
            server.process.pause()
            popping.cancel()
            await asyncio.wait({popping})


async def _polling(queue: Queue) -> None:
    await eventually(lambda: bool(queue._store.backend._handouts._polls))  # type: ignore[attr-defined]
