"""W3C trace context and baggage: from the current context into a job's metadata, and back (TEL-1).

Reading and writing `traceparent` is done here: the API's propagator takes twice as long, for every job, and
the global one scans entry points when it is imported. The application's own choice of global propagator is
left aside on purpose: what travels in an envelope is W3C, always.
"""

import re
import sys
from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation import get_current_span

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
BAGGAGE = "baggage"

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_MAX_HEADER = 512


def outgoing(creator: Span | None = None) -> dict[str, str]:
    """Return what a job carries: its creating span, by default the current one, and the current baggage."""
    metadata: dict[str, str] = {}
    span = (get_current_span() if creator is None else creator).get_span_context()
    if span.is_valid:
        metadata[TRACEPARENT] = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
        if span.trace_state:
            metadata[TRACESTATE] = span.trace_state.to_header()
    # Nobody can have set baggage before that module was imported, and importing it takes milliseconds.
    if "opentelemetry.baggage" in sys.modules:
        from opentelemetry.baggage.propagation import W3CBaggagePropagator

        W3CBaggagePropagator().inject(metadata)
    return metadata


def creating_span(metadata: Mapping[str, str]) -> SpanContext | None:
    """Return the context of the span that created a job, or None where it carries none that is valid."""
    header = metadata.get(TRACEPARENT)
    if header is None or len(header) > _MAX_HEADER:
        return None
    match = _TRACEPARENT.fullmatch(header.strip(" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    state = metadata.get(TRACESTATE)
    span = SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([state]) if state and len(state) <= _MAX_HEADER else None,
    )
    return span if span.is_valid else None


def with_baggage(context: Context, metadata: Mapping[str, str]) -> Context:
    """Return the context with the baggage a job carries."""
    if BAGGAGE not in metadata:
        return context
    from opentelemetry.baggage.propagation import W3CBaggagePropagator

    return W3CBaggagePropagator().extract(metadata, context)
