"""A failed job as it is shown to a person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from aqueue.contract.envelope import Envelope, redacted_by_metadata
from aqueue.contract.fingerprint import Trouble, trouble_of
from aqueue.port import FailedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """One job set aside: what it was, how it ended, and enough to understand and re-run it.

    `args` are plain JSON, or None where the stored bytes can't be read. `payload` is those bytes. `group` is
    the fingerprint that it shares with the failures of the same kind (FAIL-4).
    """

    id: str
    name: str
    queue: str
    args: dict[str, Any] | None = field(repr=False)
    attempts: int
    lost: int
    reason: str
    error_type: str
    error: str
    traceback: str
    pushed_at: datetime | None
    failed_at: datetime
    worker: str
    payload: bytes = field(repr=False)
    metadata: Mapping[str, str]
    group: str = ""

    @property
    def redacted_args(self) -> dict[str, Any] | None:
        """The arguments with `Sensitive` ones replaced, fit for a listing or a log."""
        return None if self.args is None else redacted_by_metadata(self.args, self.metadata)


def shown(record: FailedRecord, envelope: Envelope | None) -> FailedJob:
    """Return the record for a person; `envelope` is None where nobody can read what the job carried."""
    return FailedJob(
        id=record.id,
        name=record.name,
        queue=record.queue,
        args=msgspec.json.decode(envelope.args) if envelope is not None else None,
        attempts=record.attempts,
        lost=record.lost,
        reason=record.reason,
        error_type=record.error_type,
        error=record.error,
        traceback=record.traceback,
        pushed_at=datetime.fromtimestamp(record.pushed_at, UTC) if record.pushed_at is not None else None,
        failed_at=datetime.fromtimestamp(record.failed_at, UTC),
        worker=record.worker,
        payload=record.payload,
        metadata=envelope.metadata if envelope is not None else {},
        group=trouble(record).fingerprint,
    )


def trouble(record: FailedRecord) -> Trouble:
    """Return what kind of failure the record tells of (FAIL-4)."""
    return trouble_of(
        name=record.name,
        reason=record.reason,
        error_type=record.error_type,
        error=record.error,
        traceback=record.traceback,
    )
