"""The verbs on failed jobs: records made into arrays, and rows into records."""

from collections.abc import Sequence

import asyncpg

from aqueue.backends.postgres.jobs import payloads
from aqueue.port import FailedRecord

_TEXTS = ("id", "name", "queue")
_MORE_TEXTS = (
    "attempts", "lost", "reason", "error_type", "error", "traceback", "pushed_at", "worker", "delivery"
)  # fmt: skip
"""In the order of the statement's arrays; the store stamps `failed_at` itself."""


def arrays(records: Sequence[FailedRecord]) -> tuple[object, ...]:
    """Return one array for each field of the records, and their payloads in one."""
    return (
        *(_column(records, name) for name in _TEXTS),
        *payloads([record.payload for record in records]),
        *(_column(records, name) for name in _MORE_TEXTS),
    )


def _column(records: Sequence[FailedRecord], name: str) -> list[str | None]:
    values = [getattr(record, name) for record in records]
    return [None if value is None else str(value) for value in values]


def distinct(records: Sequence[FailedRecord]) -> list[FailedRecord]:
    """Return the last record of each job: one statement can't store two for one."""
    return list({(record.queue, record.id): record for record in records}.values())


def record(row: asyncpg.Record) -> FailedRecord:
    """Return what a row holds."""
    return FailedRecord(**dict(row.items()))
