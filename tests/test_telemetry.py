"""What OpenTelemetry is told of pushes, sweeps and settlements, against the real SDK in memory (TEL-1)."""

import time

import pytest
import telemetry_sdk
from opentelemetry.trace import SpanKind, StatusCode
from telemetry_sdk import REMOTE, TRACEPARENT, Handed, Job, Seen, remote, sent

from aqueue.errors import OutcomeUnknown, PushManyError, Settlement, StaleDelivery
from aqueue.telemetry.propagation import creating_span

clean_context = telemetry_sdk.clean_context
seen = telemetry_sdk.seen
pytestmark = [pytest.mark.rule("TEL-1"), pytest.mark.usefixtures("clean_context")]


# Pushing


def test_a_push_is_a_producer_span_with_the_current_attribute_names(seen: Seen) -> None:
    span = seen.telemetry.start_push("emails", "a" * 32, "emails.welcome", 42, 30.0)
    seen.telemetry.finish(span)

    made = seen.span("push emails")
    assert made.kind is SpanKind.PRODUCER
    assert dict(made.attributes or {}) == {
        "messaging.system": "memory",
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
        "messaging.destination.name": "emails",
        "messaging.message.id": "a" * 32,
        "messaging.message.body.size": 42,
        "aqueue.job.name": "emails.welcome",
        "aqueue.job.delay_s": 30.0,
    }
    assert made.status.status_code is StatusCode.UNSET
    assert made.instrumentation_scope is not None
    assert made.instrumentation_scope.name == "aqueue"
    assert made.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_a_push_is_a_child_of_what_the_application_is_doing_and_the_job_carries_the_push(seen: Seen) -> None:
    with seen.ambient().start_as_current_span("request") as request:
        span = seen.telemetry.start_push("emails", "a" * 32, "emails.welcome")
        assert span is not None
        carried = span.metadata()
        span.finish()

    made = seen.span("push emails")
    assert made.parent is not None
    assert made.parent.span_id == request.get_span_context().span_id
    assert creating_span(carried) == remote(made.context)


def test_a_failed_push_names_the_error_on_the_span_and_in_the_metrics(seen: Seen) -> None:
    span = seen.telemetry.start_push("emails", "a" * 32, "emails.welcome")
    seen.telemetry.finish(span, OutcomeUnknown("no reply"))

    made = seen.span("push emails")
    assert made.status.status_code is StatusCode.ERROR
    assert (made.attributes or {})["error.type"] == "aqueue.errors.OutcomeUnknown"
    (sent,) = seen.points("messaging.client.sent.messages")
    assert sent.value == 1
    assert sent.attributes["error.type"] == "aqueue.errors.OutcomeUnknown"


def test_a_push_is_counted_and_timed_with_few_valued_attributes_only(seen: Seen) -> None:
    for number in range(3):
        seen.telemetry.finish(seen.telemetry.start_push("emails", f"{number:032x}", "emails.welcome", number))

    common = {
        "messaging.system": "memory",
        "messaging.operation.name": "push",
        "messaging.destination.name": "emails",
    }
    (sent,) = seen.points("messaging.client.sent.messages")
    assert (sent.value, dict(sent.attributes)) == (3, common)
    (duration,) = seen.points("messaging.client.operation.duration")
    assert duration.count == 3
    assert dict(duration.attributes) == {**common, "messaging.operation.type": "send"}


def test_ending_a_push_twice_records_it_once(seen: Seen) -> None:
    span = seen.telemetry.start_push("emails", "a" * 32, "emails.welcome")
    seen.telemetry.finish(span)
    seen.telemetry.finish(span, ValueError())

    assert len(seen.spans) == 1
    (sent,) = seen.points("messaging.client.sent.messages")
    assert sent.value == 1


def test_a_server_is_named_on_spans_and_standard_metrics() -> None:
    seen = Seen(address="redis.internal", port=6379)
    seen.telemetry.finish(seen.telemetry.start_push("emails", "a" * 32, "emails.welcome"))

    (sent,) = seen.points("messaging.client.sent.messages")
    for attributes in (seen.span("push emails").attributes or {}, sent.attributes):
        assert (attributes["server.address"], attributes["server.port"]) == ("redis.internal", 6379)


def test_a_batch_is_a_create_span_per_job_and_one_client_span_linked_to_them(seen: Seen) -> None:
    jobs = [Job(id=f"{number:032x}") for number in range(3)]
    with seen.ambient().start_as_current_span("request") as request:
        span = seen.telemetry.start_push_many(jobs)
        assert span is not None
        carried = [creating_span(span.metadata(job)) for job in jobs]
        seen.telemetry.finish(span)

    created = [each for each in seen.spans if each.name == "create emails"]
    batch = seen.span("push emails")
    assert [each.kind for each in created] == [SpanKind.PRODUCER] * 3
    assert [(each.attributes or {})["messaging.message.id"] for each in created] == [job.id for job in jobs]
    assert {(each.attributes or {})["messaging.operation.type"] for each in created} == {"create"}
    assert carried == [remote(each.context) for each in created]
    assert batch.kind is SpanKind.CLIENT
    assert (batch.attributes or {})["messaging.batch.message_count"] == 3
    assert [link.context for link in batch.links] == [each.context for each in created]
    parents = {each.parent.span_id for each in (*created, batch) if each.parent is not None}
    assert parents == {request.get_span_context().span_id}


