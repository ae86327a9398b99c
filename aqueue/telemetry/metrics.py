"""What is counted and timed (TEL-1). Attributes take few values: queue, operation, job name, error class."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aqueue.telemetry import conventions as names

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


class Instruments:
    """The instruments of one meter. `base` is on every standard measurement: the system and the server."""

    __slots__ = (
        "_active",
        "_base",
        "_consumed",
        "_leases_lost",
        "_operations",
        "_outcomes",
        "_processing",
        "_sent",
        "_stale",
        "_waiting",
    )

    def __init__(self, meter: "Meter", base: Mapping[str, str | int]) -> None:
        self._base = base
        self._sent = meter.create_counter(
            names.SENT_MESSAGES, unit="{message}", description="Jobs that were pushed, or failed to be."
        )
        self._consumed = meter.create_counter(
            names.CONSUMED_MESSAGES, unit="{message}", description="Jobs that were handed out."
        )
        self._operations = meter.create_histogram(
            names.OPERATION_DURATION,
            unit="s",
            description="How long a push, a receive or a settlement took.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._processing = meter.create_histogram(
            names.PROCESS_DURATION,
            unit="s",
            description="How long handling a job took.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._waiting = meter.create_histogram(
            names.WAIT_DURATION,
            unit="s",
            description="How long a job had been due when it was started.",
            explicit_bucket_boundaries_advisory=names.WAIT_BUCKETS,
        )
        self._outcomes = meter.create_counter(
            names.OUTCOMES, unit="{job}", description="Deliveries by how they ended."
        )
        self._active = meter.create_up_down_counter(
            names.ACTIVE_JOBS, unit="{job}", description="Jobs being handled at this moment."
        )
        self._leases_lost = meter.create_counter(
            names.LEASES_LOST, unit="{lease}", description="Leases that ran out while the job was handled."
        )
        self._stale = meter.create_counter(
            names.STALE_SETTLEMENTS,
            unit="{settlement}",
            description="Settlements refused because the delivery was not leased any more.",
        )

    def sent(self, queue: str, count: int, error: str | None) -> None:
        """Count pushed jobs, apart for each class of error."""
        attributes = {**self._base, names.OPERATION_NAME: names.PUSH, names.DESTINATION: queue}
        self._sent.add(count, _with_error(attributes, error))

    def consumed(self, queue: str, count: int) -> None:
        """Count deliveries that were handed out."""
        self._consumed.add(
            count, {**self._base, names.OPERATION_NAME: names.RECEIVE, names.DESTINATION: queue}
        )

    def operation(self, name: str, kind: str, queue: str, seconds: float, error: str | None = None) -> None:
        """Time one call to the store."""
        attributes = {
            **self._base,
            names.OPERATION_NAME: name,
            names.OPERATION_TYPE: kind,
            names.DESTINATION: queue,
        }
        self._operations.record(seconds, _with_error(attributes, error))

    def processed(self, queue: str, job_name: str, seconds: float, error: str | None) -> None:
        """Time the handling of one delivery."""
        attributes = {
            **self._base,
            names.OPERATION_NAME: names.PROCESS,
            names.DESTINATION: queue,
            names.JOB_NAME: job_name,
        }
        self._processing.record(seconds, _with_error(attributes, error))

    def waited(self, queue: str, seconds: float) -> None:
        """Record how long a job had been due."""
        self._waiting.record(seconds, self._of_queue(queue))

    def outcome(self, queue: str, outcome: str, count: int) -> None:
        """Count endings."""
        self._outcomes.add(count, {**self._of_queue(queue), names.OUTCOME: outcome})

    def active(self, queue: str, change: int) -> None:
        """Count a started job up or an ended one down."""
        self._active.add(change, self._of_queue(queue))

    def lease_lost(self, queue: str) -> None:
        """Count a lease that ran out under a running handler."""
        self._leases_lost.add(1, self._of_queue(queue))

    def stale(self, queue: str, operation: str) -> None:
        """Count a settlement the fence refused."""
        self._stale.add(1, {**self._of_queue(queue), names.OPERATION_NAME: operation})

    def _of_queue(self, queue: str) -> dict[str, str | int]:
        return {names.SYSTEM: self._base[names.SYSTEM], names.DESTINATION: queue}


def _with_error(attributes: dict[str, str | int], error: str | None) -> dict[str, str | int]:
    if error is not None:
        attributes[names.ERROR_TYPE] = error
    return attributes
