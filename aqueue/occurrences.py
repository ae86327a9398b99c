"""Who runs an occurrence: asked before its job runs, told when it is complete (OCC-1).

A delivery says that a worker holds a job; it doesn't say that nobody else runs what the job stands for, since
a lease may run out under a worker that goes on, and a tick whose push was unsure may have two jobs. An
`OccurrenceRuntime` is what decides that, and it is the application's own, or `OccurrenceNotes`.
"""

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias, assert_never, runtime_checkable

import anyio
import msgspec

from aqueue.contract.occurrence import Occurrence
from aqueue.delivery import Delivery
from aqueue.errors import OccurrenceLost, Snooze, StoreError
from aqueue.events import JobEvent, JobFailed, JobReleased, JobSettlementLost, Listeners, log_quietly
from aqueue.limits import asked
from aqueue.middleware import CallNext

_ELSEWHERE = 5.0
_TRIES = (0.2, 1.0, 2.0)
_MOST_ENDED = 10_000


class OccurrenceLease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to run an occurrence, for `seconds` from when it was asked for, unless it is renewed.

    `fence` grows with every lease that an occurrence is given, so a resource that remembers the highest it
    has seen can refuse whoever comes late.
    """

    occurrence: Occurrence
    worker: str
    fence: int
    seconds: float


class OccurrenceDone(msgspec.Struct, frozen=True):
    """The answer that an occurrence is complete: its job is acked without being run."""


Acquired: TypeAlias = OccurrenceLease | OccurrenceDone | None


class OccurrenceRuntime(Protocol):
    """Owns the execution of occurrences; `Worker(occurrences=…)` asks it before it runs one.

    What a method raises as a `StoreError` counts as an outage: the job is put off, no attempt counted.
    """

    async def acquire(self, occurrence: Occurrence, worker: str) -> Acquired:
        """Return a lease, `OccurrenceDone` for one that is complete, or None where somebody else runs it."""

    async def renew(self, lease: OccurrenceLease) -> bool:
        """Begin the lease's time anew; False where it has passed on."""

    async def complete(self, lease: OccurrenceLease) -> bool:
        """Note that it is done, for good; False, with nothing noted, where the lease has passed on."""

    async def dead_letter(self, lease: OccurrenceLease, reason: str) -> bool:
        """Note that its job was set aside; False, with nothing noted, where the lease has passed on."""


@runtime_checkable
class ReleasesOccurrences(Protocol):
    """A runtime that can take a lease back early, so that a retry need not wait until it is over."""

    async def release(self, lease: OccurrenceLease) -> bool:
        """End the lease with nothing done; False where it has passed on."""


class OccurrenceGuard:
    """Middleware around everything else that a worker does to a delivery with an occurrence.

    Somebody else runs it: the job goes back for a few seconds, no attempt counted. It is complete: the job is
    acked unrun. The lease is lost while the handler runs: the handler is cancelled, nothing is completed, and
    the job goes back and asks again. What becomes of a handler that raised is known once its delivery is
    settled, so that is told by the worker's own events.
    """

    def __init__(self, runtime: OccurrenceRuntime, worker: str) -> None:
        self._runtime = runtime
        self._worker = worker
        self._ended: OrderedDict[tuple[str, str, int], OccurrenceLease] = OrderedDict()

    def listen(self, listeners: Listeners) -> None:
        """Have the runtime told how deliveries ended that weren't completed."""
        listeners.add(JobFailed, self._dead_letter)
        listeners.add(JobReleased, self._release)
        listeners.add(JobSettlementLost, self._release)

    async def __call__(self, delivery: Delivery, call_next: CallNext) -> object:
        """Run the rest if this worker is to run the occurrence."""
        occurrence = delivery.occurrence
        if occurrence is None:
            return await call_next(delivery)
        asked_at = asyncio.get_running_loop().time()
        answer = await asked(self._runtime.acquire(occurrence, self._worker))
        match answer:
            case OccurrenceLease():
                self._remember(delivery, answer)
                return await self._run(delivery, call_next, answer, asked_at)
            case OccurrenceDone():
                log_quietly(logging.INFO, "%r is not run: its occurrence is complete", delivery)
                return None
            case None:
                raise Snooze(_ELSEWHERE * (1 + random.random()))  # noqa: S311 - spreads, hides nothing
            case _:
                assert_never(answer)

    async def _run(
        self, delivery: Delivery, call_next: CallNext, lease: OccurrenceLease, asked_at: float
    ) -> object:
        result: object = None
        error: Exception | None = None
        is_complete = False
        async with self._kept(lease, asked_at) as keeping:
            try:
                result = await call_next(delivery)
            except Exception as raised:  # noqa: BLE001 - it is raised below, unless it no longer counts
                error = raised
            else:
                is_complete = await self._complete(lease)
        if error is not None and not keeping.cancel_called:
            raise error
        self._forget(delivery)
        if is_complete:
            return result
        log_quietly(logging.WARNING, "%r: somebody else may run its occurrence by now", delivery)
        raise OccurrenceLost(_ELSEWHERE) from error

    @contextlib.asynccontextmanager
    async def _kept(self, lease: OccurrenceLease, asked_at: float) -> AsyncIterator[anyio.CancelScope]:
        """Renew the lease while the block runs, and cancel the block once it is lost."""
        with anyio.CancelScope() as scope:
            renewing = asyncio.create_task(self._renew(lease, asked_at, scope))
            try:
                yield scope
            finally:
                renewing.cancel()

    async def _renew(self, lease: OccurrenceLease, asked_at: float, scope: anyio.CancelScope) -> None:
        """Renew it every third of its time; one that could not be renewed in time counts as lost."""
        loop = asyncio.get_running_loop()
        held_until, pause = asked_at + lease.seconds, lease.seconds / 3
        is_held = True
        while is_held and loop.time() + pause < held_until:
            await asyncio.sleep(pause)
            asked_at = loop.time()
            try:
                async with asyncio.timeout_at(held_until):
                    is_held = await self._runtime.renew(lease)
            except Exception as error:  # noqa: BLE001 - a runtime is the application's own
                log_quietly(logging.WARNING, "the lease on an occurrence was not renewed: %r", error)
                pause = lease.seconds / 10
            else:
                held_until, pause = asked_at + lease.seconds, lease.seconds / 3
        scope.cancel()

    async def _complete(self, lease: OccurrenceLease) -> bool:
        """Complete it, trying again for a while where the store can't be reached: the work is done."""
        for pause in _TRIES:
            try:
                return await self._runtime.complete(lease)
            except StoreError as error:
                log_quietly(logging.WARNING, "an occurrence could not be completed: %s", error)
                await asyncio.sleep(pause)
        return await asked(self._runtime.complete(lease))

    def _remember(self, delivery: Delivery, lease: OccurrenceLease) -> None:
        self._ended[delivery.queue, delivery.id, delivery.attempt] = lease
        if len(self._ended) > _MOST_ENDED:  # those that nobody told of, after outages
            self._ended.popitem(last=False)

    def _forget(self, told: Delivery | JobEvent) -> OccurrenceLease | None:
        return self._ended.pop((told.queue, told.id, told.attempt), None)

    async def _dead_letter(self, event: JobFailed) -> None:
        lease = self._forget(event)
        if lease is not None:
            await self._runtime.dead_letter(lease, event.reason)

    async def _release(self, event: JobEvent) -> None:
        lease = self._forget(event)
        if lease is not None and isinstance(self._runtime, ReleasesOccurrences):
            await self._runtime.release(lease)
