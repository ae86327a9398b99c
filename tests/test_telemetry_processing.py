"""What OpenTelemetry is told of a handler's run, and what an exception may tell it (TEL-1)."""

import asyncio
import contextvars

import pytest
import telemetry_sdk
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, SpanKind, StatusCode
from telemetry_sdk import REMOTE, TRACE_ID, TRACEPARENT, Handed, Seen, in_a_fresh_context

from aqueue.telemetry import ProcessSpan, TraceMode, current_span

clean_context = telemetry_sdk.clean_context
seen = telemetry_sdk.seen
pytestmark = [pytest.mark.rule("TEL-1"), pytest.mark.usefixtures("clean_context")]


def handled(seen: Seen, delivery: Handed, mode: TraceMode = "link") -> ReadableSpan:
    def run() -> None:
        span = seen.telemetry.start_process(delivery, delivery.name, trace=mode)
        seen.telemetry.finish_process(span, "acked")

    in_a_fresh_context(run)
    return seen.span(f"process {delivery.queue}")


def test_processing_is_a_root_of_its_own_linked_to_the_push(seen: Seen) -> None:
    with seen.ambient().start_as_current_span("the worker's own span"):
        copied = contextvars.copy_context()

    def run() -> None:
        delivery = Handed(attempt=2, metadata={"traceparent": TRACEPARENT})
        span = seen.telemetry.start_process(delivery, delivery.name, client_id="worker-1")
        seen.telemetry.finish_process(span, "acked")

    copied.run(run)
    made = seen.span("process emails")
    assert made.parent is None
    assert made.context.trace_id != TRACE_ID
    assert [link.context for link in made.links] == [REMOTE]
    assert made.kind is SpanKind.CONSUMER
    assert dict(made.attributes or {}) == {
        "messaging.system": "memory",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "emails",
        "messaging.message.id": "a" * 32,
        "messaging.client.id": "worker-1",
        "aqueue.job.name": "emails.welcome",
        "aqueue.job.attempt": 2,
        "aqueue.outcome": "acked",
    }


def test_with_trace_parent_processing_is_a_child_of_the_push_and_linked_to_it(seen: Seen) -> None:
    made = handled(seen, Handed(metadata={"traceparent": TRACEPARENT}), "parent")

    assert made.parent == REMOTE
    assert made.context.trace_id == TRACE_ID
    assert [link.context for link in made.links] == [REMOTE]


