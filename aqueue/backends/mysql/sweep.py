"""One sweep over the queues: take what is ready, in list order, and nothing that is taken (POP-2, POP-5).

    look: is anything ready, due, or past its lease?        one round trip; an idle worker's sweep ends here
    for each queue that has something, until enough is taken:
        make ready what is due and what was lost            only if there is such a thing
        claim: lock the first that nobody else has locked
    reserve what was claimed, and commit

Where the last sweep came back full, the first queue's claim goes out together with the look. While looking
is slow (see `marks`), most sweeps go on claiming without it.
"""

from collections.abc import Mapping, Sequence
from secrets import randbits
from typing import NamedTuple

from aqueue.backends.mysql import jobs
from aqueue.backends.mysql.connections import Result, Row, Session
from aqueue.backends.mysql.literals import listed, microseconds, name
from aqueue.backends.mysql.statements import BEGIN, COMMIT, JobStatements
from aqueue.port import Reserved

_MOVED_AT_ONCE = 100


class Look(NamedTuple):
    """What there is on one queue, by the server's clock in microseconds."""

    now: int
    is_ready: int
    due_at: int | None
    expires_at: int | None

    @property
    def has_due(self) -> bool:
        """Whether a delayed job is due."""
        return self.due_at is not None and self.due_at <= self.now

    @property
    def has_expired(self) -> bool:
        """Whether a lease has run out."""
        return self.expires_at is not None and self.expires_at <= self.now

    @property
    def is_empty(self) -> bool:
        """Whether a sweep would find nothing."""
        return not (self.is_ready or self.has_due or self.has_expired)

    @property
    def due_in(self) -> float | None:
        """In how many seconds a job is due or a lease may run out; None for not soon."""
        soonest = min((at for at in (self.due_at, self.expires_at) if at is not None), default=None)
        return None if soonest is None else max(0, soonest - self.now) / 1e6


class Sweep(NamedTuple):
    """What a sweep took, and what it saw before."""

    reserved: list[Reserved]
    looks: list[Look]

    @property
    def due_in(self) -> float | None:
        """In how many seconds something may be found here if nothing arrives; None for not soon."""
        return min((look.due_in for look in self.looks if look.due_in is not None), default=None)


async def look(session: Session, sql: JobStatements, queues: Sequence[str]) -> list[Look]:
    """Look at each queue without locking anything, in one round trip."""
    [result] = await session.run(_look_at(sql, queues))
    return [Look(*row) for row in result.rows]


class Sweeper:
    """Makes one sweep on one session.

    `claimed` is what it is about to reserve or has reserved, `places` where it ended on each queue.
    """

    def __init__(self, session: Session, sql: JobStatements, queues: Sequence[str], limit: int) -> None:
        self._session = session
        self._sql = sql
        self._queues = queues
        self._limit = limit
        self._opening: tuple[str, ...] = (BEGIN,)
        self._token = randbits(63)
        self._unreserved: list[int] = []
        self.claimed: list[Reserved] = []
        self.places: dict[str, int] = {}

    async def sweep(self, lease: float, *, eager: bool) -> Sweep:
        """Reserve up to the limit for `lease` seconds; `eager` claims before it has looked."""
        looks = await (self._claim_and_look() if eager else look(self._session, self._sql, self._queues))
        for queue, seen in zip(self._queues, looks, strict=True):
            await self._take(queue, seen, lease)
        await self._reserve(lease, COMMIT)
        return Sweep(self.claimed, looks)

    async def go_on(self, lease: float, starts: Mapping[str, int]) -> Sweep:
        """Reserve up to the limit of what is ready beyond a place on each queue, and look at nothing else."""
        for queue, place in starts.items():
            if len(self.claimed) < self._limit:
                [claimed] = await self._run(self._claim_of(queue, place))
                self._add(queue, claimed.rows)
        await self._reserve(lease, COMMIT)
        return Sweep(self.claimed, [])

    async def _claim_and_look(self) -> list[Look]:
        looking, claiming = _look_at(self._sql, self._queues), self._claim_of(self._queues[0])
        looked, _, claimed = await self._session.run(looking, BEGIN, claiming)
        self._opening = ()
        self._add(self._queues[0], claimed.rows)
        first, *others = (Look(*row) for row in looked.rows)
        return [first._replace(is_ready=0), *others]

    async def _take(self, queue: str, seen: Look, lease: float) -> None:
        if seen.is_empty or len(self.claimed) >= self._limit:
            return
        moved = 0
        if seen.has_due:
            moved += await self._move(queue, self._sql.due, self._sql.promote, seen.now)
        if seen.has_expired:
            moved += await self._move(queue, self._sql.expired, self._sql.take_back, seen.now)
        if seen.is_ready or moved:
            if queue in self.places:  # rows that this very transaction has locked are not skipped
                await self._reserve(lease)
            [claimed] = await self._run(self._claim_of(queue))
            self._add(queue, claimed.rows)

    async def _move(self, queue: str, find: str, change: str, now: int) -> int:
        """Put up to a hundred jobs that nobody has locked at the end of their queue (DELAY-1, LEASE-2)."""
        most = max(_MOVED_AT_ONCE, self._limit)
        [found] = await self._run(find.format(queue=name(queue), now=now, most=most))
        if found.rows:
            await self._run(change.format(seqs=listed(seq for (seq,) in found.rows)))
        return len(found.rows)

    def _claim_of(self, queue: str, place: int = 0) -> str:
        return self._sql.claim.format(queue=name(queue), place=place, most=self._limit - len(self.claimed))

    def _add(self, queue: str, rows: Sequence[Row]) -> None:
        self.claimed += [jobs.reserved(row, queue, self._token) for row in rows]
        self._unreserved += [row[0] for row in rows]
        if rows:
            self.places[queue] = rows[-1][-1]

    async def _reserve(self, lease: float, *afterwards: str) -> None:
        if self._opening:
            return  # nothing was begun
        statements = list(afterwards)
        if self._unreserved:
            seqs, lasting = listed(self._unreserved), microseconds(lease)
            statements.insert(0, self._sql.reserve.format(token=self._token, lease=lasting, seqs=seqs))
        await self._session.run(*statements)
        self._unreserved.clear()

    async def _run(self, statement: str) -> list[Result]:
        opening, self._opening = self._opening, ()
        return (await self._session.run(*opening, statement))[len(opening) :]


def _look_at(sql: JobStatements, queues: Sequence[str]) -> str:
    return " UNION ALL ".join(sql.look.format(queue=name(queue)) for queue in queues)
