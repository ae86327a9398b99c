"""An application's own OpenTelemetry SDK, kept in memory, for the tests of what aqueue tells it."""

import contextvars
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

from aqueue.telemetry import Telemetry

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
REMOTE = SpanContext(TRACE_ID, SPAN_ID, is_remote=True, trace_flags=TraceFlags(1))


@dataclass(frozen=True)
class Job:
    id: str = "a" * 32
    name: str = "emails.welcome"
    queue: str = "emails"


@dataclass(frozen=True)
class Handed:
    id: str = "a" * 32
    name: str = "emails.welcome"
    queue: str = "emails"
    attempt: int = 1
    metadata: Mapping[str, str] = field(default_factory=dict)


class Seen:
    """The SDK of an application that exports to memory, and a `Telemetry` that was given it."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader])
        self.telemetry = Telemetry(
            "memory", tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **options
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def ambient(self) -> "trace.Tracer":
        return self.tracer_provider.get_tracer("the application")


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def clean_context() -> Iterator[None]:
    """Each test starts with an empty OpenTelemetry context and leaves none behind."""
    context.attach(Context())
    yield
    context.attach(Context())


@pytest.fixture
def global_sdk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], None]:
    """Set the global providers as the API's setters do, but so that they can be taken back."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(_internal, "_METER_PROVIDER", None)

    def install(tracer_provider: Any, meter_provider: Any) -> None:
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracer_provider)
        monkeypatch.setattr(_internal, "_METER_PROVIDER", meter_provider)

    return install


def in_a_fresh_context(act: Callable[[], Any]) -> Any:
    return contextvars.Context().run(act)


def sent(seen: Seen) -> list[Any]:
    return seen.points("messaging.client.sent.messages")


def remote(span: SpanContext | None) -> SpanContext:
    assert span is not None
    return SpanContext(span.trace_id, span.span_id, True, span.trace_flags, span.trace_state)
