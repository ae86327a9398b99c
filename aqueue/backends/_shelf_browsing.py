"""Looking through the memory store's jobs in the order of their ids, without taking any.

Sorting is for the first page alone; those that follow are cut from what it found.
"""

from bisect import bisect_right

from aqueue.backends._shelf import Job, Shelf
from aqueue.port import Found, Held, Standing


class Browsing:
    """The listings under way, one for each queue."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._listings: dict[str, list[str]] = {}

    def page(self, queue: str, *, after: str | None, limit: int, head: int | None, now: float) -> list[Held]:
        """Return up to `limit` jobs after an id; from the beginning, the listing is made anew."""
        lane = self._shelf.lanes.get(queue)
        held = lane.held if lane is not None else {}
        if after is None or queue not in self._listings:
            self._listings[queue] = sorted(held)
        ids = self._listings[queue]
        page: list[Held] = []
        at = bisect_right(ids, after) if after is not None else 0
        while at < len(ids) and len(page) < limit:
            if (job := held.get(ids[at])) is not None:
                page.append(_shown(job, head, now))
            at += 1
        if not page:
            del self._listings[queue]
        return page

    def find(self, queue: str, id: str, now: float) -> Found | None:
        """Return where the job stands; takes time with the number of those ahead of it."""
        lane = self._shelf.lanes.get(queue)
        job = lane.held.get(id) if lane is not None else None
        if lane is None or job is None:
            return None
        if job.token:
            return Found(held_for=job.lease_until - now, attempts=job.attempts, lost=job.lost)
        try:
            ahead = lane.ready.index(job)
        except ValueError:
            return Found(due_in=job.ready_at - now, attempts=job.attempts, lost=job.lost)
        waited = max(0.0, now - job.ready_at)
        return Found(waited=waited, ahead=ahead, attempts=job.attempts, lost=job.lost)

    def queues(self) -> list[str]:
        """Return the queues that hold jobs, or failed ones."""
        holding = {name for name, lane in self._shelf.lanes.items() if lane.held}
        return [*(holding | {record.queue for record in self._shelf.failed.matching(None, None)})]


def _shown(job: Job, head: int | None, now: float) -> Held:
    payload = job.payload[:head]
    if job.token and job.lease_until > now:
        return Held(job.id, job.queue, payload, Standing.LEASED)
    if not job.token and job.ready_at > now:
        return Held(job.id, job.queue, payload, Standing.DELAYED, job.ready_at - now)
    return Held(job.id, job.queue, payload, Standing.READY)
