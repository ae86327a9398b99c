"""Topics: who subscribes, whose handler runs, what a subscriber's fate or the store's trouble changes."""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Protocol

import pytest
from support import fixtures
from support.fixtures import Place
from support.stores import WholeBackend, Wrapper

from aqueue import (
    ConnectionFailed,
    Discard,
    Handlers,
    InvalidQueueArgument,
    OutcomeUnknown,
    PublishManyError,
    PushManyError,
    Snooze,
    Subscriptions,
    Topic,
    UnknownTopic,
    UnserializableJob,
    Worker,
    connect,
    job,
)
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place
pytestmark = pytest.mark.rule("TOPIC-1")

QUEUES = ["orders-stock", "orders-email"]


class HasOrder(Protocol):
    order: int


class Auditable(ABC):
    @abstractmethod
    def line(self) -> str: ...


class ShopJob(Auditable):
    def line(self) -> str:
        return "a job of the shop"


@job(name="topics.placed")
class OrderPlaced(ShopJob):
    order: int


def subscriptions() -> Subscriptions:
    return Subscriptions().subscribe("orders", "orders-stock").subscribe("orders", "orders-email")


# -- subscriptions ---------------------------------------------------------------------------------------


def test_subscriptions_are_chained_and_shown_in_order() -> None:
    made = Subscriptions().subscribe("orders", "b").subscribe("orders", "a").subscribe("payments", "a")

    assert made.queues("orders") == ("b", "a")
    assert dict(made.topics) == {"orders": ("b", "a"), "payments": ("a",)}
    assert repr(made) == "<Subscriptions {'orders': ('b', 'a'), 'payments': ('a',)}>"


def test_the_view_of_subscriptions_follows_them_and_changes_nothing() -> None:
    made = subscriptions()
    view: Any = made.topics

    with pytest.raises(TypeError):
        view["orders"] = ()
    made.subscribe("payments", "a")

    assert view["payments"] == ("a",)


@pytest.mark.rule("TOPIC-1", "NAME-1")
@pytest.mark.parametrize("bad", ["", "no spaces", "ö", "a" * 81, "a.b", 7, None])
def test_names_follow_the_rule_for_queues(bad: Any) -> None:
    made = Subscriptions()

    with pytest.raises(InvalidQueueArgument, match="is not a topic name"):
        made.subscribe(bad, "orders-email")
    with pytest.raises(InvalidQueueArgument, match="is not a queue name"):
        made.subscribe("orders", bad)
    with pytest.raises(InvalidQueueArgument, match="is not a topic name"):
        made.queues(bad)

    assert dict(made.topics) == {}


def test_a_queue_subscribes_to_a_topic_once() -> None:
    made = subscriptions()

    with pytest.raises(InvalidQueueArgument, match="'orders-email' subscribes to topic 'orders' already"):
        made.subscribe("orders", "orders-email")

    assert made.queues("orders") == ("orders-stock", "orders-email")


def test_a_topic_without_subscribers_is_unknown_and_the_known_ones_are_named() -> None:
    with pytest.raises(UnknownTopic, match=r"topic 'orderz'; topics with subscribers: orders$"):
        subscriptions().queues("orderz")
    with pytest.raises(LookupError, match="topics with subscribers: none"):
        Subscriptions().queues("orders")


async def test_what_is_subscribed_later_gets_what_is_published_later(memory: Place) -> None:
    queue, made = await memory.queue(), subscriptions()
    topic = Topic(queue, made)
    await topic.publish(OrderPlaced(1), "orders")
    made.subscribe("orders", "orders-audit")

    await topic.publish(OrderPlaced(2), "orders")

    assert [await queue.size(name) for name in made.queues("orders")] == [2, 2, 1]


# -- whose handler runs ----------------------------------------------------------------------------------


@pytest.mark.rule("TOPIC-2")
@pytest.mark.parametrize(
    "target", [OrderPlaced, ShopJob, Auditable, HasOrder], ids=lambda each: each.__name__
)
async def test_two_subscribers_run_handlers_of_their_own(place: Place, target: type) -> None:
    queue = await place.queue()
    handlers, ran = Handlers(), list[str]()

    @handlers.on(target)
    async def anywhere(order: OrderPlaced) -> None:
        ran.append(f"anywhere {order.order}")

    @handlers.on(target, queue="orders-stock")
    async def reserve(order: OrderPlaced) -> None:
        ran.append(f"stock {order.order}")

    @handlers.on(target, queue="orders-email")
    class Receipt:
        async def handle(self, order: OrderPlaced) -> None:
            ran.append(f"email {order.order}")

    made = subscriptions().subscribe("orders", "orders-audit")
    await Topic(queue, made).publish(OrderPlaced(7), "orders")
    await Worker(queue, handlers, queues=[*QUEUES, "orders-audit"], concurrency=1).run_all()

    assert ran == ["stock 7", "email 7", "anywhere 7"]


