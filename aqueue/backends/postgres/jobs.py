"""The verbs on jobs: batches made into arrays, and rows into what the port speaks of."""

from collections.abc import Callable, Mapping, Sequence
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


def pushed(batch: Sequence[Message]) -> tuple[list[object], ...]:
    """Return the arrays that store a batch."""
    return (
        [message.queue for message in batch],
        [message.id for message in batch],
        [message.payload for message in batch],
        [message.delay for message in batch],
    )


def sweep_arguments(
    queues: Sequence[str], start: Start, limit: int, token: int, lease: float
) -> tuple[object, ...]:
    """Return the arguments of the statement that sweeps."""
    return (list(queues), start.marks, start.sinces, start.behind, limit, token, lease)


def sweep(rows: Sequence[asyncpg.Record], queues: Sequence[str], limit: int, token: int) -> Sweep:
    """Return what the rows say; a sweep that found nothing makes one without a job."""
    reserved: list[Reserved] = []
    last: dict[int, int] = {}
    for place, seq, id, payload, attempt, lost, waited, *_ in rows:
        if place is not None:
            last[place] = seq
            reserved.append(
                Reserved(id, queues[place - 1], payload, Receipt(seq, token), attempt, lost, waited)
            )
    *_, now, cost, moved, due_in = rows[0]
    swept = Swept(
        last=last,
        came_short=len(reserved) < limit,
        is_tidy=moved < _MOVED_AT_ONCE,
        server_now=now,
        cost=cost,
    )
    return Sweep(reserved, moved, due_in, swept)


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
            [_token(items[index]) for index in order],
        ),
    )


def released(batch: Sequence[Releasing], order: Sequence[int]) -> tuple[list[Any], ...]:
    """Return the further arrays of a batch to release: delays, and whether they count."""
    return [batch[index].delay for index in order], [batch[index].counted for index in order]


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


def _token(item: Reserved) -> int | None:
    """Nothing equals NULL: a receipt of another store settles nothing."""
    return item.receipt.token if isinstance(item.receipt, Receipt) else None
