"""Topics: every subscriber has a copy of its own, and where the store can, all have one or none has."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aqueue.errors import (
    InvalidQueueArgument,
    PublishManyError,
    StoreRefused,
    UnknownTopic,
    UnserializableJob,
    Unsupported,
)
from aqueue.port import Capabilities, Clearable, Message, Refused, Stored, Transactional
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Measure, Note
from aqueue.topics import Subscriptions, Topic

_SUBSCRIBERS = ("orders-stock", "orders-email", "orders-audit")


def _topic(queue: Queue) -> Topic:
    subscriptions = Subscriptions().subscribe("payments", "payments-audit")
    for name in _SUBSCRIBERS:
        subscriptions.subscribe("orders", name)
    return Topic(queue, subscriptions)


@rule("TOPIC-1")
async def each_subscriber_gets_a_copy_of_its_own(harness: Harness) -> None:
    """The same job, on each subscribed queue once, under an id of its own; other topics get nothing."""
    queue, other = await harness.queue(), await harness.queue()

    await _topic(queue).publish(Note("order 7"), "orders", max_attempts=3)

    copies = [await harness.take(other, name) for name in _SUBSCRIBERS]
    assert [(each.queue, each.args, each.max_attempts) for each in copies] == [
        (name, {"text": "order 7"}, 3) for name in _SUBSCRIBERS
    ]
    assert len({each.id for each in copies}) == len(copies), "two copies share an id"
    await harness.expect_nothing(other, *_SUBSCRIBERS, "payments-audit", "default")


@rule("TOPIC-1", "DELAY-1")
async def copies_are_delayed_alike(harness: Harness) -> None:
    """A delay holds for every copy."""
    queue = await harness.queue()

    await _topic(queue).publish(Note("order 7"), "orders", delay=600)

    await harness.expect_nothing(queue, *_SUBSCRIBERS)
    for name in _SUBSCRIBERS:
        await harness.expect_counts(queue, name, delayed=1)


@rule("TOPIC-1")
async def one_subscribers_fate_touches_no_other(harness: Harness) -> None:
    """Acked, set aside, put back, lost or cleared on one queue: every other copy is as it was (case O-39)."""
    queue, holder = await harness.queue(), await harness.queue()
    fates = ("acked", "failed", "released", "lost", "cleared")
    subscriptions = Subscriptions().subscribe("orders", "untouched")
    for name in fates:
        subscriptions.subscribe("orders", name)
    await Topic(queue, subscriptions).publish(Note("order 7"), "orders")

    await queue.ack(await harness.take(queue, "acked"))
    await queue.fail(await harness.take(queue, "failed"), "refused by its handler")
    await queue.release(await harness.take(queue, "released"), delay=600)
    await harness.take(holder, "lost")
    await harness.lose(holder)
    if isinstance(await harness.backend(), Clearable):
        await queue.clear("cleared")

    copy = await harness.take(queue, "untouched")
    assert (copy.attempt, copy.lost, copy.args) == (1, 0, {"text": "order 7"})
    await harness.expect_counts(queue, "released", paused=1)
    again = await harness.take(queue, "lost")
    failed = await queue.failed.list()
    assert [(each.queue, each.reason) for each in failed] == [("failed", "refused by its handler")]
    assert again.id != failed[0].id


@rule("TOPIC-1", "FAIL-2")
async def retrying_one_copy_reaches_its_own_subscriber_alone(harness: Harness) -> None:
    """A copy that was set aside goes back to the queue it came from, and to no other."""
    queue = await harness.queue()
    await _topic(queue).publish(Note("order 7"), "orders")
    copies = {name: await harness.take(queue, name) for name in _SUBSCRIBERS}
    await queue.fail(copies["orders-email"])
    for name in ("orders-stock", "orders-audit"):
        await queue.ack(copies[name])

    assert await queue.failed.retry(copies["orders-email"].id)

    assert (await harness.take(queue, "orders-email")).id == copies["orders-email"].id
    await harness.expect_nothing(queue, *_SUBSCRIBERS)


@rule("TOPIC-1")
async def what_is_refused_reaches_no_subscriber(harness: Harness) -> None:
    """A topic without subscribers, an unfit job, a bad delay: all are seen before anything is sent."""
    queue = await harness.queue()
    topic = _topic(queue)

    with raises(UnknownTopic, "publishing to a topic that nobody subscribes to"):
        await topic.publish(Note("order 7"), "orderz")
    with raises(InvalidQueueArgument, "publishing to a bad name"):
        await topic.publish(Note("order 7"), "no spaces")
    with raises(UnserializableJob, "publishing a job that can't travel"):
        await topic.publish(Measure(float("nan")), "orders")
    with raises(InvalidQueueArgument, "publishing with a bad delay"):
        await topic.publish(Note("order 7"), "orders", delay=-1)
    with raises(InvalidQueueArgument, "copies for one queue twice"):
        await queue.push_copies(Note("order 7"), ["orders-email", "orders-email"])

    for name in _SUBSCRIBERS:
        await harness.expect_counts(queue, name)


@rule("TOPIC-1", "PUSH-8")
async def a_foreign_transaction_gets_no_copies(harness: Harness) -> None:
    """`connection=` is for stores that share the caller's database, and for connections to it."""
    queue = await harness.queue()
    kind = InvalidQueueArgument if isinstance(await harness.backend(), Transactional) else Unsupported

    with raises(kind, "publishing with connection=object()"):
        await _topic(queue).publish(Note("order 7"), "orders", connection=object())

    for name in _SUBSCRIBERS:
        await harness.expect_counts(queue, name)


