"""A `Sensitive` value appears on the wire, in its handler, where it was asked for, and nowhere else (WORK-5).

One secret is planted in jobs of every shape and sent down every road: refused, run, failed, lost, malformed,
listed, put back. Everything that comes out is kept, logs of all levels, spans, measurements, events, errors
with their causes, reprs, the command line's output, and searched for the secret in any spelling.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
import traceback
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pydantic
import pytest
import telemetry_sdk
from support.stores import Wrapper
from telemetry_sdk import Seen

import aqueue
from aqueue import JobEvent, Keyring, Sensitive, Worker, job
from aqueue.connection import open_backend
from aqueue.contract.envelope import decode_envelope, encode_envelope
from aqueue.jobs import job_type
from aqueue.port import Message, StoreOptions
from aqueue.queue import Queue, QueueOptions

pytestmark = [pytest.mark.rule("WORK-5"), pytest.mark.rule("ARG-3"), pytest.mark.rule("WORK-6")]

SECRET = "planted-s3cr3t-0451"
ROOT = Path(__file__).parents[1]

seen = telemetry_sdk.seen


@dataclass(frozen=True)
class Card:
    holder: str
    number: Sensitive[str]


class Login(pydantic.BaseModel):
    user: str
    password: Sensitive[str]


class Token(msgspec.Struct, frozen=True):
    value: Sensitive[str]


@job(name="sensitive.pay", max_attempts=1)
class Pay:
    order: int
    token: Sensitive[str]
    card: Card
    cards: list[Card]
    more: dict[str, Sensitive[str]]
    login: Login
    struct: Token
    many: Sensitive[list[str]]
    maybe: Sensitive[str] | None = None

    async def handle(self) -> None:
        assert SECRET in self.token
        await ENDINGS[self.order]()

    def failed(self, error: BaseException) -> None:
        raise RuntimeError("the hook fails too")


@job(name="sensitive.made")
@dataclass(frozen=True)
class Made:
    token: Sensitive[str]

    async def handle(self) -> None:
        return


@job(name="sensitive.function", max_attempts=2)
async def function(order: int, token: Sensitive[str]) -> None:
    await ENDINGS[order]()


async def returns() -> None:
    return


async def raises() -> None:
    raise LookupError("no such order")


async def retries() -> None:
    raise aqueue.Retry


async def discards() -> None:
    raise aqueue.Discard("not wanted")


async def snoozes() -> None:
    raise aqueue.Snooze(60)


async def sleeps() -> None:
    await asyncio.sleep(60)


ENDINGS = {1: returns, 2: raises, 3: retries, 4: discards, 5: snoozes, 6: sleeps}


def pay(order: int = 1) -> Pay:
    card = Card("Ann", SECRET)
    return Pay(
        order=order,
        token=SECRET,
        card=card,
        cards=[card],
        more={"key": SECRET},
        login=Login(user="ann", password=SECRET),
        struct=Token(SECRET),
        maybe=SECRET,
        many=[SECRET],
    )


class Outputs:
    """Everything that came out, and where."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, str]] = []

    def add(self, where: str, *things: object) -> None:
        for thing in things:
            self._texts += [(where, f"{thing}"), (where, f"{thing!r}")]
            if isinstance(thing, BaseException):
                self._texts.append((where, "".join(traceback.format_exception(thing))))

    def expect_no_secret(self) -> None:
        assert self._texts, "nothing came out at all"
        spellings = (SECRET, SECRET[2:-2], b64encode(SECRET.encode()).decode()[4:-4], SECRET.encode().hex())
        leaks = [
            f"{where}: …{text[max(0, at - 80) : at + 80]}…"
            for where, text in self._texts
            for spelling in spellings
            if (at := text.find(spelling)) >= 0
        ]
        assert not leaks, "\n".join(leaks)

    def said(self, text: str) -> bool:
        return any(text in said for _, said in self._texts)


@pytest.fixture
def out(caplog: pytest.LogCaptureFixture) -> Outputs:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("aqueue").setLevel(logging.DEBUG)
    return Outputs()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def queue(url: str, seen: Seen) -> AsyncIterator[Queue]:
    async with aqueue.connect(
        url, tracer_provider=seen.tracer_provider, meter_provider=seen.meter_provider
    ) as queue:
        yield queue


def collect(out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen) -> None:
    for record in caplog.records:
        out.add(f"log {record.name}", record.getMessage(), record.exc_text or "", record.args)
        if record.exc_info:
            out.add(f"log {record.name}", record.exc_info[1])
    for span in seen.spans:
        out.add("span", span.to_json())
    out.add("metrics", seen.reader.get_metrics_data())


