"""Which trace context travels, which providers count, and what is kept quiet (TEL-1)."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import telemetry_sdk
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan, NoOpTracerProvider, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from telemetry_sdk import SPAN_ID, TRACE_ID, TRACEPARENT, Handed, Job, Seen, in_a_fresh_context, sent

from aqueue.telemetry import Telemetry, TraceMode, current_span
from aqueue.telemetry.propagation import creating_span

clean_context = telemetry_sdk.clean_context
global_sdk = telemetry_sdk.global_sdk
seen = telemetry_sdk.seen
pytestmark = [pytest.mark.rule("TEL-1"), pytest.mark.usefixtures("clean_context")]


# Context in the envelope


def test_without_a_context_a_job_carries_nothing() -> None:
    assert Telemetry("memory").metadata() == {}


def test_without_an_sdk_a_current_trace_context_and_baggage_travel_all_the_same(global_sdk: Any) -> None:
    telemetry = Telemetry("memory")
    span = NonRecordingSpan(SpanContext(TRACE_ID, SPAN_ID, True, TraceFlags(1), TraceState([("a", "b")])))
    context.attach(baggage.set_baggage("tenant", "acme & co", trace.set_span_in_context(span)))

    assert not telemetry.active()
    assert telemetry.metadata() == {
        "traceparent": TRACEPARENT,
        "tracestate": "a=b",
        "baggage": "tenant=acme+%26+co",
    }


def test_the_baggage_of_the_push_is_the_handlers(seen: Seen) -> None:
    context.attach(baggage.set_baggage("tenant", "acme"))
    span = seen.telemetry.start_push("emails", "a" * 32, "emails.welcome")
    assert span is not None
    carried = span.metadata()

    def run() -> object:
        seen.telemetry.start_process(Handed(metadata=carried), "emails.welcome")
        return baggage.get_baggage("tenant")

    assert in_a_fresh_context(run) == "acme"


@pytest.mark.parametrize(("mode", "continues"), [("parent", True), ("link", False)])
def test_without_an_sdk_a_handler_passes_baggage_on_and_as_a_child_the_trace_too(
    global_sdk: Any, mode: TraceMode, continues: bool
) -> None:
    telemetry = Telemetry("memory")
    carried = {"traceparent": TRACEPARENT, "baggage": "tenant=acme"}

    def run() -> dict[str, str]:
        span = telemetry.start_process(Handed(metadata=carried), "emails.welcome", trace=mode)
        onward = telemetry.metadata()
        telemetry.finish_process(span, "acked")
        return onward

    expected = carried if continues else {"baggage": "tenant=acme"}
    assert in_a_fresh_context(run) == expected


_hex = st.text("0123456789abcdefABCDEFg ", max_size=4)
_headers = st.one_of(
    st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,4})?", fullmatch=True),
    st.builds(
        "{}00-{:032x}-{:016x}-{:02x}{}".format, _hex, st.integers(0, 3), st.integers(0, 3), st.just(1), _hex
    ),
    st.text(max_size=60),
)


@given(header=_headers, state=st.none() | st.sampled_from(["", "a=b", "a=b,c=d", "=", "a" * 600]))
def test_a_trace_context_is_read_as_the_apis_own_propagator_reads_it(header: str, state: str | None) -> None:
    carried = {"traceparent": header} | ({} if state is None else {"tracestate": state})

    theirs = trace.get_current_span(TraceContextTextMapPropagator().extract(carried, Context()))
    ours = creating_span(carried)

    assert (ours or trace.INVALID_SPAN_CONTEXT) == theirs.get_span_context()


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.sampled_from([0, 1, 3]))
def test_a_trace_context_is_written_as_the_apis_own_propagator_writes_it(
    trace_id: int, span_id: int, flags: int
) -> None:
    span = NonRecordingSpan(
        SpanContext(trace_id, span_id, False, TraceFlags(flags), TraceState([("a", "b")]))
    )
    theirs: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(theirs, trace.set_span_in_context(span, Context()))

    def run() -> dict[str, str]:
        context.attach(trace.set_span_in_context(span))
        return Telemetry("memory").metadata()

    assert in_a_fresh_context(run) == theirs


# Who is listening


def test_with_no_sdk_nothing_is_started(global_sdk: Any) -> None:
    telemetry = Telemetry("memory")

    assert not telemetry.active()
    assert telemetry.start_push("emails", "a" * 32, "emails.welcome") is None
    assert telemetry.start_push_many([Job()]) is None
    assert telemetry.start_process(Handed(), "emails.welcome") is None
    assert telemetry.start_process(Handed(metadata={"traceparent": TRACEPARENT}), "emails.welcome") is None
    assert telemetry.start_settle("ack", Handed()) is None
    telemetry.finish(None)
    telemetry.finish_process(None, "acked")
    telemetry.received([Handed()], 1, 2)
    telemetry.lease_lost("emails")
    telemetry.count_outcome("emails", "malformed")
    with telemetry.suppressed():
        assert context.get_current() == Context()


def test_an_sdk_set_up_after_the_queue_was_opened_is_found_and_a_removed_one_let_go(
    seen: Seen, global_sdk: Callable[[Any, Any], None]
) -> None:
    telemetry = Telemetry("memory")
    assert not telemetry.active()

    global_sdk(seen.tracer_provider, seen.meter_provider)
    assert telemetry.active()
    telemetry.finish(telemetry.start_push("emails", "a" * 32, "emails.welcome"))
    assert [span.name for span in seen.spans] == ["push emails"]
    assert len(sent(seen)) == 1

    global_sdk(None, None)
    assert not telemetry.active()


def test_an_sdk_set_up_before_the_queue_is_found(seen: Seen, global_sdk: Callable[[Any, Any], None]) -> None:
    global_sdk(seen.tracer_provider, None)

    assert Telemetry("memory").active()


def test_the_apis_own_setters_are_noticed() -> None:
    script = (
        "from aqueue.telemetry import Telemetry\n"
        "from opentelemetry import metrics, trace\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "first, second = Telemetry('memory'), Telemetry('memory')\n"
        "assert not first.active()\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "assert first.active() and second.active() and Telemetry('memory').active()\n"
        "metrics.set_meter_provider(MeterProvider())\n"
        "assert first.start_push('q', 'i', 'n') and first._recorder.instruments\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_explicit_providers_count_and_the_global_ones_do_not(
    seen: Seen, global_sdk: Callable[[Any, Any], None]
) -> None:
    elsewhere = Seen()
    global_sdk(elsewhere.tracer_provider, elsewhere.meter_provider)
    seen.telemetry.finish(seen.telemetry.start_push("emails", "a" * 32, "emails.welcome"))

    assert len(seen.spans) == 1
    assert elsewhere.spans == ()
    assert sent(elsewhere) == []


def test_two_queues_of_one_application_share_its_instruments(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    other = Telemetry("memory", tracer_provider=seen.tracer_provider, meter_provider=seen.meter_provider)
    for telemetry in (seen.telemetry, other):
        telemetry.finish(telemetry.start_push("emails", "a" * 32, "emails.welcome"))

    (point,) = sent(seen)
    assert point.value == 2
    assert caplog.records == []


def test_providers_that_do_nothing_count_as_none() -> None:
    telemetry = Telemetry("memory", tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider())

    assert not telemetry.active()


def test_metrics_without_tracing_and_tracing_without_metrics_both_work(global_sdk: Any) -> None:
    seen = Seen()
    for options in ({"tracer_provider": seen.tracer_provider}, {"meter_provider": seen.meter_provider}):
        telemetry = Telemetry("memory", **options)
        telemetry.finish(telemetry.start_push("emails", "a" * 32, "emails.welcome"))
        telemetry.finish(telemetry.start_push_many([Job(id="1"), Job(id="2")]))
        telemetry.received([Handed()], 1, 2)
        process = telemetry.start_process(Handed(), "emails.welcome", waited=1.0)
        telemetry.finish(telemetry.start_settle("ack", Handed()), ValueError())
        telemetry.finish_process(process, "acked", ValueError())
        telemetry.lease_lost("emails")

    assert len(seen.spans) == 7
    assert sum(point.value for point in sent(seen)) == 3


def test_a_span_ends_with_the_providers_it_began_with(
    seen: Seen, global_sdk: Callable[[Any, Any], None]
) -> None:
    global_sdk(seen.tracer_provider, seen.meter_provider)
    telemetry = Telemetry("memory")
    span = telemetry.start_process(Handed(), "emails.welcome")
    global_sdk(None, None)
    telemetry.finish_process(span, "acked")

    assert seen.span("process emails").end_time is not None
    (active,) = seen.points("aqueue.worker.active_jobs")
    assert active.value == 0


def test_a_sampled_out_push_still_hands_its_context_on() -> None:
    telemetry = Telemetry("memory", tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    span = telemetry.start_push("emails", "a" * 32, "emails.welcome")
    assert span is not None

    assert span.metadata()["traceparent"][-2:] in {"00", "02"}
    telemetry.finish(span, ValueError())


def test_importing_it_imports_neither_an_sdk_nor_entry_points_nor_metrics() -> None:
    script = (
        "import sys, aqueue.telemetry\n"
        "heavy = {'opentelemetry.' + part for part in 'sdk semconv propagate metrics baggage'.split()}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# Driver instrumentation


@pytest.mark.rule("POP-7")
def test_driver_instrumentation_is_quiet_inside_a_store_call_and_only_there(seen: Seen) -> None:
    keys = (context._SUPPRESS_INSTRUMENTATION_KEY, "suppress_instrumentation")
    with seen.ambient().start_as_current_span("request") as request:
        with seen.telemetry.suppressed():
            assert all(context.get_value(key) for key in keys)
            assert current_span() is request
        assert not any(context.get_value(key) for key in keys)
        assert current_span() is request


def test_suppression_ends_with_an_error_and_the_error_passes(seen: Seen) -> None:
    with pytest.raises(ValueError, match="the driver's"), seen.telemetry.suppressed():
        raise ValueError("the driver's")

    assert context.get_current() == Context()


def test_suppression_left_in_another_context_logs_nothing(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    suppression = seen.telemetry.suppressed()
    in_a_fresh_context(suppression.__enter__)
    suppression.__exit__(None, None, None)

    assert caplog.records == []
    assert context.get_current() == Context()