@rule("TOPIC-1")
async def copies_appear_at_once_where_they_are_one_act(harness: Harness) -> None:
    """While jobs are published, nobody who counts ever finds a copy whose sisters are missing."""
    queue, watcher = await harness.queue(), await harness.queue()
    topic = _topic(queue)
    # Where counts are estimates, or copies come one by one, only the end is the same.
    is_one_act = harness.capabilities.atomic_push and harness.capabilities.exact_size

    async def publish(number: int) -> None:
        for _ in range(5):
            await topic.publish(Note(str(number)), "orders")

    publishing = asyncio.gather(*(publish(number) for number in range(8)))
    while not publishing.done():
        counts = [await watcher.size(name) for name in (*_SUBSCRIBERS, *_SUBSCRIBERS[::-1])]
        # Nothing is taken, so what is counted later can't be less.
        assert counts == sorted(counts) or not is_one_act, f"copies came apart: {counts}"
        await asyncio.sleep(0)
    await publishing

    for name in _SUBSCRIBERS:
        await harness.expect_counts(queue, name, ready=40)


@rule("TOPIC-1", "PUSH-7")
async def a_refusal_keeps_all_copies_back_or_names_those_that_were_stored(harness: Harness) -> None:
    """Where the copies are one act none is stored, whatever travels with them; else each has an outcome."""
    refusing = _Refusing(await harness.backend(), "orders-email")
    queue = await harness.queue(backend=refusing)
    ahead = refusing.capabilities.max_batch - 1  # so that the copies don't all fit into the first batch

    *pushed, refusal = await asyncio.gather(
        *(queue.push(Note("another's")) for _ in range(ahead)),
        _topic(queue).publish(Note("order 7"), "orders"),
        return_exceptions=True,
    )

    assert all(isinstance(id, str) for id in pushed), "the pushes before it were refused as well"
    assert isinstance(refusal, StoreRefused if harness.capabilities.atomic_push else PublishManyError)
    if isinstance(refusal, PublishManyError):
        outcomes = refusal.queues
        assert list(outcomes) == list(_SUBSCRIBERS)
        assert isinstance(outcomes.pop("orders-email"), StoreRefused)
        for name, id in outcomes.items():
            assert (await harness.take(queue, name)).id == id
    await harness.expect_counts(queue, "orders-email")
    if harness.capabilities.atomic_push:
        for name in _SUBSCRIBERS:
            await harness.expect_counts(queue, name)


class _Refusing:
    """The store itself, but that it takes nothing for one queue: as one act, or item by item."""

    def __init__(self, backend: Any, refused: str) -> None:
        self._backend = backend
        self._refused = refused
        most = min(10, backend.capabilities.max_batch)
        self.capabilities: Capabilities = replace(
            backend.capabilities, immediate=False, max_batch=max(most, len(_SUBSCRIBERS))
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def open(self) -> None:
        """Open already: the harness opened the store, and closes it."""

    async def aclose(self) -> None:
        """See `open`."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Refuse what is for the queue, and on a store that takes batches whole, what came with it."""
        refusal = Refused("no room on one of these queues")
        wanted = [message for message in batch if message.queue != self._refused]
        if len(wanted) < len(batch) and self.capabilities.atomic_push:
            raise refusal
        answers = iter(await self._backend.push(wanted)) if wanted else iter(())
        return [refusal if message.queue == self._refused else next(answers) for message in batch]
