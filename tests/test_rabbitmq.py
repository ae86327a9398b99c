"""What is RabbitMQ's own: its URLs, confirms, ladder of delays, consumers and failed queues."""

import asyncio
import time
from collections.abc import AsyncIterator

import aio_pika
import pytest
from servers.rabbitmq import fresh_url, unreachable
from servers.rabbitmq_peek import channel_on, delete, messages, publish
from servers.reach import check_reachable
from support.working import running

from aqueue import (
    Delivery,
    InvalidQueueArgument,
    MalformedJobSettled,
    PublishNotConfirmed,
    PushManyError,
    Queue,
    StoreRefused,
    Unsupported,
    Worker,
    connect,
    job,
)
from aqueue.backends.rabbitmq import names as naming
from aqueue.backends.rabbitmq import wire
from aqueue.backends.rabbitmq.settings import settings_from
from aqueue.port import LeaseKind
from aqueue.testing import eventually
from aqueue.urls import parse_url

TYPES = ("quorum", "classic")


@job(name="rabbitmq.note")
class Note:
    text: str


@job(name="rabbitmq.slow")
class Slow:
    """Runs until the test lets it end."""

    async def handle(self) -> None:
        begun.append(1)
        await gates[-1].wait()


gates: list[asyncio.Event] = []
begun: list[int] = []


@pytest.fixture(params=TYPES)
def url(request: pytest.FixtureRequest) -> str:
    check_reachable("rabbitmq", unreachable())
    return fresh_url(request.param)


@pytest.fixture
async def queue(url: str) -> AsyncIterator[Queue]:
    async with connect(url) as queue:
        yield queue


def prefixed(url: str, name: str) -> str:
    """Return what a queue is called in the broker."""
    return f"{url.rpartition('prefix=')[2]}.{name}"


# Connection URLs


@pytest.mark.rule("FACE-1")
def test_a_url_names_the_virtual_host_and_the_user() -> None:
    settings = settings_from(parse_url("amqp://me:p%40ss@one:5673,two/jobs?queue_type=CLASSIC&prefetch=7"))

    assert settings.identity.vhost == "jobs"
    assert (settings.identity.username, settings.identity.password) == ("me", "p@ss")
    assert (settings.queue_type, settings.prefetch, settings.heartbeat) == ("classic", 7, 20.0)
    for path in ("", "/", "/%2F"):
        assert settings_from(parse_url(f"amqp://host{path}")).identity.vhost == "/"


@pytest.mark.rule("FACE-1")
@pytest.mark.parametrize(
    "url",
    [
        "amqp://", "amqp://host?colour=red", "amqp://host?queue_type=stream", "amqp://host?prefetch=0",
        "amqp://host?prefetch=many", "amqp://host?prefix=a.b", "amqp://host?heartbeat=1.5", "amqp://me@host",
        "amqp://host?confirm_timeout=0", "amqp://host?confirm_timeout=nan", "amqp://host?tls_ca=x",
        "amqps://host?tls_verify=perhaps", "amqps://host?tls_key=k", "amqps://host?tls_ca=",
    ],
)  # fmt: skip
def test_what_a_url_cant_mean_is_refused(url: str) -> None:
    with pytest.raises(InvalidQueueArgument):
        connect(url)


@pytest.mark.rule("FACE-1")
def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidQueueArgument, match=r"colour; known: .*heartbeat, prefetch, prefix, queue_type"
    ):
        connect("amqp://host?colour=red")


@pytest.mark.rule("FACE-1")
def test_no_secret_is_shown() -> None:
    queue = connect("amqp://me:hush@host/jobs")
    settings = settings_from(parse_url("amqp://me:hush@host/jobs"))

    for shown in (repr(queue), repr(settings), repr(settings.identity), str(settings.url)):
        assert "hush" not in shown


@pytest.mark.rule("CONF-1")
def test_what_it_can_do_depends_on_the_kind_of_queue() -> None:
    quorum = connect("amqp://host").capabilities
    classic = connect("amqp://host?queue_type=classic").capabilities

    assert (quorum.lease, quorum.longest_delay, quorum.idempotent_push) == (
        LeaseKind.CHANNEL,
        4_194_303,
        False,
    )
    assert (quorum.counts_lost, quorum.ordered) == (True, False)
    assert (classic.counts_lost, classic.ordered) == (False, True)


