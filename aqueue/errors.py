"""Every error aqueue raises, as one tree.

Who is to blame decides the branch::

    AqueueError
    ├── InvalidQueueArgument (ValueError)   the caller: a name, delay, limit, URL or option
    ├── InvalidJob (TypeError)              the caller: a class or function that can't be a job
    ├── UnserializableJob (ValueError)      the caller: a value that can't travel
    ├── Unsupported                         the caller: this backend has no such capability
    │   ├── NotClearable
    │   ├── FailedStoreMissing
    │   └── NotesMissing
    ├── QueueUnavailable                    the set-up: an extra that isn't installed
    ├── KeyringMissing                      the set-up: sealed jobs, no keys
    ├── KeyInUse                            the caller: a key that still seals jobs
    ├── UnknownEnvelopeVersion              the set-up: a newer aqueue wrote this
    ├── QueueClosed                         the caller: a queue that isn't open
    ├── StoreError                          the store
    │   ├── ConnectionFailed                the write was certainly never dispatched
    │   ├── OutcomeUnknown                  the write may have been applied
    │   ├── StoreRefused                    the store answered that it did nothing
    │   │   └── NoteContended               others changed the note each time first
    │   └── PublishNotConfirmed             RabbitMQ answered anything but an acknowledgement
    ├── UnknownTopic (LookupError)          the caller: a topic that nobody subscribes to
    ├── UnknownSchedule (LookupError)       the caller: a schedule that this scheduler doesn't have
    ├── ResultFailed                        the job whose result was asked for failed
    ├── ResultMissing (LookupError)         no result is kept of the job
    │   └── ResultTimeout (TimeoutError)    none came in time
    ├── PushManyError                       some of a batch was not stored
    │   └── PublishManyError                some subscribers of a topic got no copy
    ├── StaleDelivery                       the fence: this delivery is not leased any more
    ├── MalformedJobSettled                 stored bytes nobody can read were set aside
    ├── UnhandledJob                        the job: no handler knows its name
    ├── JobReconstructionError              the job: its arguments don't fit the code
    ├── UnresolvableParameter               the job: a `handle()` parameter nothing provides
    ├── JobLost                             the job: its lease ran out too often
    ├── StopPropagation                     raised *by* inline listeners to end an event's way
    └── JobSignal                           raised *by* handlers to choose an ending
        ├── Retry
        ├── Snooze
        │   └── OccurrenceLost              the fence: somebody else may run this occurrence by now
        └── Discard

Messages name the job, the queue and what to change; never an argument's value, never a secret.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum


class Settlement(StrEnum):
    """The operation on a delivery that a store may refuse (FENCE-1)."""

    ACK = "ack"
    RELEASE = "release"
    FAIL = "fail"
    EXTEND = "extend"


class AqueueError(Exception):
    """The root of every error this package raises."""


class InvalidQueueArgument(AqueueError, ValueError):
    """A name, delay, timeout, count, URL or option is not valid; nothing was sent (PUSH-1)."""


class InvalidJob(AqueueError, TypeError):
    """A class or function can't be a job, or an object pushed is not one (ARG-2)."""


class UnserializableJob(AqueueError, ValueError):
    """A value has no exact wire form; nothing was sent (ARG-3)."""


class Unsupported(AqueueError):
    """The backend lacks a capability; `Capabilities` tells beforehand."""


class NotClearable(Unsupported):
    """The backend can't clear a queue without touching reserved jobs (CLEAR-1)."""


class FailedStoreMissing(Unsupported):
    """The backend keeps no failed jobs of its own and no `failed=` store was given (FAIL-1)."""


class NotesMissing(Unsupported):
    """The backend keeps no notes, and what was asked for is built on them (NOTE-1)."""


class QueueUnavailable(AqueueError):
    """A backend's driver is not installed; the message holds the exact `pip install`."""


class KeyringMissing(AqueueError):
    """A sealed job met a queue without keys: a mistake in the set-up, so nothing was settled (SIGN-1)."""


