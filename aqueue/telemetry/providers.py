"""Which tracer and meter provider is in force at this moment, for a few nanoseconds a look.

An application may set up its SDK before or after it opens a queue, so the question is asked at every
operation. The API's public getters read the process environment each time (2 microseconds); hence the look
at the variable behind them, which a pinned provider imitates. An API without that variable gets its proxies,
which are slower and never wrong.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from opentelemetry import trace
from opentelemetry.trace import NoOpTracer, Tracer, TracerProvider

from aqueue.telemetry.conventions import SCHEMA_URL, SCOPE_NAME

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider


class TracerSource(Protocol):
    """Where the tracer provider in force is read, such as the module `opentelemetry.trace` itself."""

    _TRACER_PROVIDER: TracerProvider | None


class MeterSource(Protocol):
    """Where the meter provider in force is read."""

    _METER_PROVIDER: "MeterProvider | None"


@dataclass(slots=True)
class Pinned:
    """Providers that never change: explicit ones, or none at all."""

    _TRACER_PROVIDER: TracerProvider | None = None
    _METER_PROVIDER: "MeterProvider | None" = None


def tracer_source(explicit: TracerProvider | None) -> TracerSource:
    """Return where to look for the explicit provider, else for the global one."""
    if explicit is not None:
        return Pinned(_TRACER_PROVIDER=explicit)
    provider = trace.get_tracer_provider()  # loads the one that OTEL_PYTHON_TRACER_PROVIDER names, if it does
    return trace if hasattr(trace, "_TRACER_PROVIDER") else Pinned(_TRACER_PROVIDER=provider)


def meter_source(explicit: "MeterProvider | None") -> MeterSource:
    """Return where to look for the meter provider, as `tracer_source` does."""
    if explicit is not None:
        return Pinned(_METER_PROVIDER=explicit)
    from opentelemetry import metrics
    from opentelemetry.metrics import _internal

    provider = metrics.get_meter_provider()  # as above
    return _internal if hasattr(_internal, "_METER_PROVIDER") else Pinned(_METER_PROVIDER=provider)


def tracer_of(provider: TracerProvider | None) -> Tracer | None:
    """Return the provider's tracer, or None where its spans would go nowhere."""
    if provider is None:
        return None
    tracer = provider.get_tracer(SCOPE_NAME, _version(), SCHEMA_URL)
    return None if isinstance(tracer, NoOpTracer) else tracer


def meter_of(provider: "MeterProvider | None") -> "Meter | None":
    """Return the provider's meter, or None where its measurements would go nowhere."""
    if provider is None:
        return None
    from opentelemetry.metrics import NoOpMeter

    meter = provider.get_meter(SCOPE_NAME, _version(), SCHEMA_URL)
    return None if isinstance(meter, NoOpMeter) else meter


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("aqueue-jobs")
    except PackageNotFoundError:
        return ""