@pytest.mark.rule("TOPIC-2")
async def test_a_handler_for_the_queue_wins_over_one_for_the_very_class(memory: Place) -> None:
    queue = await memory.queue()
    handlers, ran = Handlers(), list[str]()
    handlers.on(OrderPlaced, lambda order: ran.append("class"))
    handlers.on(HasOrder, lambda order: ran.append("protocol on the queue"), queue="orders-email")

    await Topic(queue, subscriptions()).publish(OrderPlaced(7), "orders")
    await Worker(queue, handlers, queues=QUEUES, concurrency=1).run_all()

    assert ran == ["class", "protocol on the queue"]


# -- fates (case O-39) -----------------------------------------------------------------------------------


@pytest.mark.rule("TOPIC-1", "ATT-2", "FAIL-1")
async def test_whatever_one_subscriber_does_the_others_handle_every_job(any_place: Place) -> None:
    """A acks, gives up, raises to exhaustion and puts off; C subscribes while jobs flow; A is cleared."""
    queue, made = await any_place.queue(), Subscriptions().subscribe("orders", "a").subscribe("orders", "b")
    topic, handlers = Topic(queue, made), Handlers()
    handled: dict[str, list[int]] = {"b": [], "c": []}

    @handlers.on(OrderPlaced, queue="a")
    async def moody(order: OrderPlaced) -> None:
        if order.order % 4 == 1:
            raise Discard("not for me")
        if order.order % 4 == 2:
            raise ConnectionError("away")
        if order.order % 4 == 3:
            raise Snooze(3600)

    for name in ("b", "c"):
        handlers.on(OrderPlaced, lambda order, to=handled[name]: to.append(order.order), queue=name)
    worker = Worker(queue, handlers, queues=["a", "b", "c"], max_attempts=2)
    working = asyncio.create_task(worker.run())

    for number in range(60):
        if number == 40:
            made.subscribe("orders", "c")
        await topic.publish(OrderPlaced(number), "orders")
    await eventually(lambda: len(handled["b"]) == 60 and len(handled["c"]) == 20, 20)

    async def the_moody_ones_are_settled() -> None:
        stats = await queue.stats("a")
        assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 15, 0, 30)

    await eventually(the_moody_ones_are_settled, 20)
    worker.stop()
    await working
    assert await queue.clear("a") == 15
    assert sorted(handled["b"]) == list(range(60))
    assert sorted(handled["c"]) == list(range(40, 60))
    assert {each.queue for each in await queue.failed.list(limit=100)} == {"a"}
    retried = (await queue.failed.list())[0]
    assert await queue.failed.retry(retried.id)
    assert [await queue.size(name) for name in ("a", "b", "c")] == [1, 0, 0]


# -- one act ---------------------------------------------------------------------------------------------


def small(backend: WholeBackend, *, is_one_act: bool = True, **limits: Any) -> Wrapper:
    """Return a store that suspends, with limits of its own."""
    wrapper = Wrapper(backend)
    wrapper.capabilities = replace(wrapper.capabilities, atomic_push=is_one_act, **limits)
    return wrapper


async def test_a_store_that_was_not_reached_has_no_copy_and_says_so_itself(memory: Place) -> None:
    queue, store = await memory.broken()
    topic = Topic(queue, subscriptions())

    store.break_down("push")
    with pytest.raises(ConnectionFailed):
        await topic.publish(OrderPlaced(7), "orders")
    store.recover()

    assert [await queue.size(name) for name in QUEUES] == [0, 0]


async def test_a_lost_reply_leaves_all_copies_or_none_in_doubt(memory: Place) -> None:
    queue, store = await memory.broken()

    store.lose_reply("push", times=1)
    with pytest.raises(OutcomeUnknown):
        await Topic(queue, subscriptions()).publish(OrderPlaced(7), "orders")

    assert [await queue.size(name) for name in QUEUES] == [1, 1]
    assert store.calls["push"] == 1


async def test_where_copies_are_no_one_act_each_queue_has_its_outcome(memory: Place) -> None:
    made: list[Wrapper] = []

    def wrap(backend: WholeBackend) -> Wrapper:
        made.append(small(backend, is_one_act=False, max_batch=1))
        return made[0]

    queue = await memory.queue(wrap=wrap)
    made[0].break_down("push", times=1)

    with pytest.raises(PublishManyError, match="1 of 2 jobs were not stored") as raised:
        await Topic(queue, subscriptions()).publish(OrderPlaced(7), "orders")

    assert isinstance(raised.value, PushManyError)
    stock, email = raised.value.outcomes
    assert raised.value.queues == {"orders-stock": stock, "orders-email": email}
    assert isinstance(stock, ConnectionFailed)
    delivery = await queue.pop(timeout=5, queues=["orders-email"])
    assert delivery is not None
    assert delivery.id == email
    assert await queue.size("orders-stock") == 0


