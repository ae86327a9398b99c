"""What an application's own OpenTelemetry sees of a job, from push to settlement (TEL-1, case O-30)."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import telemetry_sdk
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, running
from telemetry_sdk import Seen

from aqueue import (
    Backoff,
    Delivery,
    Depends,
    Handlers,
    JobEvent,
    Queue,
    Retry,
    Snooze,
    Worker,
    job,
)
from aqueue.port import Message
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place
seen, clean_context = telemetry_sdk.seen, telemetry_sdk.clean_context
pytestmark = [pytest.mark.rule("TEL-1"), pytest.mark.usefixtures("clean_context")]


@job(name="telemetry.note")
class Note:
    text: str = ""


@job(name="telemetry.slow", timeout=0.05)
class Slow:
    text: str = "time out"


@job(name="telemetry.nobodys")
class Nobodys:
    text: str = ""


async def watched(place: Place, seen: Seen, **options: Any) -> Queue:
    """Return a queue whose every step the application's SDK sees."""
    return await place.queue(
        tracer_provider=seen.tracer_provider, meter_provider=seen.meter_provider, **options
    )


async def test_a_job_leaves_a_push_a_receive_a_process_and_a_settle_span(
    any_place: Place, seen: Seen
) -> None:
    queue, handlers = await watched(any_place, seen), Handlers()

    @handlers.on(Note)
    async def handle(_: Note) -> None: ...

    with seen.ambient().start_as_current_span("request"):
        job_id = await queue.push(Note())
    async with running(Worker(queue, handlers, name="w1")):
        await all_settled(queue)
        await eventually(lambda: any(span.name == "process default" for span in seen.spans))

    push, receive, process, ack = map(
        seen.span, ["push default", "receive default", "process default", "ack default"]
    )
    assert [span.kind for span in (push, receive, process, ack)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    assert push.parent == context_of(seen.span("request"))
    assert process.parent is None
    assert [same(link.context, push) for link in process.links] == [True]
    assert [same(link.context, push) for link in receive.links] == [True]
    assert ack.parent == context_of(process)
    for span in (push, receive, process, ack):
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == queue.capabilities.system
        assert span.attributes["messaging.destination.name"] == "default"
        assert span.attributes["messaging.message.id"] == job_id
    assert process.attributes is not None
    assert process.attributes["messaging.client.id"] == "w1"
    assert process.attributes["aqueue.job.name"] == "telemetry.note"
    assert process.attributes["aqueue.outcome"] == "acked"


async def test_with_trace_parent_the_whole_chain_is_one_trace(place: Place, seen: Seen) -> None:
    queue, handlers = await watched(place, seen), Handlers()

    @handlers.on(Note)
    async def handle(note: Note, queue: Queue) -> None:
        with seen.ambient().start_as_current_span("the handler's own"):
            if note.text == "first":
                await queue.push(Note("second"))

    with seen.ambient().start_as_current_span("request"):
        await queue.push(Note("first"))
    await Worker(queue, handlers, trace="parent", concurrency=1).run_all()
    assert len({span.context.trace_id for span in seen.spans if span.name != "receive default"}) == 1


async def test_the_handler_runs_inside_its_span_and_its_baggage_travels_along(
    place: Place, seen: Seen
) -> None:
    queue, handlers, found = await watched(place, seen), Handlers(), []

    @handlers.on(Note)
    async def handle(_: Note) -> None:
        found.append((trace.get_current_span().get_span_context(), baggage.get_baggage("tenant")))

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    await queue.push(Note())
    context.detach(token)
    await Worker(queue, handlers).run_one()
    assert found == [(seen.span("process default").context, "acme")]


async def test_an_idle_worker_emits_nothing(any_place: Place, seen: Seen) -> None:
    queue = await watched(any_place, seen)
    worker = Worker(queue, [], poll_timeout=0.05)

    async with running(worker):
        await eventually(lambda: worker.health().last_claim is not None)
        claim = worker.health().last_claim
        await eventually(lambda: worker.health().last_claim != claim)
    assert seen.spans == ()
    assert seen.points("messaging.client.operation.duration") == []


async def test_two_hundred_jobs_of_every_fate_leave_one_ended_span_each_and_no_stray_parent(
    any_place: Place, seen: Seen
) -> None:
    """Case O-30: acked, raising, retried, snoozed, timed out, unknown, pushing others, unreadable."""
    queue, handlers = await watched(any_place, seen), Handlers()
    chance, closed, told = random.Random(30), Counter[str](), Counter[str]()
    fates = ["ack", "raise", "retry", "snooze", "time out", "push", "teardown"]

    async def dependency(delivery: Delivery) -> AsyncIterator[None]:
        try:
            yield
        finally:
            closed[f"{delivery.id} {delivery.receipt}"] += 1
            if delivery.args["text"] == "teardown":
                raise LookupError("teardown")

    async def handle(
        note: Note | Slow, delivery: Delivery, queue: Queue, _: None = Depends(dependency)
    ) -> None:
        assert trace.get_current_span().get_span_context().is_valid
        await asyncio.sleep(0)
        match note.text:
            case "raise":
                raise ValueError
            case "retry" if delivery.attempt < 3:
                raise Retry
            case "snooze" if not told[delivery.id]:
                told[delivery.id] += 1
                raise Snooze(0)
            case "time out":
                await asyncio.sleep(60)
            case "push":
                await queue.push(Note("ack"))

    handlers.on(Note, handle)
    handlers.on(Slow, handle)
    picked = [chance.choice(fates) for _ in range(190)]
    await queue.push_many([Slow() if fate == "time out" else Note(fate) for fate in picked])
    await queue.push_many([Nobodys()] * 5)
    await unreadable(any_place, 5)
    worker = Worker(queue, handlers, concurrency=4, max_attempts=3, backoff=Backoff.none())
    events: list[JobEvent] = []
    worker.listen(JobEvent, events.append)
    async with running(worker):
        await all_settled(queue, timeout=60)

    runs = {"ack": 1, "raise": 3, "retry": 3, "snooze": 2, "time out": 3, "push": 2, "teardown": 1}
    expected = sum(runs[fate] for fate in picked) + 5 * 3
    processed = [span for span in seen.spans if span.name == "process default"]
    assert len(processed) == len(events) == expected
    assert all(span.end_time is not None for span in seen.spans)
    assert all(span.parent is None for span in processed)
    assert all(len(span.links) == 1 for span in processed)

    parents = {span.context.span_id: span for span in processed}
    for span in seen.spans:
        if span.parent is not None and span.attributes and "messaging.message.id" in span.attributes:
            parent = parents.get(span.parent.span_id)
            own = span.attributes["messaging.message.id"]
            pushed_inside = span.name.startswith(("push", "create"))
            assert parent is None or pushed_inside or parent.attributes["messaging.message.id"] == own  # type: ignore[index]  # every span of ours has attributes

    failed = [span for span in processed if span.status.status_code is StatusCode.ERROR]
    assert len(failed) == picked.count("raise") * 3 + picked.count("time out") * 3 + 15
    assert sum(closed.values()) == expected - 15
    assert set(closed.values()) == {1}
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_stop_and_a_lost_lease_end_their_spans_too(any_place: Place, seen: Seen) -> None:
    queue, handlers, started = await watched(any_place, seen), Handlers(), asyncio.Event()

    @handlers.on(Note)
    async def handle(note: Note, delivery: Delivery, queue: Queue) -> None:
        if note.text == "lost":
            await queue.release(delivery)
            return
        started.set()
        await asyncio.sleep(60)

    await queue.push(Note("lost"), id="1" * 32)
    assert await Worker(queue, handlers).run_one() == "lost"
    (lost,) = spans_of(seen, "process default")
    assert lost.status.status_code is StatusCode.ERROR
    assert lost.attributes is not None
    assert lost.attributes["aqueue.outcome"] == "lost"
    assert lost.attributes["error.type"] == "aqueue.errors.StaleDelivery"

    await queue.pop_now(1)
    await queue.push(Note("long"))
    worker = Worker(queue, handlers, grace=0)
    async with running(worker):
        await started.wait()
    stopped = spans_of(seen, "process default")[1]
    assert stopped.attributes is not None
    assert stopped.attributes["aqueue.outcome"] == "released"


async def test_metrics_count_what_was_sent_consumed_and_how_it_ended(any_place: Place, seen: Seen) -> None:
    queue, handlers = await watched(any_place, seen), Handlers()
    active: list[int] = []

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        active.append(total(seen, "aqueue.worker.active_jobs"))
        if note.text:
            raise ValueError

    await queue.push_many([Note(), Note(), Note("raises")])
    await unreadable(any_place, 1)
    await Worker(queue, handlers, concurrency=1).run_all()

    assert total(seen, "messaging.client.sent.messages") == 3
    assert total(seen, "messaging.client.consumed.messages") == 3
    assert outcomes(seen) == {"acked": 2, "failed": 1, "malformed": 1}
    assert active == [1, 1, 1]
    assert total(seen, "aqueue.worker.active_jobs") == 0
    assert sum(point.count for point in seen.points("messaging.process.duration")) == 3
    assert sum(point.count for point in seen.points("aqueue.job.wait.duration")) == 3
    operations = Counter[str]()
    for point in seen.points("messaging.client.operation.duration"):
        operations[point.attributes["messaging.operation.name"]] += point.count
    assert (operations["ack"], operations["fail"]) == (2, 1)
    assert operations["receive"] >= 3


class Broken:
    """A provider, tracer, meter and instrument in one, that fails at whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("telemetry is down")


@pytest.mark.rule("WORK-4")
async def test_telemetry_that_fails_at_every_step_changes_nothing(any_place: Place) -> None:
    queue, done, handlers = (
        await any_place.queue(tracer_provider=Broken(), meter_provider=Broken()),
        [],
        Handlers(),
    )

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        done.append(note.text)

    await queue.push_many([Note("a"), Note("b")])
    async with running(Worker(queue, handlers)) as task:
        await all_settled(queue)
        assert not task.done()
    assert sorted(done) == ["a", "b"]


async def test_without_an_sdk_jobs_carry_no_metadata_and_run_all_the_same(place: Place) -> None:
    queue, handlers, seen = await place.queue(), Handlers(), []

    @handlers.on(Note)
    async def handle(_: Note, delivery: Delivery) -> None:
        seen.append((dict(delivery.metadata), trace.get_current_span().get_span_context().is_valid))

    await queue.push(Note())
    await Worker(queue, handlers).run_one()
    assert seen == [({}, False)]


def context_of(span: ReadableSpan) -> Any:
    return span.context


def same(left: trace.SpanContext, span: ReadableSpan) -> bool:
    """A context that travelled is remote now, and the same otherwise."""
    return (left.trace_id, left.span_id) == (span.context.trace_id, span.context.span_id)


def spans_of(seen: Seen, name: str) -> list[ReadableSpan]:
    return [span for span in seen.spans if span.name == name]


def total(seen: Seen, name: str) -> int:
    return sum(point.value for point in seen.points(name))


def outcomes(seen: Seen) -> dict[str, int]:
    found = Counter[str]()
    for point in seen.points("aqueue.job.outcomes"):
        found[point.attributes["aqueue.outcome"]] += point.value
    return dict(found)


async def unreadable(place: Place, count: int) -> None:
    """Store jobs that nobody can read."""
    backend = await place.backend()
    await backend.push([Message(f"{number:032x}", "default", b"rubbish") for number in range(count)])