async def failed_jobs(out: Outputs, queue: Queue) -> None:
    for failed in await queue.failed.list():
        out.add("failed job", failed, failed.redacted_args, failed.error, failed.traceback, failed.reason)


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"token": [SECRET]},
        {"token": f"{SECRET}\ud800"},
        {"token": float("nan")},
        {"maybe": {SECRET: SECRET}},
        {"many": [SECRET, {SECRET}]},
        {"more": {"key": [SECRET]}},
        {"more": {f"{SECRET}\ud800": "x"}},
        {"more": {7: SECRET}},
        {"card": Card("Ann", SECRET.encode())},  # type: ignore[arg-type]  # the mistake that is made
        {"cards": [Card("Ann", f"{SECRET}\ud800")]},
        {"struct": Token(SECRET.encode())},  # type: ignore[arg-type]  # the same
        {"login": Login.model_construct(user="ann", password=SECRET.encode())},
        {"order": SECRET},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_refused_push_names_the_field_and_nothing_else(
    queue: Queue, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen, changes: dict[str, Any]
) -> None:
    values = {field: getattr(pay(), field) for field in Pay.__dataclass_fields__}

    with pytest.raises(aqueue.UnserializableJob) as caught:
        await queue.push(Pay(**{**values, **changes}))

    out.add("error", caught.value)
    collect(out, caplog, seen)
    assert out.said(next(iter(changes)))
    out.expect_no_secret()


def test_no_repr_shows_it(out: Outputs) -> None:
    out.add("repr", pay(), Made(SECRET), function.job(1, SECRET), [pay()], {"job": Made(SECRET)})

    out.expect_no_secret()


# -- what is run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(ENDINGS))
async def test_no_ending_shows_it(
    queue: Queue, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen, order: int
) -> None:
    worker = Worker(queue, [Pay, Made, function], timeout=0.05, poll_timeout=0.05)
    told: list[JobEvent] = []
    worker.listen(JobEvent, told.append)
    await queue.push(pay(order))
    await queue.push(function.job(order, SECRET))
    await queue.push_many([Made(SECRET), Made(SECRET)])

    await worker.run_all()

    assert len(told) >= 4
    assert all("[redacted]" in str(event.args) for event in told)
    out.add("event", *told, *(event.error for event in told))
    out.add("worker", worker, worker.health(), queue)
    await failed_jobs(out, queue)
    collect(out, caplog, seen)
    out.expect_no_secret()


async def test_a_delivery_and_the_records_of_the_port_show_how_much_and_not_what(
    queue: Queue, out: Outputs
) -> None:
    await queue.push(pay())
    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    assert SECRET in delivery.args["token"], "whoever asks for it gets it"
    payload = delivery.reserved.payload
    backend = queue._store.backend

    await queue.fail(delivery, error=LookupError("no such order"))
    [record] = await backend.failed_page(queue=None, job=None, after=None, limit=5)  # type: ignore[attr-defined]

    out.add("port", delivery, delivery.reserved, record, Message("0" * 32, "default", payload))
    out.add("port", decode_envelope(payload), await queue.failed.get(delivery.id))
    out.expect_no_secret()


async def test_a_lost_lease_and_a_lost_settlement_show_nothing(
    url: str, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen
) -> None:
    async with aqueue.connect(url, lease=0.1) as queue:
        worker = Worker(queue, [Pay], renew=False, timeout=0.3, max_lost=1)
        told: list[JobEvent] = []
        worker.listen(JobEvent, told.append)
        await queue.push(pay(6))
        running = asyncio.create_task(worker.run_one(timeout=5))
        await asyncio.sleep(0.2)
        await worker.run_all()
        await asyncio.gather(running, return_exceptions=True)
        await failed_jobs(out, queue)

    out.add("event", *told)
    collect(out, caplog, seen)
    assert told
    out.expect_no_secret()


@pytest.mark.parametrize("verb", ["push", "pop", "ack", "fail", "release"])
@pytest.mark.parametrize("trouble", ["never sent", "reply lost"])
async def test_a_store_in_trouble_shows_nothing(
    url: str, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen, verb: str, trouble: str
) -> None:
    inner: Any = open_backend(url, StoreOptions(lease=60.0, clock=lambda: 1_800_000_000.0))
    store = Wrapper(inner)
    queue = Queue(store, QueueOptions(), telemetry=seen.telemetry)
    async with queue:
        if verb != "push":
            await queue.push(
                pay({"fail": 2, "release": 3}.get(verb, 1)), max_attempts=5 if verb == "release" else 1
            )
        store.break_down(verb) if trouble == "never sent" else store.lose_reply(verb)
        worker = Worker(queue, [Pay])
        with pytest.raises(aqueue.AqueueError) as caught:
            await (queue.push(pay()) if verb == "push" else worker.run_one())
        out.add("worker", worker.health())
        store.recover()

    out.add("error", caught.value)
    collect(out, caplog, seen)
    out.expect_no_secret()


