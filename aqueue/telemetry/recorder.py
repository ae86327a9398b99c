"""Starting and ending spans; nothing an exporter, sampler or span processor does reaches a job (WORK-4)."""

import contextlib
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeAlias, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from aqueue.contract.failure import clean_text, error_type
from aqueue.telemetry import conventions as names
from aqueue.telemetry.metrics import Instruments

P = ParamSpec("P")
R = TypeVar("R")

Attributes: TypeAlias = dict[str, str | int | float]
Redact: TypeAlias = Callable[[BaseException], str]

_logger = logging.getLogger("aqueue.telemetry")
_MAX_MESSAGE_BYTES = 4096
_MAX_FRAMES = 50


class Guard:
    """Calls observers and keeps what they raise; the first failure is logged, more would repeat it."""

    __slots__ = ("_complained",)

    def __init__(self) -> None:
        self._complained = False

    def __call__(self, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Return what `act` returns, or None where it raised."""
        try:
            return act(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - exporters and processors are anybody's code (WORK-4)
            self._complain(error)
            return None

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        with contextlib.suppress(Exception):
            # Not `exc_info`: what failed may have been shown a job's exception, and its text stays here.
            _logger.warning(
                "telemetry failed with %s; jobs go on and later failures are not logged\n%s",
                error_type(error),
                _frames(error),
            )


class Recorder:
    """The tracer and instruments a span token was started with, so that it also ends with them.

    `tracer` or `instruments` is None where nothing receives spans or measurements. `base` is on every span.
    """

    __slots__ = ("_redact", "base", "guard", "instruments", "tracer")

    def __init__(
        self,
        tracer: Tracer | None,
        instruments: Instruments | None,
        base: Mapping[str, str | int],
        redact: Redact | None,
        guard: Guard,
    ) -> None:
        self.tracer = tracer
        self.instruments = instruments
        self.base = base
        self.guard = guard
        self._redact = redact

    def start(
        self,
        operation: str,
        kind: str,
        queue: str,
        span_kind: SpanKind,
        attributes: Attributes,
        *,
        context: Context | None = None,
        links: Sequence[SpanContext] = (),
        started: int | None = None,
    ) -> Span | None:
        """Start `{operation} {queue}` in the given or current context; `started` is in Unix nanoseconds."""
        if self.tracer is None:
            return None
        return self.guard(
            self.tracer.start_span,
            f"{operation} {queue}",
            context=context,
            kind=span_kind,
            attributes={
                **self.base,
                names.OPERATION_NAME: operation,
                names.OPERATION_TYPE: kind,
                names.DESTINATION: queue,
                **attributes,
            },
            links=[Link(link) for link in links],
            start_time=started,
        )

    def end(self, span: Span | None, error: BaseException | None = None, *, ended: int | None = None) -> None:
        """End a span, with status ERROR where there was an error."""
        if span is None:
            return
        if error is not None:
            self.guard(self._describe, span, error)
        self.guard(span.end, ended)

    def _describe(self, span: Span, error: BaseException) -> None:
        """Say what was raised and where; what it says may hold a job's data and needs `redact` to be kept.

        This writes the event that `Span.record_exception` would, less its two leaks: the message, and the
        message again at the end of the stack trace.
        """
        kind = error_type(error)
        message = self.guard(self._redact, error) if self._redact is not None else None
        text = kind if message is None else f"{kind}: {clean_text(message, _MAX_MESSAGE_BYTES)}"
        span.set_attribute(names.ERROR_TYPE, kind)
        span.set_status(Status(StatusCode.ERROR, text))
        if not span.is_recording():
            return
        event = {
            names.EXCEPTION_TYPE: kind,
            names.EXCEPTION_STACKTRACE: clean_text(f"{_frames(error)}{text}"),
        }
        if message is not None:
            event[names.EXCEPTION_MESSAGE] = clean_text(message, _MAX_MESSAGE_BYTES)
        span.add_event(names.EXCEPTION_EVENT, event)


def type_of(error: BaseException | None) -> str | None:
    """Return the value of `error.type`, or None where nothing was raised."""
    return None if error is None else error_type(error)


def _frames(error: BaseException) -> str:
    """Return where it was raised: files, lines and source, which is code and not data."""
    return "".join(traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES))
