"""The tokens of pushes under way: what was started, and what its end records (TEL-1).

Every token ends once; ending it again does nothing, so that a `finally` may repeat what a branch did.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.trace import Span, SpanKind

from aqueue.errors import PushManyError
from aqueue.telemetry import conventions as names
from aqueue.telemetry.propagation import outgoing
from aqueue.telemetry.recorder import Attributes, Recorder, type_of


class Pushed(Protocol):
    """A job on its way into the store, as far as telemetry looks at it."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def name(self) -> str:
        """The job's wire name."""

    @property
    def queue(self) -> str:
        """The queue it goes to or came from."""


class PushSpan:
    """One `push` on its way."""

    __slots__ = ("_ended", "_queue", "_recorder", "_span", "_started")

    def __init__(
        self, recorder: Recorder, queue: str, job_id: str, job_name: str, attributes: Attributes
    ) -> None:
        self._recorder = recorder
        self._queue = queue
        self._ended = False
        self._span = recorder.start(
            names.PUSH,
            names.SEND,
            queue,
            SpanKind.PRODUCER,
            {names.MESSAGE_ID: job_id, names.JOB_NAME: job_name, **attributes},
        )
        self._started = time.perf_counter()

    def metadata(self) -> dict[str, str]:
        """Return what the job carries, so that its processing links to this span."""
        return _metadata_of(self._recorder, self._span)

    def finish(self, error: BaseException | None = None) -> None:
        """End the span and count the job as sent, or as failed."""
        if self._ended:
            return
        self._ended = True
        seconds = time.perf_counter() - self._started
        self._recorder.end(self._span, error)
        self._recorder.guard(_count_sent, self._recorder, self._queue, [error], error, seconds)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The jobs of one `push_many` that go to one queue, by position, and the span that sends them."""

    queue: str
    positions: Sequence[int]
    span: Span | None


class PushManySpan:
    """One `push_many` on its way: a `create` span per job, and per queue the span that sends them.

    A job that is alone on its queue gets the one `push` span that `push` would make.
    """

    __slots__ = ("_batches", "_created", "_ended", "_recorder", "_started")

    def __init__(self, recorder: Recorder, jobs: Sequence[Pushed]) -> None:
        self._recorder = recorder
        self._ended = False
        self._created: dict[str, Span | None] = {}
        positions: dict[str, list[int]] = {}
        for position, job in enumerate(jobs):
            positions.setdefault(job.queue, []).append(position)
        self._batches = [self._start(queue, jobs, places) for queue, places in positions.items()]
        self._started = time.perf_counter()

    def metadata(self, job: Pushed) -> dict[str, str]:
        """Return what this job carries, so that its processing links to its own span."""
        return _metadata_of(self._recorder, self._created.get(job.id))

    def finish(self, error: BaseException | None = None) -> None:
        """End the spans and count each job; a `PushManyError` says which of them failed (PUSH-7)."""
        if self._ended:
            return
        self._ended = True
        seconds = time.perf_counter() - self._started
        for batch in self._batches:
            self._recorder.guard(self._end, batch, error, seconds)

    def _end(self, batch: _Batch, error: BaseException | None, seconds: float) -> None:
        errors = [_error_at(position, error) for position in batch.positions]
        first = next((each for each in errors if each is not None), None)
        self._recorder.end(batch.span, first)
        _count_sent(self._recorder, batch.queue, errors, first, seconds)

    def _start(self, queue: str, jobs: Sequence[Pushed], positions: Sequence[int]) -> _Batch:
        if len(positions) == 1:
            job = jobs[positions[0]]
            span = self._recorder.start(names.PUSH, names.SEND, queue, SpanKind.PRODUCER, _identity(job))
            self._created[job.id] = span
            return _Batch(queue, positions, span)
        for position in positions:
            self._create(jobs[position])
        created = [self._created[jobs[position].id] for position in positions]
        span = self._recorder.start(
            names.PUSH,
            names.SEND,
            queue,
            SpanKind.CLIENT,
            {names.BATCH_COUNT: len(positions)},
            links=[span.get_span_context() for span in created if span is not None],
        )
        return _Batch(queue, positions, span)

    def _create(self, job: Pushed) -> None:
        recorder = self._recorder
        span = recorder.start(names.CREATE, names.CREATE, job.queue, SpanKind.PRODUCER, _identity(job))
        recorder.end(span)
        self._created[job.id] = span


def _identity(job: Pushed) -> Attributes:
    return {names.MESSAGE_ID: job.id, names.JOB_NAME: job.name}


def _metadata_of(recorder: Recorder, span: Span | None) -> dict[str, str]:
    return recorder.guard(outgoing, span) or {}


def _count_sent(
    recorder: Recorder,
    queue: str,
    errors: Sequence[BaseException | None],
    first: BaseException | None,
    seconds: float,
) -> None:
    instruments = recorder.instruments
    if instruments is None:
        return
    kinds = [type_of(error) for error in errors]
    for kind in dict.fromkeys(kinds):
        instruments.sent(queue, kinds.count(kind), kind)
    instruments.operation(names.PUSH, names.SEND, queue, seconds, type_of(first))


def _error_at(position: int, error: BaseException | None) -> BaseException | None:
    if not isinstance(error, PushManyError):
        return error
    outcome = error.outcomes[position]
    return outcome if isinstance(outcome, BaseException) else None
