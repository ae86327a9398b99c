"""A broken SDK never reaches a job (WORK-4)."""

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
import telemetry_sdk
from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan
from telemetry_sdk import REMOTE, TRACEPARENT, Handed, Job, Seen

from aqueue.errors import PushManyError
from aqueue.telemetry import Telemetry

clean_context = telemetry_sdk.clean_context
global_sdk = telemetry_sdk.global_sdk
seen = telemetry_sdk.seen
pytestmark = [pytest.mark.rule("TEL-1"), pytest.mark.usefixtures("clean_context")]


class Broken(SpanProcessor):
    """A span processor that raises wherever it is asked to."""

    def __init__(self, *, start: bool = True, end: bool = True) -> None:
        self._start, self._end = start, end

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        if self._start:
            raise RuntimeError("on_start")

    def on_end(self, span: ReadableSpan) -> None:
        if self._end:
            raise RuntimeError("on_end")


class BrokenTracerProvider(trace.TracerProvider):
    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        raise RuntimeError("get_tracer")


class BrokenMeterProvider(metrics.MeterProvider):
    def get_meter(self, *args: Any, **kwargs: Any) -> metrics.Meter:
        raise RuntimeError("get_meter")


class BrokenMeter(metrics.NoOpMeterProvider):
    """Its instruments are made, and refuse every measurement."""

    def get_meter(self, *args: Any, **kwargs: Any) -> metrics.Meter:
        class Refuses:
            def __getattr__(self, name: str) -> Any:
                def refuse(*args: Any, **kwargs: Any) -> Any:
                    if name.startswith("create"):
                        return Refuses()
                    raise RuntimeError(name)

                return refuse

        return cast("metrics.Meter", Refuses())


class BrokenExporter(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        raise RuntimeError("export")


def broken(*processors: SpanProcessor) -> TracerProvider:
    provider = TracerProvider()
    for processor in processors:
        provider.add_span_processor(processor)
    return provider


def whole_life(telemetry: Telemetry) -> None:
    jobs = [Job(id="1"), Job(id="2")]
    push = telemetry.start_push("emails", "a" * 32, "emails.welcome", 1, 1.0)
    if push is not None:
        push.metadata()
    telemetry.finish(push, ValueError())
    many = telemetry.start_push_many(jobs)
    if many is not None:
        many.metadata(jobs[0])
    telemetry.finish(many, PushManyError([]))  # says less than it should
    telemetry.received([Handed(metadata={"traceparent": TRACEPARENT})], 1, 2)
    process = telemetry.start_process(
        Handed(metadata={"traceparent": TRACEPARENT}), "emails.welcome", waited=1
    )
    with telemetry.suppressed():
        telemetry.finish(telemetry.start_settle("ack", Handed()), ValueError())
    telemetry.finish_process(process, "acked", ValueError())
    if process is not None:
        process.leave()
    telemetry.lease_lost("emails")
    telemetry.count_outcome("emails", "malformed")
    telemetry.metadata()


BROKEN: dict[str, Callable[[], Telemetry]] = {
    "tracer provider": lambda: Telemetry("memory", tracer_provider=BrokenTracerProvider()),
    "meter provider": lambda: Telemetry("memory", meter_provider=BrokenMeterProvider()),
    "instruments": lambda: Telemetry("memory", meter_provider=BrokenMeter()),
    "on_start": lambda: Telemetry("memory", tracer_provider=broken(Broken(end=False))),
    "on_end": lambda: Telemetry("memory", tracer_provider=broken(Broken(start=False))),
}


@pytest.mark.rule("WORK-4")
@pytest.mark.parametrize("part", BROKEN)
def test_a_broken_part_of_an_sdk_never_reaches_a_job_and_is_logged_once(
    part: str, global_sdk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = BROKEN[part]()
    for _ in range(3):
        whole_life(telemetry)

    ours = [record for record in caplog.records if record.name.startswith("aqueue")]
    assert [(record.name, record.levelno) for record in ours] == [("aqueue.telemetry", logging.WARNING)]


@pytest.mark.rule("WORK-4")
def test_what_is_logged_of_a_failure_holds_no_text_of_the_jobs_own(caplog: pytest.LogCaptureFixture) -> None:
    def redact(error: BaseException) -> str:
        raise RuntimeError(f"can't redact {error}")

    seen = Seen(redact=redact)
    try:
        raise ValueError("card 4111")
    except ValueError as error:
        seen.telemetry.finish(seen.telemetry.start_settle("ack", Handed()), error)

    assert "RuntimeError" in caplog.text
    assert "card" not in caplog.text


@pytest.mark.rule("WORK-4")
def test_a_throwing_exporter_never_reaches_a_job(global_sdk: Any) -> None:
    whole_life(Telemetry("memory", tracer_provider=broken(SimpleSpanProcessor(BrokenExporter()))))


@pytest.mark.rule("WORK-4")
@pytest.mark.parametrize("part", BROKEN)
def test_a_throwing_logger_is_ignored_as_well(part: str, global_sdk: Any) -> None:
    class Throwing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the disk is full")

    handler = Throwing()
    logger = logging.getLogger("aqueue.telemetry")
    logger.addHandler(handler)
    try:
        whole_life(BROKEN[part]())
    finally:
        logger.removeHandler(handler)


@pytest.mark.rule("WORK-4")
def test_a_broken_tracer_leaves_the_metrics_whole_and_a_broken_meter_the_spans(global_sdk: Any) -> None:
    seen = Seen()
    spanless = Telemetry("memory", tracer_provider=broken(Broken()), meter_provider=seen.meter_provider)
    countless = Telemetry("memory", tracer_provider=seen.tracer_provider, meter_provider=BrokenMeter())
    for telemetry in (spanless, countless):
        span = telemetry.start_process(Handed(), "emails.welcome")
        telemetry.finish_process(span, "acked")

    assert len(seen.spans) == 1
    (duration,) = seen.points("messaging.process.duration")
    assert duration.count == 1


@pytest.mark.rule("WORK-4")
def test_where_the_push_span_failed_the_surrounding_context_travels_instead() -> None:
    telemetry = Telemetry("memory", tracer_provider=broken(Broken()))
    context.attach(trace.set_span_in_context(NonRecordingSpan(REMOTE)))
    span = telemetry.start_push("emails", "a" * 32, "emails.welcome")
    assert span is not None

    assert span.metadata() == {"traceparent": TRACEPARENT}
