"""Looking through a store's jobs in the order of their ids, without taking any.

A queue is read once for many pages: the listing under way is kept, and made anew from the beginning.
"""

import time
from bisect import bisect_right
from typing import NamedTuple

from aqueue.backends.file import records
from aqueue.backends.file.content import read_head, read_job
from aqueue.backends.file.counting import Stood, standings
from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import links_of
from aqueue.backends.file.names import MICRO
from aqueue.port import Held, Standing

_REMEMBERED = 8
_FRESH = 1.0
_REST = 20
"""A listing serves for a second, and where it took long for so many times as long."""


class _Listing(NamedTuple):
    ids: list[str]
    jobs: dict[str, Stood]
    until: float


class Browsing:
    """The listings under way, one for each queue."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._listings: dict[str, _Listing] = {}

    def page(self, queue: str, *, after: str | None, limit: int, head: int | None) -> list[Held]:
        """Return up to `limit` jobs after an id."""
        listing = self._listings.get(queue)
        if listing is None or after is None or time.monotonic() > listing.until:
            if len(self._listings) >= _REMEMBERED:
                self._listings.clear()
            listing = self._listings[queue] = self._listed(queue)
        page: list[Held] = []
        at = bisect_right(listing.ids, after) if after is not None else 0
        for id in listing.ids[at:]:
            if (held := self._held(queue, id, listing.jobs[id], head)) is not None:
                page.append(held)
                if len(page) == limit:
                    return page
        if not page:
            self._listings.pop(queue, None)
        return page

    def queues(self) -> list[str]:
        """Return the names of the queues that hold jobs, or failed ones."""
        layout = self._directory.layout
        return [queue for queue in records.queues_in(layout) if self._holds_any(queue)]

    def _holds_any(self, queue: str) -> bool:
        failed = records.records(self._directory.layout, queue)
        return next(failed, None) is not None or bool(standings(self._directory, queue))

    def _listed(self, queue: str) -> _Listing:
        began = time.monotonic()
        jobs = standings(self._directory, queue)
        took = time.monotonic() - began
        return _Listing(sorted(jobs), jobs, time.monotonic() + max(_FRESH, _REST * took))

    def _held(self, queue: str, id: str, job: Stood, head: int | None) -> Held | None:
        path = f"{self._directory.layout.queue(queue).ids}/{id}"
        if links_of(path) < 2:
            return None
        try:
            payload = read_job(path).payload if head is None else read_head(path, head)
        except FileNotFoundError:
            return None
        delay = (job.since - self._directory.now()) / MICRO
        if job.standing is Standing.READY or delay <= 0:
            return Held(id, queue, payload, Standing.READY)
        return Held(id, queue, payload, job.standing, delay if job.standing is Standing.DELAYED else 0.0)
