"""Bounds on the failed store: by age or by count, a bounded piece of work at a time (FAIL-2)."""

import time

from aqueue.errors import FailedStoreMissing
from aqueue.failed.pages import PAGE
from aqueue.port import KeepsFailed
from aqueue.store import Store

_PAUSE = 1.0
_MOST_PAGES = 5


class Retention:
    """Keeps the failed store within an age in seconds or a count; without it raises `FailedStoreMissing`."""

    def __init__(self, store: Store, *, age: float | None, count: int | None) -> None:
        self._store = store
        self._age = age
        self._count = count
        self._next_trim = 0.0
        self._is_bounded = age is not None or count is not None
        if self._is_bounded and not isinstance(store.backend, KeepsFailed):
            raise FailedStoreMissing(
                f"{store.capabilities.system} keeps no failed jobs that keep_failed= could bound: give "
                "connect(failed=…) another aqueue URL to keep them in"
            )

    def trim(self) -> None:
        """Start a bounded purge, at most one a second; a failing one is left to the next."""
        if not self._is_bounded:
            return
        now = time.monotonic()
        if now >= self._next_trim:
            self._next_trim = now + _PAUSE
            self._store.spawn(self._purge())

    async def _purge(self) -> None:
        """A few small steps, so that it keeps up with a burst and holds nobody up for long."""
        keeper = self._store.backend
        assert isinstance(keeper, KeepsFailed)
        for _ in range(_MOST_PAGES):
            purged = await self._store.call(
                "purge",
                lambda: keeper.failed_purge(queue=None, older_than=self._age, keep=self._count, limit=PAGE),
            )
            if purged < PAGE:
                return
