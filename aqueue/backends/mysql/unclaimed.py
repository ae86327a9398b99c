"""What sweeps reserved, or may have, when their replies were lost: nobody else knows that nobody has it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from aqueue.backends.mysql.connections import Session
from aqueue.backends.mysql.jobs import Receipt, these
from aqueue.backends.mysql.literals import listed
from aqueue.backends.mysql.statements import BEGIN, COMMIT, JobStatements
from aqueue.port import Reserved

_REMEMBERED = 16

T = TypeVar("T")


class Run(Protocol):
    """Makes a call on a session."""

    async def __call__(self, call: Callable[[Session], Awaitable[list[str]]], /) -> list[str]:
        """Make the call."""


class _Lost(NamedTuple):
    receipts: set[Receipt]
    until: float


class Unclaimed:
    """Gives it back, to its place and uncounted, as soon as the server has done with it (POP-6).

    A lost transaction may still hold its rows: those are skipped, and looked at again before the next sweep,
    until their leases would be over anyway.
    """

    def __init__(self, sql: JobStatements, lease: float) -> None:
        self._sql = sql
        self._lease = lease
        self._lost: deque[_Lost] = deque(maxlen=_REMEMBERED)

    def add(self, claimed: Sequence[Reserved]) -> None:
        """Remember what a sweep had claimed when it failed."""
        receipts = {item.receipt for item in claimed if isinstance(item.receipt, Receipt)}
        if receipts:
            self._lost.append(_Lost(receipts, asyncio.get_running_loop().time() + self._lease))

    async def reclaim(self, run: Run) -> list[str]:
        """Give back what can be given back now; return the queues that got something."""
        queues: list[str] = []
        for lost in tuple(self._lost):
            queues += await run(lambda session, lost=lost: self._give_back(session, lost))  # type: ignore[misc]  # a default binds the loop's variable
            if not lost.receipts or lost.until < asyncio.get_running_loop().time():
                self._lost.remove(lost)
        return queues

    async def _give_back(self, session: Session, lost: _Lost) -> list[str]:
        seqs = listed(receipt.seq for receipt in lost.receipts)
        _, unlocked = await session.run(BEGIN, self._sql.unlocked.format(seqs=seqs))
        ours = [
            (Receipt(seq, token), queue.decode())
            for seq, token, queue in unlocked.rows
            if Receipt(seq, token) in lost.receipts
        ]
        back = [self._sql.give_back.format(**these([receipt for receipt, _ in ours]))] if ours else []
        await session.run(*back, COMMIT)
        seen = {seq for seq, *_ in unlocked.rows}
        lost.receipts.difference_update({receipt for receipt in lost.receipts if receipt.seq in seen})
        return [queue for _, queue in ours]
