"""Jobs in Redis or Valkey: one server, a master under Sentinel, or a cluster.

Each transition is one Lua script, so it happens whole or not at all, and what a queue holds lives under one
hash tag. All times are the server's. What `keys.py` lists is everything there is.
"""

from collections.abc import Callable, Sequence

from aqueue.backends.redis import examining, finding, scripts
from aqueue.backends.redis.arrivals import Arrivals
from aqueue.backends.redis.browsing import Browsing
from aqueue.backends.redis.checks import check_server
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.failed_jobs import FailedJobs
from aqueue.backends.redis.handouts import HandOuts
from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.link import Link
from aqueue.backends.redis.notes import Notes
from aqueue.backends.redis.replies import FAULTS, Reply
from aqueue.backends.redis.settings import Settings
from aqueue.backends.redis.transitions import Transitions
from aqueue.port import (
    Answer,
    Capabilities,
    Examination,
    FailedRecord,
    Failing,
    Found,
    Held,
    Message,
    Note,
    NoteKey,
    Noting,
    Position,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
)

_CENTURY = 100 * 365 * 86_400.0
_MOST_ITEMS = 500  # a script can pass on some 8,000 arguments, and holds up everybody while it runs
_ASKING = 1


class RedisBackend:
    """The port over Lua scripts and a few shared connections."""

    faults = FAULTS

    def __init__(self, settings: Settings, *, lease: float) -> None:
        self._settings = settings
        self._dialler = settings.dialler()
        self._keys = KeySpace(settings.prefix)
        self._client = Client(settings.topology())
        self.capabilities = Capabilities(
            system="redis",
            longest_delay=_CENTURY,
            longest_lease=_CENTURY,
            max_batch=_MOST_ITEMS,
            atomic_push=not self._client.is_partitioned,
        )
        self._arrivals = Arrivals(self._keys, self._dial_for_hints)
        self._browsing = Browsing(self._client, self._keys)
        self._failed = FailedJobs(self._client, self._keys)
        self._notes = Notes(self._client, self._keys)
        self._transitions = Transitions(self._client, self._keys, self._failed, lease=lease)
        self._handouts = HandOuts(self._client, self._keys, self._arrivals, lease=lease, most=_MOST_ITEMS)

    def __repr__(self) -> str:
        return f"<RedisBackend {self._settings.url}>"

    async def open(self) -> None:
        """Connect, and check that the server is one that the scripts run on."""
        await check_server(await self._client.link(), self._settings)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._arrivals.aclose()
        await self._client.aclose()

    async def migrate(self) -> None:
        """Nothing to create: keys come with the first job."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Store the batch in one script, in a cluster one for each slot (PUSH-3, PUSH-10, TOPIC-1)."""
        return await self._transitions.push(batch)

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        """Sweep in list order: one script where one node has all the queues, else one after the other."""
        return await self._handouts.pop(queues, limit)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival, at the next due time or expiry, or after `seconds`."""
        await self._handouts.wait(queues, seconds)

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Remove each job that this very delivery still holds."""
        return await self._transitions.ack(batch)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back; uncounted give-backs without delay return to the head, in the batch's order."""
        return await self._transitions.release(batch)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each job that this delivery still holds for its record."""
        return await self._transitions.fail(batch)

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease anew while this very delivery holds it."""
        return await self._transitions.extend(batch)

    async def stats(self, queue: str) -> QueueStats:
        """Count the jobs as the next pop would find them."""
        keys = self._keys.of(queue)
        names = (keys.pending, keys.delayed, keys.leased, keys.failed_order)
        reply = await self._client.run(_STATS, names, (), slot=keys.slot, lane=_ASKING)
        assert isinstance(reply, list)
        ready, delayed, leased, failed, age = reply
        return QueueStats(
            ready=ready,
            delayed=delayed,
            leased=leased,
            failed=failed,
            oldest_age=age / 1e6 if age >= 0 else None,
        )

    async def clear(self, queue: str) -> int:
        """Discard what nobody holds (CLEAR-1)."""
        keys = self._keys.of(queue)
        names = (keys.pending, keys.delayed, keys.leased, keys.jobs, keys.counts, *keys.scratch)
        reply = await self._client.run(_CLEAR, names, (), slot=keys.slot, lane=_ASKING)
        assert isinstance(reply, int)
        return reply

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """List waiting and leased jobs by id."""
        return await self._browsing.page(queue, after=after, limit=limit, head=head)

    async def find(self, queue: str, id: str) -> Found | None:
        """Say where one job stands."""
        return await finding.find(self._client, self._keys, queue, id)

    async def queues(self) -> Sequence[str]:
        """Name the queues that hold jobs or failed jobs."""
        return await self._browsing.queues()

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Ask every server how it is set up; a queue has no settings of its own."""
        return await examining.examine(self._client)

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        """Store each record once."""
        await self._failed.keep(batch)

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        """List from a position on, oldest first."""
        return await self._failed.page(queue=queue, job=job, after=after, limit=limit)

    async def failed_get(self, id: str) -> FailedRecord | None:
        """Find the oldest record of a job."""
        return await self._failed.get(id)

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        """Count the records."""
        return await self._failed.count(queue=queue, job=job)

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        """Swap the record for a waiting job."""
        return await self._failed.retry(record, message)

    async def failed_discard(self, record: FailedRecord) -> bool:
        """Remove the record."""
        return await self._failed.discard(record)

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        """Remove the oldest records past the age or beyond the count."""
        return await self._failed.purge(queue=queue, older_than=older_than, keep=keep, limit=limit)

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note | Exception]:
        """Return what each note says."""
        return await self._notes.read(keys)

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write notes and store their messages in one script, in a cluster one for each slot."""
        return await self._notes.write(batch)

    async def _dial_for_hints(self, on_push: Callable[[Reply], None]) -> Link:
        return await self._dialler.dial(await self._client.address(), on_push)


_CLEAR = scripts.load("clear")
_STATS = scripts.load("stats")
