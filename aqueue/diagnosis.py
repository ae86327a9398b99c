"""Why a job is not running: where it stands, and what that says of its queue (WHY-1).

Nothing here changes anything. What a store doesn't keep, such as which worker holds a job, is not told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from aqueue.contract.names import check_job_id, check_queue_names
from aqueue.errors import Unsupported
from aqueue.port import Browsable, FailedRecord, Findable, Found, KeepsFailed, QueueStats
from aqueue.store import Store

_LOOKING = 60.0
"""Seconds more that looking through a queue may take: some stores read names of files for it."""

_SOON = 5.0
"""Seconds after which a worker that runs would have come for a job that nothing keeps from it."""


class Plight(StrEnum):
    """What keeps a job from running."""

    WAITING = "waiting"
    DELAYED = "delayed"
    LEASED = "leased"
    LOST = "lost"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a job is not running. `reason` is a sentence; durations are seconds, by the store's clock.

    `ahead` is how many jobs of its queue come before it, None for very many or where it doesn't wait.
    `attempt` is the number of the attempt under way, or of the next one; `lost` counts leases that ran out.
    """

    id: str
    plight: Plight
    reason: str
    queue: str | None = None
    ahead: int | None = None
    waited: float | None = None
    due_in: float | None = None
    held_for: float | None = None
    attempt: int | None = None
    lost: int | None = None
    failed_at: datetime | None = None
    failed_reason: str | None = None
    error_type: str | None = None


class Diagnosis:
    """Looks for one job wherever it may be; `queue.why` asks one of these."""

    def __init__(self, store: Store, failed_store: Store) -> None:
        self._store = store
        self._failed_store = failed_store

    async def why(self, id: str, *, queues: Sequence[str] | None = None) -> Why:
        """Say why the job with this id is not running, as far as its store can tell (WHY-1).

        `queues` are those to look for it on, all that hold something without it. A failed job is found in
        the failed store. Raises `Unsupported` where the job hasn't failed and the store can't look for one,
        and `InvalidQueueArgument` for what is no id.
        """
        check_job_id(id)
        names = check_queue_names(queues) if queues is not None else None
        store = self._store.backend
        if isinstance(store, Findable):
            for queue in names if names is not None else await self._queues():
                found = await self._store.run("find", partial(store.find, queue, id), longer=_LOOKING)
                if found is not None:
                    stats = await self._store.run("stats", partial(store.stats, queue), longer=_LOOKING)
                    return explained(id, queue, found, stats)
        record = await self._failed(id)
        if record is not None and (names is None or record.queue in names):
            return _failed(record)
        if not isinstance(store, Findable):
            raise Unsupported(
                f"{store.capabilities.system} can't look for a job without taking it, and there is no failed "
                "job with this id: `aqueue stats` counts what it holds"
            )
        where = f"on {', '.join(names)}" if names is not None else "on any queue"
        reason = f"no job with this id waits {where}, is held, or has failed: it is done, was discarded, or "
        return Why(id=id, plight=Plight.UNKNOWN, reason=f"{reason}was never pushed here")

    async def _queues(self) -> Sequence[str]:
        store = self._store.backend
        if not isinstance(store, Browsable):
            raise Unsupported(f"{store.capabilities.system} can't name its queues: say which to look at")
        return sorted(await self._store.run("queues", store.queues, longer=_LOOKING))

    async def _failed(self, id: str) -> FailedRecord | None:
        for store in dict.fromkeys((self._failed_store, self._store)):
            keeper = store.backend
            if isinstance(keeper, KeepsFailed):
                record = await store.run("find", partial(keeper.failed_get, id), longer=_LOOKING)
                if record is not None:
                    return record
        return None


def explained(id: str, queue: str, found: Found, stats: QueueStats) -> Why:
    """Return in words what is known of a job that its queue holds; `stats` are the queue's."""
    plight, reason = _plight(queue, found, stats)
    return Why(
        id=id,
        plight=plight,
        reason=reason,
        queue=queue,
        ahead=found.ahead if plight is Plight.WAITING else None,
        waited=found.waited if plight is Plight.WAITING else None,
        due_in=found.due_in,
        held_for=found.held_for,
        attempt=found.attempts + 1,
        lost=found.lost,
    )


def _plight(queue: str, found: Found, stats: QueueStats) -> tuple[Plight, str]:
    if found.held_for is not None:
        return _held(found, found.held_for)
    if found.due_in is not None and found.due_in > 0:
        return Plight.DELAYED, _delayed(found, found.due_in)
    waited = found.waited if found.due_in is None else -found.due_in
    if found.due_in is not None:
        place = f"its delay is over since {_span(waited)}"
    elif found.ahead is None:
        place = f"it has been ready for {_span(waited)}, with very many jobs before it"
    elif found.ahead:
        jobs = "1 job" if found.ahead == 1 else f"{found.ahead} jobs"
        place = f"it is ready, and waits behind {jobs}"
    else:
        place = f"it is the next, ready for {_span(waited)}"
    return Plight.WAITING, f"{place}: {_pace(queue, waited, stats)}"


def _held(found: Found, left: float) -> tuple[Plight, str]:
    attempt = f"attempt {found.attempts + 1}"
    if left > 0:
        return Plight.LEASED, (
            f"a worker holds it, for {attempt}: its lease lasts for {_span(left)}, unless it is renewed"
        )
    return Plight.LOST, (
        f"its worker was lost in {attempt}: the lease ran out {_span(-left)} ago, and no worker has popped "
        "this queue since"
    )


def _delayed(found: Found, due_in: float) -> str:
    if found.attempts:
        attempts = "1 attempt" if found.attempts == 1 else f"{found.attempts} attempts"
        why = f"put back after {attempts}, or put off by a limit or Snooze"
    else:
        why = "pushed with a delay, or put off by a limit or Snooze"
    return f"it is due in {_span(due_in)}: {why}"


def _pace(queue: str, waited: float, stats: QueueStats) -> str:
    if stats.leased:
        jobs = "1 job" if stats.leased == 1 else f"{stats.leased} jobs"
        return f"workers hold {jobs} of {queue!r} now"
    if waited < _SOON:
        return "no worker has come for it yet"
    return f"no worker holds any job of {queue!r}: none seems to take jobs from it"


def _failed(record: FailedRecord) -> Why:
    at = datetime.fromtimestamp(record.failed_at, UTC)
    error = f" ({record.error_type})" if record.error_type else ""
    return Why(
        id=record.id,
        plight=Plight.FAILED,
        reason=f"it was set aside as failed, reason {record.reason!r}{error}: `aqueue failed show` has more",
        queue=record.queue,
        attempt=record.attempts,
        lost=record.lost,
        failed_at=at,
        failed_reason=record.reason,
        error_type=record.error_type or None,
    )


def _span(seconds: float) -> str:
    """Return a span in the unit that fits it."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
