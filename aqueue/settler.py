"""How a delivery ends: one fenced settlement, coalesced with its neighbours', told apart from an outage."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from aqueue.coalesce import Coalescer
from aqueue.delivery import Delivery
from aqueue.errors import OutcomeUnknown, Settlement, StaleDelivery
from aqueue.failed import Retention
from aqueue.port import (
    Answer,
    DeadLetters,
    FailedRecord,
    Failing,
    KeepsFailed,
    Releasing,
    Reserved,
    Verdict,
)
from aqueue.store import Store
from aqueue.telemetry import Telemetry

Item = TypeVar("Item")

logger = logging.getLogger("aqueue.queue")


class Settler:
    """Acks, releases, fails and extends deliveries (FENCE-1, FENCE-2, REL-1, FAIL-1, LEASE-3).

    `failed` is the store that keeps another's failed jobs; where it is the store itself, failing is one
    atomic step, and where it is another, the record is written first and the delivery settled after.
    """

    def __init__(self, store: Store, failed: Store, retention: Retention, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._store = store
        self._failed = failed
        self._retention = retention
        backend = store.backend
        self._ack = _Lane[Reserved](store, "ack", backend.ack, _one)
        self._release = _Lane[Releasing](store, "release", backend.release, _one)
        self._extend = _Lane[Reserved](store, "extend", backend.extend, _one)
        self._fail = _Lane[Failing](store, "fail", self._swap_for_records, _record_weight)

    async def ack(self, delivery: Delivery) -> None:
        """Remove the job."""
        if self._telemetry.active():
            await self._traced(self._ack, delivery.reserved, Settlement.ACK, delivery)
            return
        answer = await self._ack.settle(delivery.reserved)  # the one that nearly every job takes
        if answer is not Verdict.SETTLED:
            _check(answer, Settlement.ACK, delivery.reserved)

    async def release(self, delivery: Delivery, delay: float, *, counted: bool) -> None:
        """Swap the delivery for a waiting job."""
        releasing = Releasing(delivery.reserved, delay, counted)
        await self._traced(self._release, releasing, Settlement.RELEASE, delivery, delay=delay)

    async def fail(self, delivery: Delivery, record: FailedRecord) -> None:
        """Swap the delivery for its failed record."""
        await self._traced(self._fail, Failing(delivery.reserved, record), Settlement.FAIL, delivery)

    async def extend(self, delivery: Delivery) -> None:
        """Start the lease anew."""
        _check(await self._extend.settle(delivery.reserved), Settlement.EXTEND, delivery.reserved)

    async def extend_many(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """Start many leases anew in as few round trips as they fit in; answer for each."""
        return await self._extend.settle_many([delivery.reserved for delivery in deliveries])

    async def give_back(self, reserved: Sequence[Reserved]) -> None:
        """Put back what was reserved and never run, no attempt counted; what is stale is somebody else's."""
        await self._release.settle_many([Releasing(item, 0.0, counted=False) for item in reserved])

    async def set_aside(self, failings: Sequence[Failing]) -> Sequence[Answer]:
        """Move reserved bytes that can't be read to the failed store by the same fenced step (MAL-1)."""
        return await self._fail.settle_many(failings)

    async def drain(self) -> None:
        """Wait until every settlement under way is answered."""
        for lane in (self._ack, self._release, self._extend, self._fail):
            await lane.drain()

    async def _traced(
        self,
        lane: "_Lane[Item]",
        item: Item,
        operation: Settlement,
        delivery: Delivery,
        *,
        delay: float = 0.0,
    ) -> None:
        span = self._telemetry.start_settle(operation, delivery, delay=delay)
        try:
            _check(await lane.settle(item), operation, delivery.reserved)
        except BaseException as error:
            self._telemetry.finish(span, error)
            raise
        self._telemetry.finish(span)

    async def _swap_for_records(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        if self._failed is self._store:
            if not isinstance(self._store.backend, KeepsFailed | DeadLetters):
                self._log_what_goes(batch)
            answers = await self._store.backend.fail(batch)
        else:
            answers = await self._keep_then_ack(batch)
        self._retention.trim()
        return answers

    def _log_what_goes(self, batch: Sequence[Failing]) -> None:
        """A store with no place for failed jobs only removes them: this line is all that stays (FAIL-1)."""
        for failing in batch:
            record = failing.record
            logger.error(
                "job %s (%s) failed on %r and is removed, since %s keeps no failed jobs: %s",
                record.id,
                record.name or "unreadable",
                record.queue,
                self._store.capabilities.system,
                record.reason,
            )

    async def _keep_then_ack(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """The record first: a crash between the two leaves a job to be failed again, never a lost one."""
        keeper = self._failed.backend
        assert isinstance(keeper, KeepsFailed)
        await self._failed.call("keep", lambda: keeper.keep([failing.record for failing in batch]))
        answers = await self._store.backend.ack([failing.reserved for failing in batch])
        for failing, answer in zip(batch, answers, strict=True):
            if answer is Verdict.STALE:
                await self._failed.call("discard", partial(_take_back, keeper, failing.record))
        return answers


class _Lane(Generic[Item]):
    """One verb's settlements: sent together where that saves round trips, directly where there are none."""

    def __init__(
        self,
        store: Store,
        verb: str,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        weigh: Callable[[Item], int],
    ) -> None:
        self._store = store
        self._verb = verb
        self._send = send
        self._is_immediate = store.capabilities.immediate
        self._coalescer = Coalescer[Item, Verdict](
            self._sent,
            max_items=store.capabilities.max_batch,
            max_weight=store.capabilities.max_batch_bytes,
            weigh=weigh,
            withdraws=False,  # a job that is done stays done, even if its worker is cancelled just now
        )

    def settle(self, item: Item) -> Awaitable[Answer]:
        return self._settle_now(item) if self._is_immediate else self._coalescer.submit(item)

    async def settle_many(self, items: Sequence[Item]) -> Sequence[Answer]:
        if self._is_immediate:
            return await self._sent(items)
        futures = [self._coalescer.submit(item) for item in items]
        if futures:
            await asyncio.wait(futures)
        return [future.exception() or future.result() for future in futures]  # type: ignore[misc]

    async def drain(self) -> None:
        await self._coalescer.drain()

    async def _settle_now(self, item: Item) -> Answer:
        self._store.check_open()
        return (await self._send((item,)))[0]

    async def _sent(self, batch: Sequence[Item]) -> Sequence[Answer]:
        try:
            answers = await self._store.raw_call(lambda: self._send(batch))
        except Exception as error:  # noqa: BLE001 - one outage is answered to each that waits, as its own error
            answers = [error] * len(batch)
        return [
            self._store.translated(answer, self._verb) if isinstance(answer, Exception) else answer
            for answer in answers
        ]


async def _take_back(keeper: KeepsFailed, record: FailedRecord) -> None:
    """Somebody else holds the job, so it has not failed: remove the record this delivery has just written."""
    kept = await keeper.failed_get(record.id)
    if kept is not None and (kept.queue, kept.delivery) == (record.queue, record.delivery):
        await keeper.failed_discard(kept)


def _check(answer: Answer, operation: Settlement, reserved: Reserved) -> None:
    if answer is Verdict.SETTLED:
        return
    if answer is Verdict.STALE:
        raise StaleDelivery(operation, job_id=reserved.id, queue=reserved.queue)
    if isinstance(answer, Exception):
        raise answer
    raise OutcomeUnknown(f"the store did not say whether the {operation} was applied", job_id=reserved.id)


def _one(_: object) -> int:
    return 1


def _record_weight(failing: Failing) -> int:
    return len(failing.record.payload) + len(failing.record.traceback) + 512
