"""SQS as a store: its URLs, its limits, and what it says about each entry of a batch."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from servers import sqs
from servers.reach import check_reachable
from servers.sqs_tap import Tap
from support.working import counts, logged, running

from aqueue import (
    ConnectionFailed,
    Delivery,
    FailedStoreMissing,
    InvalidQueueArgument,
    MalformedJobSettled,
    PushManyError,
    Queue,
    StaleDelivery,
    StoreRefused,
    UnserializableJob,
    Worker,
    connect,
    job,
)
from aqueue.backends.sqs import SQSBackend, from_url
from aqueue.backends.sqs.bodies import MOST_BYTES, body_of
from aqueue.backends.sqs.inbox import Inbox
from aqueue.backends.sqs.receipts import Receipt
from aqueue.port import Message, Reserved, StoreOptions, Verdict
from aqueue.testing import eventually
from aqueue.urls import parse_url

_SERVER = "sqs://127.0.0.1:9/?region=us-east-1"
ran: list[str] = []


@job(name="sqs.note")
class Note:
    text: str

    async def handle(self) -> None:
        ran.append(self.text)


@pytest.fixture
def server() -> sqs.SQSServer:
    check_reachable("sqs", sqs.ministack_missing())
    ran.clear()
    return sqs.shared_ministack()


@pytest.fixture
def region() -> str:
    return sqs.fresh_region()


def made(url: str, *, lease: float = 60.0) -> SQSBackend:
    return from_url(parse_url(url), StoreOptions(lease=lease, clock=lambda: 0.0))


@pytest.fixture
async def backend(server: sqs.SQSServer, region: str) -> AsyncIterator[SQSBackend]:
    backend = made(server.url(region))
    await backend.open()
    yield backend
    await backend.aclose()


# -- URLs


@pytest.mark.parametrize(
    ("url", "region", "endpoint"),
    [
        ("sqs://eu-west-1", "eu-west-1", None),
        ("sqs://us-gov-west-1?create=true&prefix=shop-", "us-gov-west-1", None),
        ("sqs://key:secret@cn-north-1", "cn-north-1", None),
        ("sqs://localhost:4566?region=us-east-1", "us-east-1", "http://localhost:4566"),
        ("sqs://queue.example?region=here&tls=true", "here", "https://queue.example"),
        ("sqs://[::1]:4566/?region=us-east-1&tls=false", "us-east-1", "http://[::1]:4566"),
    ],
)
def test_a_url_names_a_region_or_a_server(url: str, region: str, endpoint: str | None) -> None:
    settings = made(url)._settings

    assert (settings.region, settings.endpoint) == (region, endpoint)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqs://", "names a region or one server"),
        ("sqs://a:1,b:2?region=us-east-1", "one server"),
        ("sqs://eu-west-1/orders", "no path"),
        ("sqs://localhost", "not a region"),
        ("sqs://localhost:4566", "needs the region"),
        ("sqs://eu-west-1?tls=true", "tls"),
        ("sqs://key@eu-west-1", "access key"),
        ("sqs://eu-west-1?fifo=true", "unknown option.*create.*prefix"),
        ("sqs://eu-west-1?prefix=orders.fifo", "prefix"),
        ("sqs://eu-west-1?create=maybe", "create"),
        ("sqs://eu-west-1?connections=0", "connections"),
        ("sqs://host:1?region=EU%20West", "region"),
    ],
)
def test_a_url_that_can_not_be_meant_is_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidQueueArgument, match=why):
        connect(url)


async def test_keys_in_the_url_are_shown_nowhere() -> None:
    queue = connect("sqs://AKIASECRET:s3cr3t@127.0.0.1:9?region=us-east-1")
    with logged() as log:
        async with queue:
            with pytest.raises(ConnectionFailed, match="can't be reached") as caught:
                await queue.push(Note("x"))

    backend = made("sqs://AKIASECRET:s3cr3t@127.0.0.1:9?region=us-east-1")
    shown = [repr(queue), repr(backend), repr(backend._settings), str(caught.value), *log.messages()]
    assert not [text for text in shown if "s3cr3t" in text or "AKIASECRET" in text]


async def test_without_credentials_nothing_is_sent_and_the_error_says_what_to_do(
    server: sqs.SQSServer, region: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    url = f"sqs://{server.host}:{server.port}?region={region}"

    async with connect(url) as queue:
        with pytest.raises(ConnectionFailed, match=r"no AWS credentials.*AWS_PROFILE"):
            await queue.push(Note("x"))


async def test_credentials_come_from_where_botocore_looks_for_them(
    server: sqs.SQSServer, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "111122223333")  # ministack takes the key for the account
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with connect(f"sqs://{server.host}:{server.port}?region={region}&create=true") as queue:
        await queue.push(Note("x"))
        assert await queue.size() == 1
    async with connect(server.url(region)) as stranger:
        assert await stranger.size() == 0


# -- queues


async def test_a_missing_queue_is_refused_and_not_made(server: sqs.SQSServer, region: str) -> None:
    async with connect(server.url(region, more="")) as queue:
        for call in (lambda: queue.push(Note("x")), lambda: queue.pop_now(1), queue.size):
            with pytest.raises(StoreRefused, match=r"no queue 'default'.*create=true"):
                await call()
        with pytest.raises(StoreRefused, match="no queue 'default'"):
            await queue.wait(1)

    assert server.ask("ListQueues", region).get("QueueUrls", []) == []


async def test_a_queue_is_made_where_that_was_asked_for_and_keeps_jobs_for_two_weeks(
    server: sqs.SQSServer, region: str
) -> None:
    async with connect(server.url(region, more="&create=true&prefix=shop-")) as queue:
        await asyncio.gather(*(queue.push(Note("x"), queue=name) for name in ("a", "b", "a", "b")))
        assert await queue.size("a") == 2

    names = sorted(url.rpartition("/")[2] for url in server.ask("ListQueues", region)["QueueUrls"])
    assert names == ["shop-a", "shop-b"]
    url = server.ask("GetQueueUrl", region, QueueName="shop-a")["QueueUrl"]
    told = server.ask("GetQueueAttributes", region, QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert told["MessageRetentionPeriod"] == str(14 * 24 * 3600)


async def test_a_name_too_long_with_its_prefix_is_refused(server: sqs.SQSServer, region: str) -> None:
    async with connect(server.url(region, more="&create=true&prefix=shop-")) as queue:
        await queue.push(Note("x"), queue="a" * 75)
        with pytest.raises(StoreRefused, match="more than 80"):
            await queue.push(Note("x"), queue="a" * 76)


async def test_a_queue_that_was_deleted_and_made_anew_is_found_again(
    server: sqs.SQSServer, region: str
) -> None:
    async with connect(server.url(region, more="")) as queue:
        url = server.ask("CreateQueue", region, QueueName="default")["QueueUrl"]
        await queue.push(Note("x"))
        server.ask("DeleteQueue", region, QueueUrl=url)
        with pytest.raises(StoreRefused, match="no queue"):
            await queue.push(Note("x"))
        server.ask("CreateQueue", region, QueueName="default")
        await queue.push(Note("x"))
        assert await queue.size() == 1


async def test_a_fifo_queue_is_refused(server: sqs.SQSServer, region: str) -> None:
    url = server.ask("CreateQueue", region, QueueName="default")["QueueUrl"]
    server.ask("SetQueueAttributes", region, QueueUrl=url, Attributes={"FifoQueue": "true"})

    async with connect(server.url(region)) as queue:
        with pytest.raises(StoreRefused, match="FIFO"):
            await queue.push(Note("x"))


# -- what a message holds

_PAYLOADS = (
    *(b"", b"\x00", b"\xff\xfe", b"a\rb", b"base64:", "\ufffe".encode(), "\uffff".encode(), b"\n\t", b" "),
    *("🦆 ünïcødé \x7f\x85".encode(), b'{"v":1}', bytes(range(256)), b"\xed\xa0\x80"),
)


async def test_any_bytes_come_back_as_they_were(backend: SQSBackend) -> None:
    """SQS takes some characters only, so what is no such text travels in another form (MAL-1)."""
    messages = [Message(f"{number:032x}", "default", payload) for number, payload in enumerate(_PAYLOADS)]
    assert await backend.push(messages) == [None] * len(messages)

    taken = await backend.pop(["default"], 100)

    assert {item.id: item.payload for item in taken} == {item.id: item.payload for item in messages}


def test_what_is_text_travels_as_it_is_and_everything_else_in_characters_that_sqs_takes() -> None:
    readable = body_of(Message("0" * 32, "default", '{"text":"🦆 \x7f"}'.encode()))
    assert readable.entry["MessageBody"] == '{"text":"🦆 \x7f"}'

    for payload in _PAYLOADS:
        entry, size = body_of(Message("0" * 32, "default", payload, 7.2))
        attribute = entry["MessageAttributes"]["aqueue"]
        assert entry["MessageBody"]
        assert not set(entry["MessageBody"]) & {"\x00", "\r", "\ufffe", "\uffff"}
        assert entry["DelaySeconds"] == 8
        texts = ("aqueue", attribute["DataType"], attribute["StringValue"], entry["MessageBody"])
        assert size == sum(len(text.encode()) for text in texts)


@pytest.mark.rule("MAL-1")
async def test_a_message_that_somebody_else_sent_is_set_aside_as_it_is(
    server: sqs.SQSServer, region: str
) -> None:
    labels = ("no json", '{"id":"short"}', '{"id":"' + "0" * 32 + '","base64":true}', "[]")
    async with connect(server.url(region), failed="memory://") as queue:
        await queue.size()
        url = server.ask("GetQueueUrl", region, QueueName="default")["QueueUrl"]
        server.ask("SendMessage", region, QueueUrl=url, MessageBody="<order>7</order>")
        for label in labels:
            attribute = {"aqueue": {"DataType": "String", "StringValue": label}}
            server.ask("SendMessage", region, QueueUrl=url, MessageBody="ähm", MessageAttributes=attribute)

        while await queue.failed.count() < 1 + len(labels):
            with pytest.raises(MalformedJobSettled):
                await queue.pop(timeout=5)

        failed = await queue.failed.list()
        assert sorted(each.payload for each in failed) == [
            b"<order>7</order>",
            *["ähm".encode()] * len(labels),
        ]
        assert len({each.id for each in failed}) == len(failed)
        assert await counts(queue) == (0, 0, 0, 0)


@pytest.mark.filterwarnings(
    "ignore:Sending a large body"
)  # aiohttp's advice; a mebibyte is copied in no time
async def test_a_job_as_large_as_a_message_may_be_is_stored_and_one_byte_more_is_refused(
    region: str,
) -> None:
    """With its attribute it takes a mebibyte exactly; batches are cut so that none is larger (case O-22)."""
    check_reachable("sqs-moto", sqs.moto_missing())
    backend = made(sqs.shared_moto().url(region))
    await backend.open()
    most = MOST_BYTES - body_of(Message("0" * 32, "default", b"x")).size + 1
    payloads = ["é".encode() * (most // 2) + b"x" * (most % 2), b"x" * (most - 1), b"x" * (most + 1)]
    payloads += [b"x" * 300_000] * 10

    answers = await backend.push(
        [Message(f"{number:032x}", "default", payload) for number, payload in enumerate(payloads)]
    )

    assert [type(answer) for answer in answers] == [type(None)] * 2 + [UnserializableJob] + [type(None)] * 10
    assert str(MOST_BYTES) in str(answers[2])
    assert str(MOST_BYTES + 1) in str(answers[2])
    assert (await backend.stats("default")).ready == len(payloads) - 1
    await backend.aclose()


async def test_a_job_beyond_the_queues_own_limit_is_refused_and_its_neighbours_are_stored(
    server: sqs.SQSServer, region: str
) -> None:
    url = server.ask("CreateQueue", region, QueueName="default")["QueueUrl"]
    server.ask("SetQueueAttributes", region, QueueUrl=url, Attributes={"MaximumMessageSize": "2048"})

    async with connect(server.url(region)) as queue:
        with pytest.raises(PushManyError) as caught:
            await queue.push_many([Note("a"), Note("x" * 3000), Note("b")])

        first, large, last = caught.value.outcomes
        assert isinstance(large, UnserializableJob)
        assert "2048" in str(large)
        assert {delivery.id for delivery in await queue.pop_many(5)} == {first, last}


# -- each entry for itself


@pytest.mark.rule("PUSH-7")
async def test_an_entry_that_sqs_refuses_fails_alone(server: sqs.SQSServer, region: str) -> None:
    async with connect(server.url(region)) as queue:
        await queue.push(Note("finds the queue"))
        url = server.ask("GetQueueUrl", region, QueueName="default")["QueueUrl"]
        server.ask("SetQueueAttributes", region, QueueUrl=url, Attributes={"MaximumMessageSize": "1024"})

        with pytest.raises(PushManyError) as caught:
            await queue.push_many([Note("a"), Note("x" * 2000), Note("b")])

        first, refused, last = caught.value.outcomes
        assert isinstance(refused, StoreRefused)
        assert "InvalidParameterValue" in str(refused)
        assert isinstance(first, str)
        assert isinstance(last, str)
        assert await queue.size() == 3


@pytest.mark.rule("FENCE-1")
async def test_a_settlement_that_sqs_refuses_is_stale_and_its_neighbours_are_settled(
    server: sqs.SQSServer, region: str
) -> None:
    async with connect(server.url(region)) as queue:
        await queue.push_many(Note(str(number)) for number in range(5))
        deliveries = await queue.pop_many(5)
        url = server.ask("GetQueueUrl", region, QueueName="default")["QueueUrl"]
        receipt = deliveries[2].receipt
        assert isinstance(receipt, Receipt)
        server.ask("DeleteMessage", region, QueueUrl=url, ReceiptHandle=receipt.handle)

        answers = await queue.extend_many(deliveries)
        assert list(answers) == [
            Verdict.SETTLED,
            Verdict.SETTLED,
            Verdict.STALE,
            Verdict.SETTLED,
            Verdict.SETTLED,
        ]
        outcomes = await asyncio.gather(*(queue.ack(each) for each in deliveries), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [StaleDelivery] + [
            type(None)
        ] * 2
        assert await counts(queue) == (0, 0, 0, 0)


async def test_trouble_with_one_queue_is_no_trouble_of_another(server: sqs.SQSServer, region: str) -> None:
    server.ask("CreateQueue", region, QueueName="there")
    backend = made(server.url(region, more=""))
    await backend.open()

    stored = await backend.push([Message("a" * 32, "missing", b"{}"), Message("b" * 32, "there", b"{}")])

    assert "no queue" in str(stored[0])
    assert stored[1] is None
    assert [item.id for item in await backend.pop(["there", "missing"], 10)] == ["b" * 32]
    await backend.aclose()


# -- leases and pauses


@pytest.mark.rule("LEASE-3")
async def test_a_renewal_asks_for_what_is_left_of_twelve_hours(server: sqs.SQSServer, region: str) -> None:
    async with Tap(server.port) as tap:
        backend = made(server.url(region, port=tap.port), lease=3600)
        await backend.open()
        await backend.push([Message("a" * 32, "default", b"{}")])
        [item] = await backend.pop(["default"], 1)
        assert isinstance(item.receipt, Receipt)
        old = Receipt(item.receipt.handle, item.id, since=monotonic() - 11.5 * 3600, lease=12 * 3600)

        assert await backend.extend([_with(item, old)]) == [Verdict.SETTLED]

        [asked] = tap.asked("ChangeMessageVisibilityBatch")
        assert 1790 <= asked["Entries"][0]["VisibilityTimeout"] <= 1800
        await backend.aclose()


def _with(item: Reserved, receipt: Receipt) -> Reserved:
    return msgspec.structs.replace(item, receipt=receipt)


@pytest.mark.rule("REL-1")
async def test_a_pause_that_sqs_can_not_keep_is_refused_and_the_delivery_kept(
    server: sqs.SQSServer, region: str
) -> None:
    async with connect(server.url(region)) as queue:
        await queue.push_many([Note("a"), Note("b")])
        first, second = await queue.pop_many(2)

        with pytest.raises(InvalidQueueArgument, match=r"43200 s.*was not settled"):
            await queue.release(first, delay=12 * 3600 + 1)

        await queue.release(first, delay=12 * 3600 - 60)
        await queue.ack(second)
        assert await counts(queue) == (0, 0, 1, 0), "a paused job stays in flight"


@pytest.mark.rule("ATT-3")
async def test_a_job_handed_out_more_often_than_it_may_fail_and_be_lost_is_set_aside(
    server: sqs.SQSServer, region: str
) -> None:
    """SQS counts hand-outs alone: those beyond the cap and `max_lost` end the job."""
    async with connect(server.url(region), failed="memory://") as queue:
        await queue.push(Note("capped"), max_attempts=2)
        worker = Worker(queue, [Note], max_lost=1)
        for attempt in (1, 2, 3):
            [delivery] = await queue.pop_many(1)
            assert (delivery.attempt, delivery.lost) == (attempt, 0)
            await queue.release(delivery, counted=False)

        assert await worker.run_all() == 1

        assert ran == []
        [failed] = await queue.failed.list()
        assert (failed.reason, failed.attempts) == ("lost", 3)
        assert "4 times" in failed.error

        await queue.push(Note("not yet"))
        await queue.release(await _only(queue.pop_many(1)), counted=False)
        assert await Worker(queue, [Note], max_lost=2).run_all() == 1
        assert ran == ["not yet"]


async def _only(popping: Awaitable[Sequence[Delivery]]) -> Delivery:
    [delivery] = await popping
    return delivery


# -- failed jobs


@pytest.mark.rule("FAIL-1")
async def test_without_a_failed_store_opening_warns_once_and_failing_logs_and_removes(
    server: sqs.SQSServer, region: str
) -> None:
    with logged("aqueue.queue") as log:
        async with connect(server.url(region)) as queue:
            await queue.push(Note("x"))
            [warning] = log.messages(logging.WARNING)
            assert "failed=" in warning
            [delivery] = await queue.pop_many(1)
            await queue.fail(delivery, "no such user")

            assert await counts(queue) == (0, 0, 0, 0)
            with pytest.raises(FailedStoreMissing, match="failed="):
                await queue.failed.list()
        [line] = log.messages(logging.ERROR)
    assert delivery.id in line
    assert "no such user" in line


@pytest.mark.rule("FAIL-1", "FAIL-2")
async def test_failed_jobs_are_kept_in_the_store_that_was_named(
    server: sqs.SQSServer, region: str, tmp_path: Path
) -> None:
    with logged("aqueue.queue") as log:
        async with connect(server.url(region), failed=f"sqlite:///{tmp_path}/failed.db") as queue:
            id = await queue.push(Note("x"))
            await queue.fail(await _only(queue.pop_many(1)), "no such user")
            assert [(each.id, each.reason) for each in await queue.failed.list()] == [(id, "no such user")]

            assert await queue.failed.retry(id)
            delivery = await _only(queue.pop_many(1))
            assert (delivery.id, delivery.attempt) == (id, 1)
    assert log.messages() == []


def test_sqs_keeps_no_failed_jobs_for_others() -> None:
    with pytest.raises(FailedStoreMissing, match="aws_sqs"):
        connect("memory://", failed=_SERVER)


# -- what has arrived and was not taken


@pytest.mark.rule("POP-6")
async def test_what_a_long_poll_brings_after_its_pop_was_cancelled_goes_back(
    server: sqs.SQSServer, region: str
) -> None:
    url = server.url(region)
    async with connect(url) as idle, connect(url) as other:
        await _poll_and_leave(idle)
        id = await other.push(Note("x"))

        delivery = await _only(other.pop_many(1, timeout=10))

        assert delivery.id == id
        assert delivery.attempt <= 2


@pytest.mark.rule("POP-6")
async def test_closing_gives_back_what_a_long_poll_brought(server: sqs.SQSServer, region: str) -> None:
    url = server.url(region)
    async with connect(url) as other:
        async with connect(url) as idle:
            await _poll_and_leave(idle)
            await other.push(Note("x"))
            await eventually(lambda: server.counts(region=region)[2] == 1)
        assert server.counts(region=region) == (1, 0, 0)


@pytest.mark.rule("POP-6")
async def test_what_a_long_poll_brought_is_the_next_pops(server: sqs.SQSServer, region: str) -> None:
    url = server.url(region)
    async with connect(url) as idle, connect(url) as other:
        await _poll_and_leave(idle)
        id = await other.push(Note("x"))
        await eventually(lambda: server.counts(region=region)[2] == 1)

        delivery = await _only(idle.pop_many(1, timeout=10))

        assert delivery.id == id
        assert delivery.attempt <= 2, "on a busy machine the second for which it is kept may be over"


def polls(queue: Queue) -> int:
    """Return how many queues are being polled."""
    backend = queue._store.backend
    assert isinstance(backend, SQSBackend)
    return len(backend._handouts._polls)


async def _poll_and_leave(queue: Queue) -> None:
    """Let a pop begin its long poll, and cancel it."""
    await queue.size()
    popping = asyncio.create_task(queue.pop(timeout=0))
    await eventually(lambda: polls(queue) == 1)
    popping.cancel()
    await asyncio.wait({popping})


@pytest.mark.rule("POP-3", "CALL-1")
async def test_long_polls_hold_up_no_other_call(server: sqs.SQSServer, region: str) -> None:
    async with connect(server.url(region, more="&create=true&connections=1")) as queue:
        names = [f"queue-{number}" for number in range(12)]
        popping = asyncio.create_task(queue.pop(timeout=0, queues=names))
        await eventually(lambda: polls(queue) == len(names))

        id = await queue.push(Note("x"), queue=names[-1])

        delivery = await popping
        assert delivery is not None
        assert delivery.id == id


def test_an_inbox_hands_out_nothing_whose_time_is_over() -> None:
    inbox, now = Inbox(), monotonic()
    over = Reserved("a" * 32, "q", b"", Receipt("h1", "a", since=now - 2, lease=1), 1)
    fresh = [Reserved(f"{n}" * 32, "q", b"", Receipt(f"h{n}", "b", since=now, lease=60), 1) for n in range(3)]
    inbox.put([over])
    assert not inbox.holds(["q"])
    inbox.put(fresh[1:])
    inbox.put_back(fresh[:1])

    assert inbox.holds(["other", "q"])
    assert inbox.take("other", 5) == []
    assert inbox.take("q", 2) == fresh[:2]
    assert inbox.take_older_than(60) == []
    assert inbox.take_older_than(0) == fresh[2:]
    assert not inbox.holds(["q"])


@pytest.mark.rule("STOP-1")
async def test_a_worker_that_stops_while_it_polls_ends_at_once(server: sqs.SQSServer, region: str) -> None:
    async with connect(server.url(region)) as queue:
        await queue.size()
        async with running(Worker(queue, [Note])) as task:
            await eventually(lambda: polls(queue) == 1)
        assert task.done()


def test_base64_is_only_unwrapped_where_the_attribute_says_so() -> None:
    entry, _ = body_of(Message("0" * 32, "default", b"\x00"))

    assert base64.b64decode(entry["MessageBody"].removeprefix("base64:")) == b"\x00"
    assert '"base64":true' in entry["MessageAttributes"]["aqueue"]["StringValue"]