def test_a_batch_over_several_queues_has_a_span_per_queue_and_a_lone_job_a_plain_push(seen: Seen) -> None:
    jobs = [Job(id="1"), Job(id="2", queue="images"), Job(id="3")]
    span = seen.telemetry.start_push_many(jobs)
    assert span is not None
    carried = creating_span(span.metadata(jobs[1]))
    seen.telemetry.finish(span)

    lone = seen.span("push images")
    assert lone.kind is SpanKind.PRODUCER
    assert "messaging.batch.message_count" not in (lone.attributes or {})
    assert carried == remote(lone.context)
    assert (seen.span("push emails").attributes or {})["messaging.batch.message_count"] == 2
    assert {point.attributes["messaging.destination.name"]: point.value for point in sent(seen)} == {
        "emails": 2,
        "images": 1,
    }


def test_a_partly_failed_batch_counts_each_job_for_itself(seen: Seen) -> None:
    jobs = [Job(id="1"), Job(id="2", queue="images"), Job(id="3")]
    span = seen.telemetry.start_push_many(jobs)
    seen.telemetry.finish(span, PushManyError(["1", "2", OutcomeUnknown("no reply")]))

    assert seen.span("push images").status.status_code is StatusCode.UNSET
    assert seen.span("push emails").status.status_code is StatusCode.ERROR
    counted = {
        (point.attributes["messaging.destination.name"], point.attributes.get("error.type")): point.value
        for point in sent(seen)
    }
    assert counted == {
        ("emails", None): 1,
        ("emails", "aqueue.errors.OutcomeUnknown"): 1,
        ("images", None): 1,
    }


# Receiving


def test_a_sweep_is_a_client_span_per_queue_with_the_given_times_and_links_to_the_pushes(seen: Seen) -> None:
    started = time.time_ns()
    ended = started + 2_000_000
    taken = [
        Handed(id="1", metadata={"traceparent": TRACEPARENT}),
        Handed(id="2"),
        Handed(id="3", queue="images"),
    ]
    seen.telemetry.received(taken, started, ended, client_id="worker-1")

    emails, images = seen.span("receive emails"), seen.span("receive images")
    assert (emails.kind, emails.start_time, emails.end_time) == (SpanKind.CLIENT, started, ended)
    assert [link.context for link in emails.links] == [REMOTE]
    assert dict(emails.attributes or {}) == {
        "messaging.system": "memory",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "emails",
        "messaging.batch.message_count": 2,
        "messaging.client.id": "worker-1",
    }
    assert "messaging.batch.message_count" not in (images.attributes or {})
    assert (images.attributes or {})["messaging.message.id"] == "3"


def test_what_was_handed_out_is_counted_once_each_and_the_sweep_timed(seen: Seen) -> None:
    seen.telemetry.received([Handed(id="1"), Handed(id="2")], 1_000_000_000, 1_250_000_000)

    (consumed,) = seen.points("messaging.client.consumed.messages")
    assert consumed.value == 2
    assert dict(consumed.attributes) == {
        "messaging.system": "memory",
        "messaging.operation.name": "receive",
        "messaging.destination.name": "emails",
    }
    (duration,) = seen.points("messaging.client.operation.duration")
    assert duration.sum == pytest.approx(0.25)


@pytest.mark.rule("POP-7")
def test_a_sweep_that_found_nothing_leaves_no_trace(seen: Seen) -> None:
    seen.telemetry.received([], 1, 2)

    assert seen.spans == ()
    assert seen.points("messaging.client.operation.duration") == []


def test_a_clock_that_steps_back_during_a_sweep_gives_no_negative_duration(seen: Seen) -> None:
    seen.telemetry.received([Handed()], 2_000_000_000, 1_000_000_000)

    (duration,) = seen.points("messaging.client.operation.duration")
    assert duration.sum == 0


# Settling


def test_a_settlement_is_a_client_span_named_for_its_operation(seen: Seen) -> None:
    seen.telemetry.finish(seen.telemetry.start_settle(Settlement.RELEASE, Handed(), delay=10.0))

    made = seen.span("release emails")
    assert made.kind is SpanKind.CLIENT
    assert dict(made.attributes or {}) == {
        "messaging.system": "memory",
        "messaging.operation.name": "release",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "emails",
        "messaging.message.id": "a" * 32,
        "aqueue.retry.delay_s": 10.0,
    }
    (duration,) = seen.points("messaging.client.operation.duration")
    assert duration.attributes["messaging.operation.type"] == "settle"


def test_a_stale_settlement_is_an_error_and_counted(seen: Seen) -> None:
    span = seen.telemetry.start_settle("ack", Handed())
    seen.telemetry.finish(span, StaleDelivery(Settlement.ACK, job_id="a" * 32, queue="emails"))

    made = seen.span("ack emails")
    assert made.status.status_code is StatusCode.ERROR
    assert (made.attributes or {})["error.type"] == "aqueue.errors.StaleDelivery"
    (stale,) = seen.points("aqueue.stale_settlements")
    assert (stale.value, stale.attributes["messaging.operation.name"]) == (1, "ack")


def test_a_settlement_outside_any_span_is_linked_to_its_job_instead(seen: Seen) -> None:
    seen.telemetry.finish(seen.telemetry.start_settle("ack", Handed(metadata={"traceparent": TRACEPARENT})))

    made = seen.span("ack emails")
    assert made.parent is None
    assert [link.context for link in made.links] == [REMOTE]