@pytest.mark.rule("PUSH-10")
async def test_an_id_cant_be_chosen(queue: Queue) -> None:
    with pytest.raises(Unsupported, match="rabbitmq"):
        await queue.push(Note("x"), id="a" * 32)


# What is written


@pytest.mark.rule("PUSH-3")
async def test_a_message_is_persistent_and_carries_its_jobs_id_and_one_of_its_own(
    url: str, queue: Queue
) -> None:
    ids = [await queue.push(Note("a")), *await queue.push_many([Note("b"), Note("c")])]

    found = await messages(url, prefixed(url, "default"))

    assert [message.correlation_id for message in found] == ids
    assert len({message.message_id for message in found}) == 3
    assert {message.delivery_mode for message in found} == {aio_pika.DeliveryMode.PERSISTENT}
    assert not any(name.startswith("aqueue") for message in found for name in message.headers)


@pytest.mark.rule("REL-1", "ATT-1")
async def test_a_released_copy_is_a_new_message_without_the_brokers_marks(url: str) -> None:
    async with connect(url) as queue:
        id = await queue.push(Note("a"), delay=0.5)
        delivery = await queue.pop(timeout=10)
        assert delivery is not None
        await queue.release(delivery)

    [copy] = await messages(url, prefixed(url, "default"))

    assert copy.correlation_id == id
    assert copy.headers["aqueue-attempts"] == 1
    assert "x-death" not in copy.headers


