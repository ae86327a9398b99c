"""The tokens of deliveries being handled and settled: what was started, and what its end records (TEL-1).

Every token ends once; ending it again does nothing, so that a `finally` may repeat what a branch did.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from opentelemetry import context as api
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind
from opentelemetry.trace.propagation import get_current_span, set_span_in_context

from aqueue.errors import StaleDelivery
from aqueue.telemetry import conventions as names
from aqueue.telemetry.current import undo
from aqueue.telemetry.propagation import creating_span, with_baggage
from aqueue.telemetry.recorder import Attributes, Recorder, type_of


class Delivered(Protocol):
    """A delivery, as far as telemetry looks at it."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def name(self) -> str:
        """The job's wire name."""

    @property
    def queue(self) -> str:
        """The queue it goes to or came from."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """What travels beside the arguments."""


class ProcessSpan:
    """One delivery being handled. `span` is the OpenTelemetry span, for handlers that ask for it by type."""

    __slots__ = ("_delivery", "_ended", "_job_name", "_recorder", "_span", "_started", "_token")

    def __init__(
        self,
        recorder: Recorder,
        delivery: Delivered,
        job_name: str,
        *,
        trace: Literal["link", "parent"],
        waited: float | None,
        attributes: Attributes,
    ) -> None:
        self._recorder = recorder
        self._delivery = delivery
        self._job_name = job_name
        self._ended = False
        self._span: Span | None = None
        self._token: object = None
        recorder.guard(self._begin, trace, attributes)
        recorder.guard(self._count_start, waited)
        self._started = time.perf_counter()

    @property
    def span(self) -> Span:
        """The span, or the current one where none was made."""
        return self._span if self._span is not None else get_current_span()

    def finish(
        self, outcome: str, error: BaseException | None = None, *, duration: float | None = None
    ) -> None:
        """End the span with how the delivery ended and what its handler or settlement raised, if anything.

        `duration` is how long the handler ran, in seconds; by default the time since the start. The span
        stays the current one, for the finalisers that may follow.
        """
        if self._ended:
            return
        self._ended = True
        seconds = time.perf_counter() - self._started if duration is None else duration
        if self._span is not None:
            self._recorder.guard(self._span.set_attribute, names.OUTCOME, str(outcome))
        self._recorder.end(self._span, error)
        self._recorder.guard(self._count_end, outcome, error, seconds)

    def leave(self) -> None:
        """Restore what was current before; needed only by a caller that shares its context with others."""
        token, self._token = self._token, None
        self._recorder.guard(undo, token)

    def _begin(self, trace: Literal["link", "parent"], attributes: Attributes) -> None:
        """Start the span and make it current.

        Nothing of the surrounding context is taken over: it is the worker's, not the job's. Nothing is
        detached at the end either: each delivery runs in a fresh contextvars context that is dropped with it,
        and a detach from any other context is an error that the API logs with a traceback.
        """
        metadata = self._delivery.metadata
        creator = creating_span(metadata)
        context = with_baggage(Context(), metadata)
        if trace == "parent" and creator is not None:
            context = set_span_in_context(NonRecordingSpan(creator), context)
        self._span = self._recorder.start(
            names.PROCESS,
            names.PROCESS,
            self._delivery.queue,
            SpanKind.CONSUMER,
            {
                names.MESSAGE_ID: self._delivery.id,
                names.JOB_NAME: self._job_name,
                names.JOB_ATTEMPT: self._delivery.attempt,
                **attributes,
            },
            context=context,
            links=_present(creator),
        )
        if self._span is not None:
            context = set_span_in_context(self._span, context)
        self._token = api.attach(context)

    def _count_start(self, waited: float | None) -> None:
        instruments = self._recorder.instruments
        if instruments is None:
            return
        instruments.active(self._delivery.queue, 1)
        if waited is not None:
            instruments.waited(self._delivery.queue, max(0.0, waited))

    def _count_end(self, outcome: str, error: BaseException | None, seconds: float) -> None:
        instruments = self._recorder.instruments
        if instruments is None:
            return
        queue = self._delivery.queue
        instruments.active(queue, -1)
        instruments.outcome(queue, str(outcome), 1)
        instruments.processed(queue, self._job_name, max(0.0, seconds), type_of(error))


class SettleSpan:
    """One delivery's settlement on its way; its batch may carry others', its span is its own."""

    __slots__ = ("_ended", "_operation", "_queue", "_recorder", "_span", "_started")

    def __init__(
        self, recorder: Recorder, operation: str, delivery: Delivered, attributes: Attributes
    ) -> None:
        self._recorder = recorder
        self._operation = operation
        self._queue = delivery.queue
        self._ended = False
        self._span = recorder.start(
            operation,
            names.SETTLE,
            delivery.queue,
            SpanKind.CLIENT,
            {names.MESSAGE_ID: delivery.id, **attributes},
            links=recorder.guard(_orphans_link, delivery) or (),
        )
        self._started = time.perf_counter()

    def finish(self, error: BaseException | None = None) -> None:
        """End the span; a `StaleDelivery` is counted as a stale settlement as well (FENCE-1)."""
        if self._ended:
            return
        self._ended = True
        seconds = time.perf_counter() - self._started
        self._recorder.end(self._span, error)
        self._recorder.guard(self._count, error, seconds)

    def _count(self, error: BaseException | None, seconds: float) -> None:
        instruments = self._recorder.instruments
        if instruments is None:
            return
        instruments.operation(self._operation, names.SETTLE, self._queue, seconds, type_of(error))
        if isinstance(error, StaleDelivery):
            instruments.stale(self._queue, self._operation)


def record_receive(
    recorder: Recorder,
    queue: str,
    deliveries: Sequence[Delivered],
    *,
    started: int,
    ended: int,
    attributes: Attributes,
) -> None:
    """Record what one sweep took from one queue; times are Unix nanoseconds."""
    creators = [creator for each in deliveries if (creator := creating_span(each.metadata)) is not None]
    count: Attributes = (
        {names.MESSAGE_ID: deliveries[0].id} if len(deliveries) == 1 else {names.BATCH_COUNT: len(deliveries)}
    )
    span = recorder.start(
        names.RECEIVE,
        names.RECEIVE,
        queue,
        SpanKind.CLIENT,
        {**count, **attributes},
        links=creators,
        started=started,
    )
    recorder.end(span, ended=ended)
    if recorder.instruments is not None:
        recorder.instruments.consumed(queue, len(deliveries))
        recorder.instruments.operation(names.RECEIVE, names.RECEIVE, queue, max(0.0, (ended - started) / 1e9))


def _orphans_link(delivery: Delivered) -> Sequence[SpanContext]:
    """Return what ties a settlement outside any span, such as a script's own `ack`, to its job."""
    if get_current_span().get_span_context().is_valid:
        return ()
    return _present(creating_span(delivery.metadata))


def _present(creator: SpanContext | None) -> Sequence[SpanContext]:
    return () if creator is None else (creator,)