@pytest.mark.parametrize("mode", ["link", "parent"])
@pytest.mark.parametrize("header", [None, "", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_a_job_with_no_or_a_broken_trace_context_is_a_plain_root(
    seen: Seen, header: str | None, mode: TraceMode
) -> None:
    made = handled(seen, Handed(metadata={} if header is None else {"traceparent": header}), mode)

    assert made.parent is None
    assert made.links == ()


def test_the_process_span_is_current_while_the_handler_runs_and_settling_is_its_child(seen: Seen) -> None:
    def run() -> None:
        span = seen.telemetry.start_process(Handed(), "emails.welcome")
        assert span is not None
        assert current_span() is span.span
        with seen.ambient().start_as_current_span("the handler's own"):
            pass
        seen.telemetry.finish(seen.telemetry.start_settle("ack", Handed()))
        seen.telemetry.finish_process(span, "acked")

    in_a_fresh_context(run)
    process = seen.span("process emails")
    for name in ("the handler's own", "ack emails"):
        child = seen.span(name)
        assert child.parent is not None
        assert child.parent.span_id == process.context.span_id
        assert child.context.trace_id == process.context.trace_id


async def test_concurrent_deliveries_never_see_each_others_span(seen: Seen) -> None:
    both_started = asyncio.Barrier(2)

    async def deliver(job_id: str) -> tuple[Span, Span]:
        span = seen.telemetry.start_process(Handed(id=job_id), "emails.welcome")
        assert span is not None
        await both_started.wait()
        found = current_span()
        seen.telemetry.finish_process(span, "acked")
        return span.span, found

    tasks = [asyncio.create_task(deliver(job_id), context=contextvars.Context()) for job_id in "12"]
    for own, found in await asyncio.gather(*tasks):
        assert own is found
    assert not current_span().get_span_context().is_valid


def test_ending_in_another_context_logs_nothing(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    span: ProcessSpan = in_a_fresh_context(lambda: seen.telemetry.start_process(Handed(), "emails.welcome"))
    span.finish("acked")
    span.leave()

    assert seen.span("process emails").end_time is not None
    assert caplog.records == []


def test_a_caller_that_shares_its_context_gets_back_what_was_current(seen: Seen) -> None:
    with seen.ambient().start_as_current_span("request") as request:
        span = seen.telemetry.start_process(Handed(), "emails.welcome")
        assert span is not None
        assert current_span() is not request
        span.finish("acked")
        span.leave()
        span.leave()
        assert current_span() is request


def test_processing_is_timed_counted_and_its_wait_recorded(seen: Seen) -> None:
    span = seen.telemetry.start_process(Handed(), "emails.welcome", waited=40.0)
    (active,) = seen.points("aqueue.worker.active_jobs")
    assert active.value == 1
    seen.telemetry.finish_process(span, "released", ValueError("boom"), duration=0.5)

    queue = {"messaging.system": "memory", "messaging.destination.name": "emails"}
    (active,) = seen.points("aqueue.worker.active_jobs")
    assert (active.value, dict(active.attributes)) == (0, queue)
    (wait,) = seen.points("aqueue.job.wait.duration")
    assert (wait.sum, dict(wait.attributes)) == (40.0, queue)
    (outcome,) = seen.points("aqueue.job.outcomes")
    assert (outcome.value, dict(outcome.attributes)) == (1, {**queue, "aqueue.outcome": "released"})
    (duration,) = seen.points("messaging.process.duration")
    assert duration.sum == 0.5
    assert dict(duration.attributes) == {
        **queue,
        "messaging.operation.name": "process",
        "aqueue.job.name": "emails.welcome",
        "error.type": "ValueError",
    }


def test_durations_come_in_the_conventions_buckets_and_waits_up_to_a_day(seen: Seen) -> None:
    span = seen.telemetry.start_process(Handed(), "emails.welcome", waited=1.0)
    seen.telemetry.finish(seen.telemetry.start_settle("ack", Handed()))
    seen.telemetry.finish_process(span, "acked")

    bounds = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
    for name in ("messaging.process.duration", "messaging.client.operation.duration"):
        (point,) = seen.points(name)
        assert isinstance(point, HistogramDataPoint)
        assert tuple(point.explicit_bounds) == bounds
    (wait,) = seen.points("aqueue.job.wait.duration")
    assert wait.explicit_bounds[-1] == 86400


def test_endings_without_a_process_span_are_counted_too(seen: Seen) -> None:
    seen.telemetry.count_outcome("emails", "malformed", 3)
    seen.telemetry.lease_lost("emails")

    (outcome,) = seen.points("aqueue.job.outcomes")
    assert (outcome.value, outcome.attributes["aqueue.outcome"]) == (3, "malformed")
    (lost,) = seen.points("aqueue.lease.lost")
    assert isinstance(lost, NumberDataPoint)
    assert (lost.value, lost.attributes) == (
        1,
        {"messaging.system": "memory", "messaging.destination.name": "emails"},
    )
    assert seen.spans == ()


# Errors and what they may say


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def failed_with(seen: Seen, error: BaseException) -> ReadableSpan:
    span = seen.telemetry.start_process(Handed(), "emails.welcome")
    seen.telemetry.finish_process(span, "failed", raised(error))
    return seen.span("process emails")


def test_an_exception_is_recorded_by_class_and_place_and_never_by_its_text(seen: Seen) -> None:
    try:
        raise KeyError("card 4111")
    except KeyError as cause:
        error = ValueError("card 4111")
        error.__cause__ = cause
    made = failed_with(seen, error)

    assert made.status.status_code is StatusCode.ERROR
    assert made.status.description == "ValueError"
    (event,) = made.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.type"] == "ValueError"
    assert "test_telemetry_processing.py" in str((event.attributes or {})["exception.stacktrace"])
    assert "4111" not in made.to_json()


def test_a_redact_hook_decides_what_text_is_recorded() -> None:
    seen = Seen(redact=lambda error: str(error).replace("4111", "****"))
    made = failed_with(seen, ValueError("card 4111"))

    (event,) = made.events
    assert (event.attributes or {})["exception.message"] == "card ****"
    assert made.status.description == "ValueError: card ****"
    assert "4111" not in made.to_json()


def test_str_as_the_hook_records_messages_as_they_are_but_fit_for_an_exporter() -> None:
    seen = Seen(redact=str)
    made = failed_with(seen, ValueError("lone \ud800 surrogate " + "x" * 100_000))

    message = str((made.events[0].attributes or {})["exception.message"])
    assert message.startswith("lone ? surrogate xxx")
    assert len(message.encode()) <= 4096


@pytest.mark.rule("WORK-4")
def test_a_throwing_redact_hook_costs_the_text_and_nothing_else() -> None:
    def redact(error: BaseException) -> str:
        raise RuntimeError

    made = failed_with(Seen(redact=redact), ValueError("card 4111"))

    assert made.status.description == "ValueError"
    assert len(made.events) == 1
    assert "4111" not in made.to_json()


@pytest.mark.rule("WORK-4")
def test_an_error_without_a_text_of_its_own_is_recorded_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    made = failed_with(Seen(redact=str), Mute())

    assert str((made.attributes or {})["error.type"]).endswith("Mute")