@pytest.mark.rule("PUSH-3")
@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
async def test_a_payload_of_any_length_comes_back_whole(queue: Queue, size: int) -> None:
    text = "é" * (size // 2)
    await queue.push(Note(text))

    delivery = await queue.pop(timeout=10)

    assert delivery is not None
    assert delivery.job(Note) == Note(text)


# Confirms


@pytest.mark.rule("PUSH-5")
async def test_a_push_to_a_queue_that_was_deleted_is_not_confirmed_and_the_next_one_makes_it_anew(
    url: str, queue: Queue
) -> None:
    await queue.push(Note("lost with the queue"))
    await delete(url, prefixed(url, "default"))

    with pytest.raises(PublishNotConfirmed, match="no queue takes it") as caught:
        await queue.push(Note("unroutable"))
    assert caught.value.job_id is not None

    id = await queue.push(Note("stored"))
    delivery = await queue.pop(timeout=10)
    assert delivery is not None
    assert (delivery.id, delivery.args) == (id, {"text": "stored"})


@pytest.mark.rule("PUSH-5", "PUSH-6")
async def test_an_unroutable_job_touches_no_other_that_travels_with_it(url: str, queue: Queue) -> None:
    await asyncio.gather(queue.push(Note("x"), queue="gone"), queue.push(Note("x"), queue="there"))
    await delete(url, prefixed(url, "gone"))

    outcomes = await asyncio.gather(
        *(queue.push(Note(str(n)), queue="gone" if n % 3 == 1 else "there") for n in range(9)),
        return_exceptions=True,
    )

    assert [isinstance(outcome, PublishNotConfirmed) for outcome in outcomes] == [
        n % 3 == 1 for n in range(9)
    ]
    assert await queue.size("there") == 7
    stored = {message.correlation_id for message in await messages(url, prefixed(url, "there"))}
    assert {outcome for outcome in outcomes if isinstance(outcome, str)} <= stored


@pytest.mark.rule("PUSH-7")
async def test_push_many_tells_which_jobs_were_not_confirmed(url: str, queue: Queue) -> None:
    await queue.push_many([Note("x")])
    await delete(url, prefixed(url, "default"))

    with pytest.raises(PushManyError) as caught:
        await queue.push_many([Note("a"), Note("b")])

    assert [type(outcome) for outcome in caught.value.outcomes] == [PublishNotConfirmed] * 2
    assert len(await queue.push_many([Note("a"), Note("b")])) == 2


@pytest.mark.rule("PUSH-5")
async def test_a_ladder_that_was_deleted_costs_delayed_jobs_alone_one_push(url: str, queue: Queue) -> None:
    await queue.push(Note("x"), delay=1)
    async with channel_on(url) as channel:
        await channel.exchange_delete(prefixed(url, "default.delay.1s"))

    outcomes = await asyncio.gather(
        queue.push(Note("later"), delay=1), queue.push(Note("now")), return_exceptions=True
    )

    assert isinstance(outcomes[0], PublishNotConfirmed)
    assert isinstance(outcomes[1], str)
    assert await queue.push(Note("later"), delay=1)


@pytest.mark.rule("PUSH-4")
async def test_a_queue_of_another_kind_is_refused_with_what_to_look_at(url: str) -> None:
    other = url.replace("quorum", "classic") if "quorum" in url else url.replace("classic", "quorum")
    async with connect(url) as queue, connect(other) as mistaken:
        await queue.push(Note("x"))

        with pytest.raises(StoreRefused, match="queue_type"):
            await mistaken.push(Note("y"))
        with pytest.raises(StoreRefused, match="queue_type"):
            await mistaken.pop_now(1)

        assert await mistaken.push(Note("z"), queue="another")
        assert await queue.size() == 1


# The ladder


@pytest.mark.rule("DELAY-1")
@pytest.mark.parametrize("seconds", [1, 2, 3, 600, 3600, 2**21, naming.LONGEST_DELAY])
def test_the_tiers_of_a_delay_add_up_to_it(seconds: int) -> None:
    bits = naming.bits(seconds).split(".")

    assert len(bits) == naming.TIERS
    assert sum(2 ** (naming.TIERS - 1 - place) for place, bit in enumerate(bits) if bit == "1") == seconds
    highest = 1 << (seconds.bit_length() - 1)
    assert naming.Names("", "quorum").entrance("q", seconds) == f"q.delay.{highest}s"


@pytest.mark.rule("DELAY-1")
async def test_a_short_delay_is_not_held_up_by_a_long_one(queue: Queue) -> None:
    long = await queue.push(Note("long"), delay=3600)
    started = time.monotonic()
    short = await queue.push(Note("short"), delay=3)

    delivery = await queue.pop(timeout=20)

    assert delivery is not None
    assert delivery.id == short != long
    assert time.monotonic() - started >= 3
    stats = await queue.stats()
    assert (stats.ready, stats.delayed) == (0, 1)


@pytest.mark.rule("DELAY-1")
async def test_delays_over_several_tiers_come_on_time(queue: Queue) -> None:
    loop = asyncio.get_running_loop()
    delays: dict[str, int] = {}
    asked: dict[str, float] = {}
    for seconds in (1, 3, 5, 6, 7):
        before = loop.time()
        id = await queue.push(Note("x"), queue=f"after-{seconds}", delay=seconds)
        delays[id], asked[id] = seconds, before
    came: dict[str, float] = {}

    while len(came) < len(delays):
        for delivery in await queue.pop_many(5, timeout=20, queues=[f"after-{n}" for n in delays.values()]):
            came[delivery.id] = loop.time() - asked[delivery.id]

    for id, seconds in delays.items():
        assert seconds <= came[id] <= seconds + 15, f"{seconds} s took {came[id]:.2f} s"


@pytest.mark.rule("DELAY-1")
async def test_a_part_of_a_second_is_rounded_up(url: str, queue: Queue) -> None:
    started = time.monotonic()
    await queue.push(Note("x"), delay=2.01)

    async with channel_on(url) as channel:
        counts = [
            (await channel.get_queue(prefixed(url, f"default.delay.{n}s"))).declaration_result.message_count
            for n in (1, 2)
        ]

    assert counts == [0, 1]
    assert await queue.pop(timeout=20) is not None
    assert time.monotonic() - started >= 3


@pytest.mark.rule("DELAY-1", "ATT-1")
async def test_a_released_job_waits_on_the_ladder_too(queue: Queue) -> None:
    await queue.push(Note("x"))
    delivery = await queue.pop(timeout=10)
    assert delivery is not None

    await queue.release(delivery, delay=1.5)

    assert (await queue.stats()).delayed == 1
    again = await queue.pop(timeout=20)
    assert again is not None
    assert (again.id, again.attempt) == (delivery.id, 2)


@pytest.mark.rule("PUSH-2", "REL-1")
async def test_a_release_for_longer_than_the_ladder_is_refused_and_the_delivery_kept(queue: Queue) -> None:
    await queue.push(Note("x"))
    delivery = await queue.pop(timeout=10)
    assert delivery is not None

    with pytest.raises(StoreRefused, match="4194303"):
        await queue.release(delivery, delay=naming.LONGEST_DELAY + 1)

    await queue.ack(delivery)


@pytest.mark.rule("CLEAR-1", "SIZE-1")
async def test_clearing_reaches_every_tier_and_the_connections_own_buffer(queue: Queue) -> None:
    for delay in (0, 0, 0, 1000, 3000, 100_000):
        await queue.push(Note("x"), delay=delay)
    held = await queue.pop_many(1, timeout=10)
    await queue.wait(0.01)  # so that another one lies ready on this side

    assert await queue.size() == 5
    assert await queue.clear("default") == 5
    assert await queue.size() == 0
    await queue.ack(held[0])
    assert await queue.clear("never-used") == 0


# Consumers and buffers


@pytest.mark.rule("POP-6", "ATT-1")
async def test_a_job_that_nobody_here_wants_any_more_goes_to_others_uncounted(url: str, queue: Queue) -> None:
    async with connect(url) as idle:
        waiting = asyncio.create_task(idle.pop(timeout=60))
        await idle.pop_now(1, queues=["elsewhere"])
        waiting.cancel()
        await asyncio.wait({waiting})
        id = await queue.push(Note("x"))  # the idle connection's consumer gets it

        delivery = await queue.pop(timeout=10)

        assert delivery is not None
        assert (delivery.id, delivery.attempt, delivery.lost) == (id, 1, 0)


@pytest.mark.rule("STOP-1", "ATT-1")
async def test_closing_gives_back_what_was_not_started_and_counts_what_was(url: str, queue: Queue) -> None:
    async with connect(url) as other:
        await other.pop_now(10)
        ids = await queue.push_many([Note(str(n)) for n in range(10)])
        await other.wait(10)
        [held] = await other.pop_now(1)

    found = [delivery for _ in ids for delivery in await queue.pop_many(1, timeout=10)]

    assert sorted(delivery.id for delivery in found) == sorted(ids)
    assert {(d.attempt, d.lost) for d in found if d.id != held.id} == {(1, 0)}
    lost = 1 if queue.capabilities.counts_lost else 0
    assert [(d.attempt, d.lost) for d in found if d.id == held.id] == [(1 + lost, lost)]


@pytest.mark.rule("WORK-2")
async def test_a_worker_with_busy_slots_leaves_the_rest_to_others(url: str) -> None:
    gates.append(asyncio.Event())
    begun.clear()
    async with connect(url) as first, connect(url) as second:
        await first.push_many([Slow() for _ in range(10)])
        worker = Worker(first, [Slow], concurrency=2)
        async with running(worker):
            await eventually(lambda: len(begun) == 2)

            async def the_rest_is_there() -> bool:
                return await second.size() == 8

            await eventually(the_rest_is_there, 10)
            assert len(await second.pop_many(8, timeout=10)) == 8
            gates[-1].set()


@pytest.mark.rule("POP-3")
async def test_an_arrival_wakes_a_waiting_pop_at_once(url: str, queue: Queue) -> None:
    async with connect(url) as pusher:
        popping = asyncio.create_task(queue.pop(timeout=60))
        await pusher.pop_now(1, queues=["elsewhere"])
        await asyncio.sleep(0.1)
        await pusher.push(Note("x"))

        async with asyncio.timeout(5):
            assert await popping is not None


@pytest.mark.rule("POP-1")
async def test_many_deliveries_of_one_queue_taken_one_by_one_need_few_consumers(
    url: str, queue: Queue
) -> None:
    await queue.push_many([Note("x") for _ in range(60)])

    held = [delivery for _ in range(60) for delivery in await queue.pop_many(1, timeout=10)]

    assert len({delivery.id for delivery in held}) == 60
    await asyncio.gather(*(queue.ack(delivery) for delivery in held))
    assert await queue.pop_now(1) == []
    async with channel_on(url) as channel:
        declared = (await channel.get_queue(prefixed(url, "default"))).declaration_result
    assert (declared.consumer_count or 0) <= 10


@pytest.mark.rule("WORK-8")
async def test_a_queue_deleted_under_a_worker_is_made_anew_and_the_worker_goes_on(url: str) -> None:
    done: list[str] = []

    @job(name="rabbitmq.done")
    class Done:
        text: str

        async def handle(self) -> None:
            done.append(self.text)

    async with connect(url) as queue, connect(url) as pusher, running(Worker(queue, [Done])):
        await pusher.push(Done("before"))
        await eventually(lambda: done == ["before"])
        await delete(url, prefixed(url, "default"))

        async def stored() -> bool:
            try:
                await pusher.push(Done("after"))
            except PublishNotConfirmed:
                return False
            return True

        await eventually(stored, 10)
        await eventually(lambda: done == ["before", "after"], 10)


# Failed jobs and foreign messages


@pytest.mark.rule("FAIL-1")
async def test_a_failed_job_lies_in_a_queue_of_its_own_with_its_bytes(url: str, queue: Queue) -> None:
    id = await queue.push(Note("x"))
    [delivery] = await queue.pop_many(1, timeout=10)
    await queue.fail(delivery, "no such user", error=ValueError("é\n" * 40_000), worker="host-7")

    assert (await queue.stats()).failed == 1
    [message] = await messages(url, prefixed(url, "default-failed"))

    about, _, payload = message.body.partition(b"\n")
    assert message.correlation_id == id
    assert payload == delivery.reserved.payload
    assert b'"reason":"no such user"' in about
    assert b'"worker":"host-7"' in about


@pytest.mark.rule("FAIL-2")
async def test_failed_jobs_go_back_with_fresh_counters(queue: Queue) -> None:
    ids = await queue.push_many([Note(str(n)) for n in range(250)])
    for _ in range(2):
        taken = await _all(queue, 250)
        await asyncio.gather(*(queue.fail(delivery) for delivery in taken))
        assert await queue.failed.count(queue="default") == 250
        assert await queue.failed.retry_all(queue="default") == 250

    back = await _all(queue, 250)
    assert sorted(delivery.id for delivery in back) == sorted(ids)
    assert {(delivery.attempt, delivery.lost) for delivery in back} == {(1, 0)}


async def _all(queue: Queue, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < count:
        found += await queue.pop_many(count - len(found), timeout=10)
    return found


@pytest.mark.rule("MAL-1")
@pytest.mark.parametrize(
    "message",
    [
        aio_pika.Message(b"not a job"),
        aio_pika.Message(b"{}", correlation_id="somebody", headers={"aqueue-attempts": "many"}),
        aio_pika.Message(b"", message_id="x", headers={"aqueue-lost": -3, "nested": {"a": [1, None]}}),
    ],
)
async def test_a_strangers_message_is_set_aside(url: str, queue: Queue, message: aio_pika.Message) -> None:
    await queue.pop_now(1)
    await publish(url, prefixed(url, "default"), message)

    with pytest.raises(MalformedJobSettled):
        await queue.pop(timeout=10)

    assert await queue.size() == 0
    [aside] = await messages(url, prefixed(url, "default-failed"))
    assert aside.body.partition(b"\n")[2] == message.body


@pytest.mark.rule("FAIL-2")
async def test_a_strangers_message_among_the_failed_stays_there_and_can_be_purged(
    url: str, queue: Queue
) -> None:
    await queue.push(Note("x"))
    [delivery] = await queue.pop_many(1, timeout=10)
    await queue.fail(delivery)
    await publish(url, prefixed(url, "default-failed"), aio_pika.Message(b"who wrote this"))

    assert await queue.failed.retry_all(queue="default") == 1

    async def stays() -> bool:
        return await queue.failed.count(queue="default") == 1

    await eventually(stays)
    assert await queue.failed.purge(queue="default") == 1


# Bytes


@pytest.mark.parametrize(("attempts", "lost"), [(0, 0), (3, 2), (0, 1), (2**40, 0)])
def test_what_is_written_is_read(attempts: int, lost: int) -> None:
    letter = wire.Letter(wire.address("", "q"), "a" * 32, b"body", attempts, lost, 1_700_000_000_123)
    frames = wire.message(1, letter, "word", 7, 4096)
    header = frames[len(letter.address) + 8 :]
    properties = header[19 : 7 + int.from_bytes(header[3:7], "big")]

    read = wire.read(properties)
    assert read == wire.Tidings("a" * 32, min(attempts, 2**31 - 1), lost, 1_700_000_000_123, 0)
    assert wire.number_of(properties, "word") == 7
    assert wire.number_of(properties, "another") is None


def test_properties_are_read_whoever_wrote_them() -> None:
    assert wire.read(b"\x00\x00") == wire.Tidings("", 0, 0, 0, 0)
    assert wire.read(b"\x20\x00\x00\x00\x00\x05junk") == wire.Tidings("", -1, -1, 0, 0)
    counted = b"\x20\x00\x00\x00\x00\x16\x10x-delivery-countI\x00\x00\x00\x07"
    assert wire.read(counted).redeliveries == 7
    ours = b"\x14\x80\x02\x01a"
    assert wire.read(ours + b"\x07its.own") == wire.Tidings("a", 0, 0, 0, 0)
    assert wire.read(ours + b"\x05w.1.x") == wire.Tidings("a", 0, 0, 0, 0)
