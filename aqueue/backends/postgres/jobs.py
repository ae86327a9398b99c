"""The verbs on jobs: batches made into arrays, and rows into what the port speaks of."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import asyncpg

from aqueue.backends.postgres.marks import Start, Swept
from aqueue.port import Answer, Message, QueueStats, Releasing, Reserved, Verdict

Item = TypeVar("Item")

_MOVED_AT_ONCE = 100


class Receipt(NamedTuple):
    """One hand-out: the job's place, and the token of the sweep that reserved it (FENCE-1)."""

    seq: int
    token: int

    def __str__(self) -> str:
        return f"{self.seq}-{self.token:x}"


class Sweep(NamedTuple):
    """What one statement took and learned; `moved` jobs became ready too late for it to take them."""

    reserved: list[Reserved]
    moved: int
    due_in: float | None
    swept: Swept


def pushed(batch: Sequence[Message]) -> tuple[object, ...]:
    """Return the arrays that store a batch."""
    return (
        [message.queue for message in batch],
        [message.id for message in batch],
        *payloads([message.payload for message in batch]),
        [str(message.delay) for message in batch],
    )


def payloads(parts: Sequence[bytes]) -> tuple[bytes, list[str], list[str]]:
    """Return payloads as one string of bytes, and where in it (from 1) and how long each is."""
    lengths = [len(part) for part in parts]
    starts = accumulate(lengths[:-1], initial=1)
    return b"".join(parts), [str(start) for start in starts], [str(length) for length in lengths]


def sweep_arguments(
    queues: Sequence[str], start: Start, limit: int, token: int, lease: float
) -> tuple[object, ...]:
    """Return the arguments of the statement that sweeps."""
    return (
        list(queues),
        [str(mark) for mark in start.marks],
        [str(since) for since in start.sinces],
        [str(behind) for behind in start.behind],
        limit,
        token,
        lease,
    )


def sweep(rows: Sequence[asyncpg.Record], queues: Sequence[str], limit: int, token: int) -> Sweep:
    """Return what the rows say; a sweep that found nothing makes one without a job."""
    *_, now, cost, moved, due_in = rows[0]
    reserved = claim(rows, queues, token) if rows[0][0] is not None else []
    swept = Swept(
        last=lasts(rows) if reserved else {},
        came_short=len(reserved) < limit,
        is_tidy=moved < _MOVED_AT_ONCE,
        server_now=now,
        cost=cost,
    )
    return Sweep(reserved, moved, due_in, swept)


def claim(rows: Sequence[asyncpg.Record], queues: Sequence[str], token: int) -> list[Reserved]:
    """Return the hand-outs that the rows are."""
    return [
        Reserved(id, queues[place - 1], payload, Receipt(seq, token), attempt, lost, waited)
        for place, seq, id, payload, attempt, lost, waited, *_ in rows
    ]


def lasts(rows: Sequence[asyncpg.Record]) -> dict[int, int]:
    """Return the last `seq` that came from each queue, by its place."""
    return {row[0]: row[1] for row in rows}


class Settling(NamedTuple):
    """A batch in the order in which every settlement locks its rows, so that no two can deadlock."""

    order: list[int]
    arrays: tuple[list[Any], ...]

    def answers(self, settled: Sequence[int]) -> list[Answer]:
        """Return the batch's answers, given the places (from 1) of those that were settled."""
        answers: list[Answer] = [Verdict.STALE] * len(self.order)
        for place in settled:
            answers[self.order[place - 1]] = Verdict.SETTLED
        return answers


def settling(batch: Sequence[Item], reserved: Callable[[Item], Reserved]) -> Settling:
    """Return the keys of a batch as arrays: queues, ids and tokens."""
    items = [reserved(item) for item in batch]
    order = sorted(range(len(items)), key=[(item.queue, item.id) for item in items].__getitem__)
    return Settling(
        order,
        (
            [items[index].queue for index in order],
            [items[index].id for index in order],
            [_known_token(items[index]) for index in order],
        ),
    )


def released(batch: Sequence[Releasing], order: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return the further arrays of a batch to release: delays, and whether they count."""
    return [str(batch[index].delay) for index in order], [str(batch[index].counted) for index in order]


def itself(reserved: Reserved) -> Reserved:
    """Return the item of a batch that is its own delivery."""
    return reserved


def stats(row: Mapping[int, Any] | asyncpg.Record) -> QueueStats:
    """Count the jobs as the next pop would find them."""
    ready, delayed, due, leased, expired, failed, oldest_age = (row[index] for index in range(7))
    return QueueStats(
        ready=ready + due + expired,
        delayed=delayed - due,
        leased=leased - expired,
        failed=failed,
        oldest_age=oldest_age,
    )


def token(item: Reserved) -> int:
    """Return the token of a hand-out of ours."""
    assert isinstance(item.receipt, Receipt)
    return item.receipt.token


def _known_token(item: Reserved) -> str | None:
    """Nothing equals NULL: a receipt of another store settles nothing."""
    return str(item.receipt.token) if isinstance(item.receipt, Receipt) else None
