"""Keeps the leases of running deliveries, and cancels a handler whose lease is lost (LEASE-3).

Every third of a lease all of them are renewed in one round trip. A renewal never revives a lease that passed
to somebody else: the store's fence says so, and the handler that lost it is told.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Literal

import anyio

from aqueue.events import log_quietly
from aqueue.port import Verdict
from aqueue.queue import Queue
from aqueue.running import Cause, Run

OnLeaseLost = Literal["cancel", "continue"]


class LeaseKeeper:
    """Renews while it runs. `running` is the worker's own set, read at each beat."""

    def __init__(self, queue: Queue, running: Collection[Run], on_lease_lost: OnLeaseLost) -> None:
        self._queue = queue
        self._running = running
        self._on_lease_lost = on_lease_lost
        self._interval = queue.lease / 3

    async def keep(self) -> None:
        """Beat until cancelled. A failed renewal is tried again at the next beat: two fit in the lease."""
        while True:
            await anyio.sleep(self._interval)
            held = [run for run in self._running if not run.is_settling and not run.has_lost_lease]
            if not held:
                continue
            with anyio.move_on_after(self._interval):
                await self._renew(held)

    async def _renew(self, held: Sequence[Run]) -> None:
        answers = await self._queue.extend_many([run.delivery for run in held])
        for run, answer in zip(held, answers, strict=True):
            if isinstance(answer, Exception):
                log_quietly(logging.WARNING, "could not renew the lease of %r: %s", run.delivery, answer)
            elif answer is Verdict.STALE:
                self._lost(run)

    def _lost(self, run: Run) -> None:
        if run.is_settling or run.cause is not None:
            return  # it was settled while the renewal was on its way
        run.has_lost_lease = True
        self._queue.telemetry.lease_lost(run.delivery.queue)
        log_quietly(
            logging.WARNING,
            "lost the lease of %r after %.1f s: somebody else may run the job now (lease %s s)",
            run.delivery,
            run.duration,
            self._queue.lease,
        )
        if self._on_lease_lost == "cancel":
            run.cancel(Cause.LEASE)
