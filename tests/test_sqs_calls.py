"""What SQS is asked for, counted before the server: SQS is paid by the call."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from servers import sqs
from servers.reach import check_reachable
from servers.sqs_tap import Tap
from support.working import all_settled, running

from aqueue import InvalidQueueArgument, StaleDelivery, Worker, connect, job
from aqueue.testing import eventually

done: list[int] = []


@job(name="sqs.count")
class Count:
    number: int

    async def handle(self) -> None:
        done.append(self.number)


@pytest.fixture
async def tap() -> AsyncIterator[Tap]:
    check_reachable("sqs", sqs.ministack_missing())
    done.clear()
    async with Tap(sqs.shared_ministack().port) as tap:
        yield tap


def through(tap: Tap, region: str | None = None) -> str:
    return sqs.shared_ministack().url(region or sqs.fresh_region(), port=tap.port)


async def test_a_hundred_tasks_and_a_hundred_slots_take_a_third_of_a_call_per_job(tap: Tap) -> None:
    count = 2_000
    async with connect(through(tap)) as queue:
        await queue.size()  # finds the queue
        tap.forget()

        async def push(numbers: range) -> None:
            for number in numbers:
                await queue.push(Count(number))

        await asyncio.gather(*(push(range(start, count, 100)) for start in range(100)))
        pushed = tap.calls()
        async with running(Worker(queue, [Count], concurrency=100)):
            await eventually(lambda: len(done) == count, timeout=60)
            await all_settled(queue)
        calls = tap.calls()
        del calls["GetQueueAttributes"]  # the test's own

    assert pushed.total() <= 0.12 * count, pushed
    assert calls.total() <= 0.35 * count, calls


@pytest.mark.rule("POP-7")
async def test_a_pop_in_vain_is_one_look_and_one_long_poll_for_each_queue(tap: Tap) -> None:
    async with connect(through(tap)) as queue:
        for name in ("high", "low"):
            await queue.size(name)
        tap.forget()

        assert await queue.pop(timeout=1.5, queues=["high"]) is None
        assert tap.calls()["ReceiveMessage"] <= 3
        tap.forget()
        assert await queue.pop(timeout=2, queues=["high", "low"]) is None
        assert tap.calls()["ReceiveMessage"] <= 2 + 1 + 2 + 1


@pytest.mark.rule("POP-3", "POP-7")
async def test_an_idle_worker_polls_for_five_seconds_and_hears_of_a_job_at_once(tap: Tap) -> None:
    region = sqs.fresh_region()
    async with connect(through(tap, region)) as queue, connect(sqs.shared_ministack().url(region)) as other:
        await queue.size()
        tap.forget()
        async with running(Worker(queue, [Count])):
            await eventually(lambda: len(tap.asked("ReceiveMessage")) >= 2)
            await other.push(Count(1))
            await eventually(lambda: done == [1], timeout=4)
            await all_settled(queue)
        asked = tap.asked("ReceiveMessage")

    assert [call["WaitTimeSeconds"] for call in asked[:2]] == [0, 5]
    assert {call["MaxNumberOfMessages"] for call in asked} <= {9, 10}
    assert len(asked) <= 6, "what a poll brought is handed out without asking again"


@pytest.mark.rule("PUSH-2")
async def test_a_delay_beyond_a_quarter_of_an_hour_is_refused_with_nothing_sent(tap: Tap) -> None:
    async with connect(through(tap)) as queue:
        with pytest.raises(InvalidQueueArgument, match="900"):
            await queue.push(Count(1), delay=901)
        assert not tap.calls()

        await queue.push(Count(1), delay=899.2)
        [sent] = tap.asked("SendMessageBatch")
        assert sent["Entries"][0]["DelaySeconds"] == 900, "whole seconds, and never early"


@pytest.mark.rule("FENCE-1", "LEASE-3")
async def test_a_delivery_whose_time_is_over_is_lost_and_no_settlement_is_sent(tap: Tap) -> None:
    """SQS might delete the job of whoever holds it by now, or say that it did (case O-22)."""
    async with connect(through(tap), lease=1) as queue:
        id = await queue.push(Count(1))
        [late] = await queue.pop_many(1)
        await asyncio.sleep(1.05)
        tap.forget()

        for settle in (queue.ack, queue.release, queue.fail, queue.extend):
            with pytest.raises(StaleDelivery):
                await settle(late)

        assert not tap.calls()
        assert (await queue.pop_many(1))[0].id == id


@pytest.mark.rule("FENCE-2")
async def test_a_delivery_that_was_settled_here_is_not_settled_again(tap: Tap) -> None:
    async with connect(through(tap)) as queue:
        await queue.push(Count(1))
        [delivery] = await queue.pop_many(1)
        await queue.release(delivery)
        tap.forget()

        with pytest.raises(StaleDelivery):
            await queue.ack(delivery)

        assert not tap.calls()
        assert await queue.size() == 1


@pytest.mark.rule("LEASE-3")
async def test_a_lease_is_whole_seconds_and_renewals_are_one_call_for_ten(tap: Tap) -> None:
    async with connect(through(tap), lease=1.2) as queue:
        await queue.push_many(Count(number) for number in range(25))
        deliveries = await queue.pop_many(25)
        tap.forget()

        await queue.extend_many(deliveries)

        changes = tap.asked("ChangeMessageVisibilityBatch")
        assert sorted(len(change["Entries"]) for change in changes) == [5, 10, 10]
        assert {entry["VisibilityTimeout"] for change in changes for entry in change["Entries"]} == {2}
