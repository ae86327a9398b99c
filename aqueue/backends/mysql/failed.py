"""The verbs on failed jobs, each as one transaction on a session."""

from collections.abc import Sequence
from typing import NamedTuple

from aqueue.backends.mysql import jobs
from aqueue.backends.mysql.connections import Row, Session
from aqueue.backends.mysql.failed_statements import FailedStatements
from aqueue.backends.mysql.literals import NOW, binary, listed, microseconds, name, real, text
from aqueue.backends.mysql.schema import LONGEST_NAME
from aqueue.backends.mysql.statements import BEGIN, COMMIT, JobStatements
from aqueue.port import Answer, FailedRecord, Failing, Message, Position, Verdict

_BEGINNING = Position(0.0, "")


class Filter(NamedTuple):
    """Which records are asked for; None for all of them."""

    queue: str | None
    job: str | None

    def condition(self) -> str:
        """Return the filter as part of a WHERE, ready for another condition after it."""
        by_queue = f"queue = {name(self.queue)} AND " if self.queue is not None else ""
        by_name = f"name = {_job_name(self.job)} AND " if self.job is not None else ""
        return by_queue + by_name


async def fail(
    session: Session, sql: FailedStatements, job_sql: JobStatements, batch: Sequence[Failing]
) -> list[Answer]:
    """Swap each job that its delivery still holds for its record (FAIL-1)."""
    reserved = [item.reserved for item in batch]
    receipts = [receipt for item in reserved if (receipt := jobs.receipt_of(item))]
    if not receipts:
        return [Verdict.STALE] * len(batch)
    _, held = await session.run(BEGIN, job_sql.held.format(**jobs.these(receipts)))
    answers = jobs.answers(reserved, held.rows)
    records = [item.record for item, answer in zip(batch, answers, strict=True) if answer is Verdict.SETTLED]
    await _write(session, sql, records, *jobs.ack(job_sql, reserved))
    return answers


async def keep(session: Session, sql: FailedStatements, records: Sequence[FailedRecord]) -> None:
    """Store each record once."""
    await session.run(BEGIN)
    await _write(session, sql, records)


async def _write(
    session: Session, sql: FailedStatements, records: Sequence[FailedRecord], *changes: str
) -> None:
    """Write the records and make the changes, and commit; the same failure written twice is kept once."""
    distinct = list({(record.queue, record.id): record for record in records}.values())
    floors = await _floors(session, sql, distinct)
    statements = [_replaced(sql, record) for record in distinct]
    if distinct:
        statements.append(
            sql.keep.format(
                rows=listed(
                    _values(record, place, floors.get(record.id, 0)) for place, record in enumerate(distinct)
                )
            )
        )
    await session.run(*statements, *changes, COMMIT)


async def _floors(session: Session, sql: FailedStatements, records: Sequence[FailedRecord]) -> dict[str, int]:
    """Return from when on each id is free: its records on different queues mustn't share a position."""
    if not records:
        return {}
    [latest] = await session.run(sql.latest.format(ids=listed(name(record.id) for record in records)))
    return {id.decode(): failed_at + 1 for id, failed_at in latest.rows}


def _replaced(sql: FailedStatements, record: FailedRecord) -> str:
    return sql.replaced.format(id=name(record.id), queue=name(record.queue), delivery=name(record.delivery))


def _values(record: FailedRecord, place: int, floor: int) -> str:
    values = (
        name(record.id),
        _job_name(record.name),
        name(record.queue),
        binary(record.payload),
        record.attempts,
        record.lost,
        text(record.reason),
        text(record.error_type),
        text(record.error),
        text(record.traceback),
        real(record.pushed_at),
        f"GREATEST({NOW} + {place}, {floor})",
        text(record.worker),
        name(record.delivery),
    )
    return f"({listed(values)})"


async def page(
    session: Session, sql: FailedStatements, wanted: Filter, after: Position | None, limit: int
) -> list[FailedRecord]:
    """Return up to `limit` records after a position, oldest first."""
    failed_at, id = after or _BEGINNING
    [found] = await session.run(
        sql.page.format(
            index=sql.index(wanted.queue is not None, wanted.job is not None),
            wanted=wanted.condition(),
            failed_at=microseconds_at(failed_at),
            id=name(id),
            limit=limit,
        )
    )
    return [_record(row) for row in found.rows]


async def get(session: Session, sql: FailedStatements, id: str) -> FailedRecord | None:
    """Return the oldest record of a job."""
    [found] = await session.run(sql.get.format(id=name(id)))
    return _record(found.rows[0]) if found.rows else None


async def count(session: Session, sql: FailedStatements, wanted: Filter) -> int:
    """Count the records."""
    [counted] = await session.run(sql.count.format(wanted=wanted.condition()))
    return int(counted.rows[0][0])


async def retry(
    session: Session, sql: FailedStatements, job_sql: JobStatements, record: FailedRecord, message: Message
) -> bool:
    """Swap exactly this record for a waiting job (FAIL-2)."""
    _, gone = await session.run(BEGIN, _discarding(sql, record))
    put_back = [jobs.push(job_sql, [message])] if gone.affected else []
    await session.run(*put_back, COMMIT)
    return bool(gone.affected)


async def discard(session: Session, sql: FailedStatements, record: FailedRecord) -> bool:
    """Delete exactly this record."""
    [gone] = await session.run(_discarding(sql, record))
    return bool(gone.affected)


def _discarding(sql: FailedStatements, record: FailedRecord) -> str:
    return sql.discard.format(
        id=name(record.id),
        queue=name(record.queue),
        failed_at=microseconds_at(record.failed_at),
        delivery=name(record.delivery),
    )


async def purge(
    session: Session,
    sql: FailedStatements,
    wanted: Filter,
    *,
    older_than: float | None,
    keep: int | None,
    limit: int,
) -> int:
    """Delete up to `limit` of the oldest records, those past an age or beyond a count."""
    index = sql.index(wanted.queue is not None, wanted.job is not None)
    among = {"index": index, "wanted": wanted.condition()}
    surplus = 0
    if older_than is not None:
        [past] = await session.run(sql.past.format(**among, age=microseconds(older_than), limit=limit))
        surplus = int(past.rows[0][0])
    if keep is not None:
        [seen] = await session.run(sql.seen.format(**among, limit=keep + limit))
        surplus = max(surplus, min(limit, int(seen.rows[0][0]) - keep))
    if surplus <= 0:
        return 0
    _, oldest = await session.run(BEGIN, sql.oldest.format(**among, limit=surplus))
    deletions = [sql.forget.format(id=binary(id), queue=binary(queue)) for id, queue in oldest.rows]
    await session.run(*deletions, COMMIT)
    return len(deletions)


def microseconds_at(seconds: float) -> int:
    """Return a time that came from here as it is stored."""
    return round(seconds * 1e6)


def _record(row: Row) -> FailedRecord:
    id, job, queue, payload, attempts, lost, reason, error_type, error, traceback, *rest = row
    pushed_at, failed_at, worker, delivery = rest
    return FailedRecord(
        id=id.decode(),
        name=job.decode("utf-8", "replace"),
        queue=queue.decode(),
        payload=payload,
        attempts=attempts,
        lost=lost,
        reason=reason,
        error_type=error_type,
        error=error,
        traceback=traceback,
        pushed_at=pushed_at,
        failed_at=failed_at / 1e6,
        worker=worker,
        delivery=delivery.decode(),
    )


def _job_name(job: str) -> str:
    """A name longer than its column is cut, wherever it comes from: it must never keep a job from failing."""
    return binary(job.encode("utf-8", "replace")[:LONGEST_NAME])
