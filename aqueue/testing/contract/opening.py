"""Opening and closing, and what a store says about itself."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from aqueue.delivery import Delivery
from aqueue.errors import QueueClosed, Unsupported
from aqueue.port import Backend, Capabilities, KeepsFailed, LeaseKind, Transactional
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, job_id

T = TypeVar("T")


@rule("FACE-1")
async def a_queue_that_is_not_open_says_so(harness: Harness) -> None:
    """Before `open` and after `aclose`, every call raises `QueueClosed`, and none of them hangs."""
    opened = await harness.queue()
    await opened.push(Note("x"))
    delivery = await harness.take(opened)
    await opened.aclose()

    for queue in (opened, harness.closed_queue()):
        for number, call in enumerate(_calls(queue, delivery)):
            async with harness.promptly():
                with raises(QueueClosed, f"call {number} on a closed queue"):
                    await call()


def _calls(queue: Queue, delivery: Delivery) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: queue.push(Note("x")),
        lambda: queue.pop(timeout=0),
        lambda: queue.pop_now(1),
        lambda: queue.ack(delivery),
        lambda: queue.extend(delivery),
        lambda: queue.release(delivery),
        lambda: queue.fail(delivery),
        queue.size,
    ]


@rule("FACE-1")
async def a_queue_opens_and_closes_again_and_again(harness: Harness) -> None:
    """Opening an open queue and closing a closed one do nothing; jobs stay through it all."""
    keeper, queue = await harness.queue(), await harness.queue()
    ids = []
    for _ in range(3):
        await queue.open()
        await queue.open()
        ids.append(await queue.push(Note("x")))
        await queue.aclose()
        await queue.aclose()

    assert sorted(d.id for d in await harness.take_many(keeper, 3)) == sorted(ids)


@rule("FACE-1")
async def a_queue_may_be_opened_and_closed_from_any_task(harness: Harness) -> None:
    """A fixture or a lifespan opens it in one task, uses it in a second and closes it in a third."""
    queue = harness.closed_queue()
    await (await harness.queue()).push(Note("x"))

    await asyncio.create_task(queue.open())
    delivery = await asyncio.create_task(queue.pop(timeout=harness.patience))
    assert delivery is not None
    await asyncio.create_task(queue.ack(delivery))
    await asyncio.create_task(queue.aclose())


@rule("FACE-1")
async def closing_lets_what_is_under_way_end(harness: Harness) -> None:
    """Pushes and settlements that were asked for before `aclose` are stored or answered, not dropped."""
    keeper, pushing, acking = [await harness.queue() for _ in range(3)]
    await keeper.push_many([Note("held")] * 20, queue="held")
    held = await harness.take_many(acking, 20, "held")

    pushes = await _in_two_waves([pushing.push(Note("x")) for _ in range(20)])
    await pushing.aclose()
    acks = await _in_two_waves([acking.ack(delivery) for delivery in held])
    await acking.aclose()

    ids = await asyncio.gather(*pushes)
    await asyncio.gather(*acks)
    assert sorted(d.id for d in await harness.take_many(keeper, 20)) == sorted(ids)
    await harness.expect_counts(keeper, "held")


async def _in_two_waves(calls: list[Coroutine[Any, Any, T]]) -> list[asyncio.Task[T]]:
    """Start half of the calls, and the other half when the first may be on its way: they must wait for it."""
    tasks = [asyncio.create_task(call) for call in calls[::2]]
    for _ in range(3):
        await asyncio.sleep(0)
    tasks += [asyncio.create_task(call) for call in calls[1::2]]
    await asyncio.sleep(0)
    return tasks


@rule("FACE-1")
async def migrating_is_safe_to_repeat_and_side_by_side(harness: Harness) -> None:
    """Several processes may deploy at once, over a store that is in use."""
    queue, other = await harness.queue(), await harness.queue()
    id = await queue.push(Note("x"))

    await asyncio.gather(*(one.migrate() for one in [queue, other] * 3))

    assert (await harness.take(other)).id == id


@rule("CONF-1")
async def a_store_says_truly_what_it_can(harness: Harness) -> None:
    """The record of capabilities is consistent, known before opening, and agrees with the protocols."""
    backend: Backend = await harness.backend()
    told: Capabilities = backend.capabilities

    assert told.system
    assert told == harness.closed_queue().capabilities
    assert told.max_batch >= 1
    assert min(told.max_batch_bytes, told.max_message_bytes) >= 4096
    assert 0 < told.longest_wait <= 60
    assert told.longest_delay is None or told.longest_delay >= 1
    if told.lease is LeaseKind.TIMED:
        assert 0 < told.shortest_lease <= harness.lease <= (told.longest_lease or harness.lease)
    assert isinstance(backend, KeepsFailed) is harness.keeps_failed


@rule("CONF-1", "PUSH-8", "PUSH-10")
async def a_missing_capability_is_refused_by_name(harness: Harness) -> None:
    """`Unsupported` names the store, so that a reader of the log knows what to change."""
    queue, backend = await harness.queue(), await harness.backend()
    system = harness.capabilities.system
    refused: list[Callable[[], Awaitable[object]]] = []
    if not isinstance(backend, Transactional):
        refused.append(lambda: queue.push(Note("x"), connection=object()))
        refused.append(lambda: queue.push_many([Note("x")], connection=object()))
    if not harness.capabilities.idempotent_push:
        refused.append(lambda: queue.push(Note("x"), id=job_id(1)))

    for call in refused:
        with raises(Unsupported, "what the store can't do") as caught:
            await call()
        assert system in str(caught.error)

    await harness.expect_counts(queue)
    assert system in repr(queue)
    assert harness.url not in repr(queue)