# -- what can't be read, or doesn't fit -----------------------------------------------------------------


def stored(args: dict[str, Any], *, name: str = "sensitive.pay", id: str = "0" * 31 + "1") -> bytes:
    metadata = {"aqueue.sensitive": "token,card,cards,more,login,struct,maybe,many,credentials"}
    return encode_envelope(
        id=id, name=name, pushed_at=1.8e9, args=msgspec.json.encode(args), max_attempts=1, metadata=metadata
    )


GOOD = {
    "order": 1,
    "token": SECRET,
    "card": {"holder": "Ann", "number": SECRET},
    "cards": [],
    "more": {},
    "login": {"user": "ann", "password": SECRET},
    "struct": {"value": SECRET},
    "many": [SECRET],
}
UNFIT: dict[str, dict[str, Any]] = {
    "wrong type": {**GOOD, "token": [SECRET]},
    "wrong inside": {**GOOD, "card": {"holder": "Ann", "number": {SECRET: 1}}},
    "wrong model": {**GOOD, "login": {"user": "ann", "password": [SECRET]}},
    "wrong model's user": {**GOOD, "login": {"user": [SECRET], "password": SECRET}},
    "not an object": {**GOOD, "card": SECRET},
    "extra": {**GOOD, "credentials": SECRET},
    "missing": {"token": SECRET},
}


async def put(url: str, payload: bytes, id: str = "0" * 31 + "1") -> None:
    backend: Any = open_backend(url, StoreOptions(lease=60.0, clock=lambda: 1_800_000_000.0))
    await backend.open()
    await backend.push([Message(id, "default", payload)])
    await backend.aclose()


@pytest.mark.rule("ARG-5")
@pytest.mark.parametrize("args", UNFIT.values(), ids=UNFIT)
async def test_a_job_that_does_not_fit_shows_nothing(
    url: str, queue: Queue, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen, args: dict[str, Any]
) -> None:
    worker = Worker(queue, [Pay])
    told: list[JobEvent] = []
    worker.listen(JobEvent, told.append)
    await put(url, stored(args))

    await worker.run_all()

    [event] = told
    assert isinstance(event.error, aqueue.JobReconstructionError)
    out.add("event", event, event.error)
    await failed_jobs(out, queue)
    collect(out, caplog, seen)
    out.expect_no_secret()


@pytest.mark.rule("MAL-1")
@pytest.mark.parametrize(
    "keyring", [None, Keyring(active="k", keys={"k": b"k" * 32})], ids=["plain", "sealed"]
)
@pytest.mark.parametrize(
    "change",
    [lambda raw: raw[:-1], lambda raw: raw.replace(b'"v":1', b'"v":"1"'), lambda raw: b"\xff" + raw],
    ids=["cut", "version", "no text"],
)
async def test_what_nobody_can_read_shows_nothing(
    url: str, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen, keyring: Keyring | None, change: Any
) -> None:
    await put(url, change(stored(GOOD)))
    async with aqueue.connect(url, keyring=keyring, tracer_provider=seen.tracer_provider) as queue:
        with pytest.raises(aqueue.MalformedJobSettled) as caught:
            await queue.pop(timeout=5)
        out.add("error", caught.value)
        with pytest.raises(aqueue.JobReconstructionError) as refused:
            await queue.failed.retry("0" * 31 + "1")
        out.add("error", refused.value)
        await failed_jobs(out, queue)

    collect(out, caplog, seen)
    out.expect_no_secret()


async def test_a_job_that_nobody_knows_shows_nothing(
    url: str, queue: Queue, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen
) -> None:
    worker = Worker(queue, [Made])
    told: list[JobEvent] = []
    worker.listen(JobEvent, told.append)
    await put(url, stored(GOOD))

    await worker.run_all()

    out.add("event", *told)
    await failed_jobs(out, queue)
    collect(out, caplog, seen)
    assert told
    out.expect_no_secret()