@pytest.mark.rule("TOPIC-1", "PUSH-6")
async def test_copies_travel_in_one_batch_among_others_and_keep_the_order(memory: Place) -> None:
    made: list[Wrapper] = []

    def wrap(backend: WholeBackend) -> Wrapper:
        made.append(small(backend, max_batch=3))
        return made[0]

    queue = await memory.queue(wrap=wrap)
    topic = Topic(queue, subscriptions())
    pushes = [queue.push(OrderPlaced(number)) for number in range(2)]
    more = [queue.push(OrderPlaced(number)) for number in range(2, 4)]

    await asyncio.gather(*pushes, topic.publish(OrderPlaced(7), "orders"), *more)

    assert made[0].sizes["push"] == [2, 3, 1]
    assert [await queue.size(name) for name in ("default", *QUEUES)] == [4, 1, 1]


@pytest.mark.parametrize("is_one_act", [True, False], ids=["one act", "one by one"])
async def test_more_subscribers_than_one_act_takes_are_refused_with_nothing_sent(
    memory: Place, is_one_act: bool
) -> None:
    queue = await memory.queue(wrap=lambda backend: small(backend, is_one_act=is_one_act, max_batch=2))
    topic = Topic(queue, subscriptions().subscribe("orders", "orders-audit"))

    if is_one_act:
        with pytest.raises(InvalidQueueArgument, match="at most 2 jobs in one act, not 3"):
            await topic.publish(OrderPlaced(7), "orders")
    else:
        await topic.publish(OrderPlaced(7), "orders")

    sizes = [await queue.size(name) for name in [*QUEUES, "orders-audit"]]
    assert sizes == ([0, 0, 0] if is_one_act else [1, 1, 1])


async def test_copies_too_heavy_for_one_act_are_refused_with_nothing_sent(memory: Place) -> None:
    limits: dict[str, Any] = {"max_batch_bytes": 100, "max_message_bytes": 400}
    queue = await memory.queue(wrap=lambda backend: small(backend, **limits))
    made = subscriptions()
    await Topic(queue, made).publish(OrderPlaced(1), "orders")  # heavier than a batch, but no more than a job
    for number in range(3):
        made.subscribe("orders", f"more-{number}")

    with pytest.raises(UnserializableJob, match="5 jobs that go together take"):
        await Topic(queue, made).publish(OrderPlaced(2), "orders")

    assert [await queue.size(name) for name in made.queues("orders")] == [1, 1, 0, 0, 0]


@pytest.mark.rule("TOPIC-1", "PUSH-11")
async def test_a_cancelled_publish_leaves_all_copies_or_none(any_place: Place) -> None:
    queue = await any_place.queue()
    topic = Topic(queue, subscriptions())

    for turns in range(12):
        publishing = asyncio.create_task(topic.publish(OrderPlaced(turns), "orders"))
        for _ in range(turns):
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
    await topic.publish(OrderPlaced(99), "orders")

    sizes = [await queue.size(name) for name in QUEUES]
    assert sizes[0] == sizes[1] >= 1


@pytest.mark.rule("TOPIC-1", "PUSH-7")
async def test_jobs_of_one_push_many_go_together_when_asked(memory: Place) -> None:
    queue, store = await memory.broken()
    jobs = [OrderPlaced(1), OrderPlaced(2)]

    ids = await queue.push_many(jobs, together=True)
    assert len(set(ids)) == await queue.size() == 2
    assert await queue.push_many([], together=True) == []
    store.break_down("push")

    with pytest.raises(ConnectionFailed):
        await queue.push_many(jobs, together=True)
    with pytest.raises(PushManyError):
        await queue.push_many(jobs)


async def test_copies_need_a_queue(memory: Place) -> None:
    with pytest.raises(InvalidQueueArgument, match="no queue at all"):
        await (await memory.queue()).push_copies(OrderPlaced(1), [])


@pytest.mark.rule("TOPIC-1", "SYNC-1")
async def test_on_inline_every_copy_runs_and_one_that_fails_is_named() -> None:
    handlers, ran = Handlers(), list[str]()
    error = ValueError("no mail server")

    @handlers.on(OrderPlaced, queue="orders-stock")
    async def reserve(order: OrderPlaced) -> None:
        raise error

    handlers.on(OrderPlaced, lambda order: ran.append("email"), queue="orders-email")
    async with connect("inline://", handlers=handlers) as queue:
        with pytest.raises(PublishManyError) as raised:
            await Topic(queue, subscriptions()).publish(OrderPlaced(7), "orders")

    assert raised.value.queues["orders-stock"] is error
    assert isinstance(raised.value.queues["orders-email"], str)
    assert ran == ["email"]