class KeyInUse(AqueueError):
    """A key still seals jobs, or is the active one, so it can't be retired; `counts` says where (SIGN-3)."""

    def __init__(self, message: str, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.counts = dict(counts or {})


class UnknownEnvelopeVersion(AqueueError):
    """A newer aqueue wrote this envelope; it is left for a worker that can read it (WIRE-1)."""


class QueueClosed(AqueueError):
    """The queue is not open: use `async with connect(...)`, or `await queue.open()` first."""


class StoreError(AqueueError):
    """The store could not do it. `job_id` names the job concerned, where there is one."""

    def __init__(self, message: str, *, job_id: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class ConnectionFailed(StoreError):
    """The operation was certainly never dispatched; trying again is safe (PUSH-4)."""


class OutcomeUnknown(StoreError):
    """The operation may have been applied; aqueue never re-sends it (PUSH-4)."""


class StoreRefused(StoreError):
    """The store answered that it did nothing: full, read-only, busy, forbidden."""


class NoteContended(StoreRefused):
    """Others changed the note each time before this call could; it wrote nothing, so try again (NOTE-1)."""


class PublishNotConfirmed(StoreError):
    """The broker answered anything but an acknowledgement (PUSH-5)."""


class PushManyError(AqueueError):
    """Some jobs of a batch were not stored; `outcomes` has an id or an error per position (PUSH-7)."""

    def __init__(self, outcomes: Sequence[str | Exception]) -> None:
        failed = sum(1 for outcome in outcomes if isinstance(outcome, Exception))
        super().__init__(f"{failed} of {len(outcomes)} jobs were not stored; .outcomes tells which")
        self.outcomes = tuple(outcomes)


class PublishManyError(PushManyError):
    """Some queues got no copy of the job; `queues` has an id or an error for each of them (TOPIC-1)."""

    def __init__(self, queues: Mapping[str, str | Exception]) -> None:
        super().__init__(tuple(queues.values()))
        self.queues = dict(queues)


class UnknownTopic(AqueueError, LookupError):
    """Nobody subscribes to the topic; nothing was sent (TOPIC-1)."""


class UnknownSchedule(AqueueError, LookupError):
    """The scheduler has no schedule of this name; nothing was done (CRON-1)."""


class ResultFailed(AqueueError):
    """The job whose result was asked for failed, as `reason`, `error_type` and `error` tell (RESULT-1)."""

    def __init__(self, job_id: str, *, reason: str, error_type: str = "", error: str = "") -> None:
        super().__init__(f"job {job_id} failed ({reason})" + (f": {error_type}" if error_type else ""))
        self.job_id = job_id
        self.reason = reason
        self.error_type = error_type
        self.error = error


class ResultMissing(AqueueError, LookupError):
    """No result is kept of this job, or none that can be read (RESULT-1)."""

    def __init__(self, job_id: str, why: str) -> None:
        super().__init__(f"no result of job {job_id}: {why}")
        self.job_id = job_id


class ResultTimeout(ResultMissing, TimeoutError):
    """No result of this job came in the time that was given (RESULT-1)."""


class StaleDelivery(AqueueError):
    """The delivery is not leased any more, so nothing was written (FENCE-1)."""

    def __init__(self, operation: Settlement, *, job_id: str, queue: str) -> None:
        super().__init__(
            f"{operation} refused: this delivery of job {job_id} on {queue!r} is not leased any more; "
            "its lease ran out or it was settled before"
        )
        self.operation = operation
        self.job_id = job_id
        self.queue = queue


class MalformedJobSettled(AqueueError):
    """Stored bytes that can't be read, or whose seal is bad, were set aside; `reasons` says why (MAL-1)."""

    def __init__(self, queue: str, job_ids: Sequence[str], reasons: Sequence[str]) -> None:
        super().__init__(
            f"{len(job_ids)} unreadable job(s) on {queue!r} moved to the failed store: "
            + ", ".join(f"{job_id} ({reason})" for job_id, reason in zip(job_ids, reasons, strict=True))
        )
        self.queue = queue
        self.job_ids = tuple(job_ids)
        self.reasons = tuple(reasons)


class UnhandledJob(AqueueError):
    """No handler of this worker knows the job's name (ARG-5)."""


class JobReconstructionError(AqueueError):
    """The stored arguments don't fit the job as it is declared now (ARG-5)."""


class UnresolvableParameter(AqueueError):
    """Nothing provides a parameter of `handle()` or of a dependency (ARG-5)."""


class JobLost(AqueueError):
    """The job's lease ran out too often without a settlement; it was set aside unrun (ATT-3)."""


class StopPropagation(AqueueError):
    """Raised by an inline listener: those registered after it don't hear of this event (EVENT-1)."""


class JobSignal(AqueueError):
    """Raised by a handler to choose its delivery's ending."""


class Retry(JobSignal):
    """Try again; `after` seconds from now, or after the job's own backoff (ATT-4)."""

    def __init__(self, after: float | None = None) -> None:
        super().__init__("the handler asked for a retry")
        self.after = after


class Snooze(JobSignal):
    """Put the job back for `seconds` without counting an attempt (ATT-4)."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the handler snoozed for {seconds} s")
        self.seconds = seconds


class OccurrenceLost(Snooze):
    """The runtime's lease on an occurrence passed on while its job ran; nothing is completed (OCC-1).

    The delivery goes back uncounted, and asks again who owns the occurrence.
    """


class Discard(JobSignal):
    """Set the job aside at once with reason `discarded` (ATT-4)."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler discarded the job")
        self.reason = reason