async def test_a_job_whose_redaction_fails_is_hidden_whole(
    queue: Queue, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = job_type(Pay).codec

    def fails(args: object) -> dict[str, object]:
        raise RuntimeError(f"{args}")

    monkeypatch.setattr(codec, "redacted", fails)
    worker = Worker(queue, [Pay])
    told: list[JobEvent] = []
    worker.listen(JobEvent, told.append)
    await queue.push(pay(2))

    await worker.run_all()

    assert [event.args for event in told] == [{"*": "[redacted]"}]
    out.add("event", *told)
    collect(out, caplog, seen)
    out.expect_no_secret()


async def test_inline_shows_nothing(out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen) -> None:
    async with aqueue.connect(
        "inline://", handlers=[Pay, function], tracer_provider=seen.tracer_provider
    ) as queue:
        await queue.push(pay(1))
        with pytest.raises(aqueue.PushManyError) as many:
            await queue.push_many([pay(2), function.job(2, SECRET)])
        with pytest.raises(LookupError) as caught:
            await queue.push(pay(2))

    out.add("error", caught.value, many.value, *many.value.outcomes)
    collect(out, caplog, seen)
    out.expect_no_secret()


# -- editing, events, unique pushes ---------------------------------------------------------------------


@pytest.mark.rule("FAIL-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"token": [SECRET]},
        {"many": SECRET},
        {"card": {"holder": "Ann", "number": [SECRET]}},
        {"struct": SECRET},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_an_edit_that_does_not_fit_shows_nothing(
    url: str,
    queue: Queue,
    out: Outputs,
    caplog: pytest.LogCaptureFixture,
    seen: Seen,
    known: bool,
    changes: Any,
) -> None:
    name = "sensitive.pay" if known else "sensitive.elsewhere"
    await put(url, stored(GOOD, name=name))
    delivery = await queue.pop(timeout=5)
    assert delivery is not None
    await queue.fail(delivery)

    with pytest.raises(aqueue.InvalidQueueArgument) as caught:
        await queue.failed.retry(delivery.id, changes=changes if known else {**changes, "token": {SECRET}})

    out.add("error", caught.value)
    await failed_jobs(out, queue)
    collect(out, caplog, seen)
    out.expect_no_secret()


@dataclass(frozen=True)
class PaymentFailed:
    order: int
    token: Sensitive[str]


@pytest.mark.rule("EVENT-1")
async def test_an_event_for_a_queued_listener_shows_nothing(
    queue: Queue, out: Outputs, caplog: pytest.LogCaptureFixture, seen: Seen
) -> None:
    dispatcher = aqueue.Dispatcher(queue)

    @dispatcher.listen(PaymentFailed, queued=True)
    async def hear(event: PaymentFailed) -> None:
        assert event.token == SECRET
        raise LookupError("nobody to tell")

    worker = Worker(queue, dispatcher.jobs)
    told: list[JobEvent] = []
    worker.listen(JobEvent, told.append)
    await dispatcher.dispatch(PaymentFailed(7, SECRET))
    with pytest.raises(aqueue.AqueueError) as refused:
        await dispatcher.dispatch(PaymentFailed(7, [SECRET]))  # type: ignore[arg-type]  # the mistake

    await worker.run_all()

    assert len(told) == 1
    out.add("event", *told, *(event.error for event in told), refused.value)
    await failed_jobs(out, queue)
    collect(out, caplog, seen)
    out.expect_no_secret()


# -- the command line, as a process of its own ----------------------------------------------------------

APP = """
import aqueue, logging

@aqueue.job(name="sensitive.pay", max_attempts=1)
class Pay:
    order: int
    token: aqueue.Sensitive[str]

    async def handle(self) -> None:
        raise LookupError("no such order")

def worker():
    queue = aqueue.connect({url!r})
    made = aqueue.Worker(queue, [Pay], poll_timeout=0.05)
    made.listen(aqueue.JobFailed, lambda event: (logging.getLogger("app").error("%s", event), made.stop()))
    return made
"""


def test_the_command_line_shows_nothing(tmp_path: Path, out: Outputs) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    (tmp_path / "app.py").write_text(APP.format(url=url))

    async def prepare() -> None:
        async with aqueue.connect(url) as queue:
            args = {"order": 1, "token": SECRET}
            await queue.migrate()
            await put(url, stored(args))
            await put(url, stored(args)[:-3], id="0" * 31 + "2")

    asyncio.run(prepare())

    def aqueue_command(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-m", "aqueue", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "AQUEUE_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        out.add(" ".join(arguments), ran.stdout, ran.stderr)
        return ran.stdout

    for options in ([], ["--json"]):
        aqueue_command("worker", "app:worker", "--log-level", "debug", *options)
        listed = json.loads(aqueue_command("failed", "list", "--json"))
        assert {each["reason"] for each in listed} == {"error", "malformed"}
        for each in listed:
            aqueue_command("failed", "list", *options)
            aqueue_command("failed", "show", each["id"], *options)
        aqueue_command("failed", "retry", "0" * 31 + "2", *options)
        aqueue_command("keys", "inventory", *options)
        aqueue_command("stats", *options)
        aqueue_command("failed", "retry", "0" * 31 + "1", *options)

    assert out.said("[redacted]")
    assert out.said("no such order")
    out.expect_no_secret()
