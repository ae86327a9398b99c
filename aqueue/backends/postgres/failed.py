"""The verbs on failed jobs: records made into arrays, and rows into records."""

from collections.abc import Sequence

import asyncpg

from aqueue.port import FailedRecord

_FIELDS = tuple(name for name in FailedRecord.__struct_fields__ if name != "failed_at")
"""In the order of the statement's arrays; the store stamps the time itself."""


def arrays(records: Sequence[FailedRecord]) -> tuple[list[object], ...]:
    """Return one array for each field of the records."""
    return tuple([getattr(record, name) for record in records] for name in _FIELDS)


def distinct(records: Sequence[FailedRecord]) -> list[FailedRecord]:
    """Return the last record of each job: one statement can't store two for one."""
    return list({(record.queue, record.id): record for record in records}.values())


def record(row: asyncpg.Record) -> FailedRecord:
    """Return what a row holds."""
    return FailedRecord(**dict(row.items()))
