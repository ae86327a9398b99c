"""The verbs on jobs: batches made into statements, and rows into what the port speaks of."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aqueue.backends.mysql.connections import Row, Session
from aqueue.backends.mysql.literals import binary, listed, microseconds, name
from aqueue.backends.mysql.schema import DELAYED, READY
from aqueue.backends.mysql.statements import BEGIN, COMMIT, JobStatements
from aqueue.port import Answer, Message, QueueStats, Releasing, Reserved, Verdict


class Receipt(NamedTuple):
    """One hand-out: the job's row, and the token of the sweep that reserved it (FENCE-1)."""

    seq: int
    token: int

    def __str__(self) -> str:
        return f"{self.seq}-{self.token:x}"


def push(sql: JobStatements, batch: Sequence[Message]) -> str:
    """Return the statement that stores a batch, in its order (PUSH-10)."""
    rows = listed(
        sql.pushed_row.format(
            queue=name(message.queue),
            id=name(message.id),
            state=DELAYED if message.delay > 0 else READY,
            delay=microseconds(message.delay),
            payload=binary(message.payload),
        )
        for message in batch
    )
    return sql.push.format(rows=rows)


async def settle(
    session: Session, sql: JobStatements, batch: Sequence[Reserved], changes: Iterable[str]
) -> list[Answer]:
    """Change the jobs that their deliveries still hold, in one transaction and one round trip."""
    receipts = [receipt for item in batch if (receipt := receipt_of(item))]
    if not receipts:
        return [Verdict.STALE] * len(batch)
    _, held, *_ = await session.run(BEGIN, sql.held.format(**these(receipts)), *changes, COMMIT)
    return answers(batch, held.rows)


def answers(batch: Sequence[Reserved], held: Iterable[Row]) -> list[Answer]:
    """Return the batch's answers, given the receipts that held; the second of a repeated one is stale."""
    left = {Receipt(*row) for row in held}
    verdicts: list[Answer] = []
    for item in batch:
        verdicts.append(Verdict.SETTLED if item.receipt in left else Verdict.STALE)
        left.discard(item.receipt)
    return verdicts


def receipt_of(item: Reserved) -> Receipt | None:
    """Return the delivery's receipt; another store's settles nothing."""
    return item.receipt if isinstance(item.receipt, Receipt) else None


def these(receipts: Sequence[Receipt]) -> dict[str, str]:
    """Return the values by which a statement finds jobs that are still held."""
    return {
        "seqs": listed(receipt.seq for receipt in receipts),
        "pairs": listed(f"({receipt.seq},{receipt.token})" for receipt in receipts),
    }


def ack(sql: JobStatements, batch: Sequence[Reserved]) -> list[str]:
    """Return what deletes the jobs."""
    receipts = [receipt for item in batch if (receipt := receipt_of(item))]
    return [sql.ack.format(**these(receipts))] if receipts else []


def extend(sql: JobStatements, batch: Sequence[Reserved], lease: float) -> list[str]:
    """Return what starts the leases anew."""
    receipts = [receipt for item in batch if (receipt := receipt_of(item))]
    return [sql.extend.format(lease=microseconds(lease), **these(receipts))] if receipts else []


def release(sql: JobStatements, batch: Sequence[Releasing]) -> list[str]:
    """Return what puts the jobs back: where they were, at the end of their queues, or to be due later."""
    kinds: dict[tuple[bool, bool], list[tuple[Receipt, int]]] = {}
    for item in batch:
        if receipt := receipt_of(item.reserved):
            kind = kinds.setdefault((item.delay > 0, item.counted), [])
            kind.append((receipt, microseconds(item.delay)))
    return [_put_back(sql, kind, released) for kind, released in kinds.items()]


def _put_back(sql: JobStatements, kind: tuple[bool, bool], released: Sequence[tuple[Receipt, int]]) -> str:
    is_delayed, is_counted = kind
    values = these([receipt for receipt, _ in released])
    if is_delayed:
        delays = listed(delay for _, delay in released)
        return sql.defer.format(counted=int(is_counted), delays=delays, **values)
    return (sql.requeue if is_counted else sql.give_back).format(**values)


def stats(row: Row) -> QueueStats:
    """Count the jobs as the next pop would find them."""
    ready, delayed, due, leased, expired, failed, now, *since = row
    past = [at for at in since if at is not None and at <= now]
    return QueueStats(
        ready=ready + due + expired,
        delayed=delayed - due,
        leased=leased - expired,
        failed=failed,
        oldest_age=(now - min(past)) / 1e6 if past else None,
    )


def reserved(row: Row, queue: str, token: int) -> Reserved:
    """Return the hand-out of a claimed row."""
    seq, id, payload, attempts, lost, waited, _ = row
    receipt, waited = Receipt(seq, token), max(0, waited) / 1e6
    return Reserved(id.decode("utf-8", "replace"), queue, payload, receipt, attempts + 1, lost, waited)
