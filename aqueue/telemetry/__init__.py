"""Spans, metrics and trace context: the only part of aqueue that knows OpenTelemetry (TEL-1).

The queue and the worker are given one `Telemetry` and call it in plain words::

    span = telemetry.start_push(queue, job_id, job_name, size, delay)    # None where nobody listens
    metadata = span.metadata() if span else telemetry.metadata()         # goes into the envelope
    telemetry.finish(span, error)                                        # None is fine, and so is no error

    span = telemetry.start_push_many(jobs)      # span.metadata(job) for each; finish with the PushManyError
    telemetry.received(deliveries, started, ended)                       # after a sweep that found something

    span = telemetry.start_process(delivery, name, trace="link")         # current from here on
    telemetry.finish_process(span, outcome, error)                       # after the settlement
    span = telemetry.start_settle("ack", delivery)                       # inside it; ends with finish()

    with telemetry.suppressed(): ...            # around every call to a driver
    telemetry.lease_lost(queue)                 # a lease ran out under its handler
    telemetry.count_outcome(queue, "malformed") # an ending without a process span

Three promises: with no SDK each call is a comparison or two; nothing here raises into its caller, and only
its first failure is logged, whatever an exporter does (WORK-4); and no argument of a job and no text of an
exception is recorded unless `redact` lets it.

Spans and metrics follow the current messaging conventions, so `process` spans are roots *linked* to the span
that pushed the job: retries, delays and fan-out would otherwise make traces of hours and thousands of spans.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, TypeAlias

from opentelemetry.trace import Span, TracerProvider
from opentelemetry.trace.propagation import get_current_span

from aqueue.telemetry import conventions as names
from aqueue.telemetry.consuming import Delivered, ProcessSpan, SettleSpan, record_receive
from aqueue.telemetry.current import Suppression, context_reader
from aqueue.telemetry.metrics import Instruments
from aqueue.telemetry.producing import Pushed, PushManySpan, PushSpan
from aqueue.telemetry.propagation import BAGGAGE, TRACEPARENT, outgoing
from aqueue.telemetry.providers import Pinned, meter_of, meter_source, tracer_of, tracer_source
from aqueue.telemetry.recorder import Guard, Recorder, Redact

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = [
    "Delivered",
    "ProcessSpan",
    "PushManySpan",
    "PushSpan",
    "Pushed",
    "SettleSpan",
    "Span",
    "Telemetry",
    "TraceMode",
    "current_span",
]

TraceMode: TypeAlias = Literal["link", "parent"]

_NOT_ASKED = object()
current_context = context_reader()
_LOUD = nullcontext()


class Telemetry:
    """What the queue and the worker tell OpenTelemetry.

    `system` is the store's name in the messaging conventions, `address` and `port` its server, if it has one.
    Without explicit providers the global ones count, whenever the application sets them. Errors are recorded
    by class and place; `redact` may add a text for an exception (`str` for its message as it is).
    """

    def __init__(
        self,
        system: str,
        *,
        address: str | None = None,
        port: int | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: "MeterProvider | None" = None,
        redact: Redact | None = None,
    ) -> None:
        self._base: dict[str, str | int] = {names.SYSTEM: system}
        if address is not None:
            self._base[names.SERVER_ADDRESS] = address
        if address is not None and port is not None:
            self._base[names.SERVER_PORT] = port
        self._redact = redact
        self._guard = Guard()
        self._tracers = self._guard(tracer_source, tracer_provider) or Pinned()
        self._meters = self._guard(meter_source, meter_provider) or Pinned()
        self._seen_tracers: object = _NOT_ASKED
        self._seen_meters: object = _NOT_ASKED
        self._recorder = Recorder(None, None, self._base, redact, self._guard)
        self._active = False

    def active(self) -> bool:
        """Say whether anybody receives spans or measurements; cheap enough to ask at every operation."""
        if (
            self._tracers._TRACER_PROVIDER is not self._seen_tracers
            or self._meters._METER_PROVIDER is not self._seen_meters
        ):
            self._adopt()
        return self._active

    def metadata(self) -> dict[str, str]:
        """Return the current trace context and baggage for an envelope; needs no SDK, only a context."""
        if not current_context():
            return {}
        return self._guard(outgoing) or {}

    def start_push(
        self, queue: str, job_id: str, job_name: str, size: int | None = None, delay: float = 0.0
    ) -> PushSpan | None:
        """Start `push {queue}` for one job; `size` is its arguments' in bytes, `delay` in seconds."""
        if not self.active():
            return None
        extra: dict[str, str | int | float] = {}
        if size is not None:
            extra[names.BODY_SIZE] = size
        if delay > 0:
            extra[names.JOB_DELAY] = delay
        return self._guard(PushSpan, self._recorder, queue, job_id, job_name, extra)

    def start_push_many(self, jobs: Sequence[Pushed]) -> PushManySpan | None:
        """Start the spans of a batch: `create {queue}` for each job and `push {queue}` for each queue."""
        return self._guard(PushManySpan, self._recorder, jobs) if self.active() else None

    def received(
        self, deliveries: Sequence[Delivered], started: int, ended: int, *, client_id: str | None = None
    ) -> None:
        """Record `receive {queue}` for each queue a sweep took from; call it for sweeps that found something.

        `started` and `ended` are `time.time_ns()` before and after the sweep.
        """
        if not self.active():
            return
        by_queue: dict[str, list[Delivered]] = {}
        for delivery in deliveries:
            by_queue.setdefault(delivery.queue, []).append(delivery)
        for queue, taken in by_queue.items():
            self._guard(
                record_receive,
                self._recorder,
                queue,
                taken,
                started=started,
                ended=ended,
                attributes=_client(client_id),
            )

    def start_process(
        self,
        delivery: Delivered,
        job_name: str,
        *,
        trace: TraceMode = "link",
        waited: float | None = None,
        client_id: str | None = None,
    ) -> ProcessSpan | None:
        """Start `process {queue}` and make it current; call it in the delivery's own contextvars context.

        It is a root linked to the span that pushed the job; `trace="parent"` makes it that span's child as
        well. `waited` is how long the job had been due, in seconds. Without an SDK the job's baggage, and
        with `trace="parent"` its trace context, still become current, so that they travel on.
        """
        if not self.active() and not ((metadata := delivery.metadata) and _travels_on(metadata, trace)):
            return None
        return self._guard(
            ProcessSpan,
            self._recorder,
            delivery,
            job_name,
            trace=trace,
            waited=waited,
            attributes=_client(client_id),
        )

    def finish_process(
        self,
        span: ProcessSpan | None,
        outcome: str,
        error: BaseException | None = None,
        *,
        duration: float | None = None,
    ) -> None:
        """End a delivery's processing with its outcome; see `ProcessSpan.finish`."""
        if span is not None:
            span.finish(outcome, error, duration=duration)

    def start_settle(self, operation: str, delivery: Delivered, *, delay: float = 0.0) -> SettleSpan | None:
        """Start `{operation} {queue}`, a child of the current span: in a worker that is `process`.

        `delay` is a release's, in seconds.
        """
        if not self.active():
            return None
        extra: dict[str, str | int | float] = {names.RETRY_DELAY: delay} if delay > 0 else {}
        return self._guard(SettleSpan, self._recorder, str(operation), delivery, extra)

    def finish(
        self, span: PushSpan | PushManySpan | SettleSpan | None, error: BaseException | None = None
    ) -> None:
        """End what a `start_…` returned, None included, with the error that reaches the caller, if any."""
        if span is not None:
            span.finish(error)

    def lease_lost(self, queue: str) -> None:
        """Count a lease that ran out while its job was handled (LEASE-3)."""
        if self.active() and (instruments := self._recorder.instruments) is not None:
            self._guard(instruments.lease_lost, queue)

    def count_outcome(self, queue: str, outcome: str, count: int = 1) -> None:
        """Count endings that have no `process` span: malformed jobs, and lost ones set aside unrun."""
        if self.active() and (instruments := self._recorder.instruments) is not None:
            self._guard(instruments.outcome, queue, str(outcome), count)

    def suppressed(self) -> AbstractContextManager[None]:
        """Keep driver instrumentation quiet inside a `with` block; a job's cost is told by its spans."""
        return Suppression() if self.active() else _LOUD

    def _adopt(self) -> None:
        """Take over the providers in force, once for each change of them."""
        self._seen_tracers = tracers = self._tracers._TRACER_PROVIDER
        self._seen_meters = meters = self._meters._METER_PROVIDER
        tracer = self._guard(tracer_of, tracers)
        meter = self._guard(meter_of, meters)
        instruments = None if meter is None else self._guard(Instruments, meter, self._base)
        self._recorder = Recorder(tracer, instruments, self._base, self._redact, self._guard)
        self._active = tracer is not None or instruments is not None


def current_span() -> Span:
    """Return the current OpenTelemetry span; one that records nothing where there is none."""
    return get_current_span()


def _client(client_id: str | None) -> dict[str, str | int | float]:
    return {} if client_id is None else {names.CLIENT_ID: client_id}


def _travels_on(metadata: Mapping[str, str], trace: TraceMode) -> bool:
    return BAGGAGE in metadata or (trace == "parent" and TRACEPARENT in metadata)
