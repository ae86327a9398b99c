"""How a delivery ends: one fenced settlement, coalesced with its neighbours', told apart from an outage."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from aqueue.coalesce import Coalescer
from aqueue.contract.failure import clean_text, error_text, error_traceback, error_type
from aqueue.delivery import Delivery
from aqueue.errors import OutcomeUnknown, Settlement, StaleDelivery
from aqueue.failed import Keeping, Retention
from aqueue.port import (
    AcksAtOnce,
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

SendAck: TypeAlias = Callable[[Reserved, Callable[[Answer], None]], None]
"""Removes a job with nobody waiting and no span: the function is told the answer, perhaps at once."""

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
        self._keeping = Keeping(store, failed)
        backend = store.backend
        self._ack = _Lane[Reserved](store, "ack", backend.ack)
        self.send_ack: SendAck = self._ack.send
        if isinstance(backend, AcksAtOnce):
            self.send_ack = partial(_send_now, store, backend.ack_now)
        self._release = _Lane[Releasing](store, "release", backend.release)
        self._extend = _Lane[Reserved](store, "extend", backend.extend)
        beyond = failed if failed is not store else None
        self._fail = _Lane[Failing](store, "fail", self._swap_for_records, _record_weight, beyond)

    async def ack(self, delivery: Delivery) -> None:
        """Remove the job."""
        if self._telemetry.active():
            await self._traced(self._ack, delivery.reserved, Settlement.ACK, delivery)
        else:
            _check(await self._ack.settle(delivery.reserved), Settlement.ACK, delivery.reserved)

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
            answers = await self._keeping.swap(batch)
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


class _Lane(Generic[Item]):
    """One verb's settlements: sent together where that saves round trips, directly where there are none.

    A verb that also reaches a store `beyond` this one keeps to the narrower bounds of the two, and each of
    its calls to either has an upper time of its own.
    """

    def __init__(
        self,
        store: Store,
        verb: str,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        weigh: Callable[[Item], int] | None = None,
        beyond: Store | None = None,
    ) -> None:
        self._store = store
        self._verb = verb
        self._send = send
        self._is_timed = beyond is not None
        bounds = [each.capabilities for each in (store, beyond) if each is not None]
        self._is_immediate = all(each.immediate for each in bounds)
        self._coalescer = Coalescer[Item, Verdict](
            self._sent,
            max_items=min(each.max_batch for each in bounds),
            max_weight=min(each.max_batch_bytes for each in bounds),
            weigh=weigh,
            withdraws=False,  # a job that is done stays done, even if its worker is cancelled just now
        )

    def settle(self, item: Item) -> Awaitable[Answer]:
        return self._settle_now(item) if self._is_immediate else self._coalescer.submit(item)

    def send(self, item: Item, receive: Callable[[Answer], None]) -> None:
        self._coalescer.send(item, receive)

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
            if self._is_timed:
                answers = await self._send(batch)
            else:
                answers = await self._store.raw_call(lambda: self._send(batch))
        except Exception as error:  # noqa: BLE001 - one outage is answered to each that waits, as its own error
            answers = [error] * len(batch)
        return [
            self._store.translated(answer, self._verb) if isinstance(answer, Exception) else answer
            for answer in answers
        ]


def _send_now(
    store: Store, ack: Callable[[Reserved], Answer], reserved: Reserved, receive: Callable[[Answer], None]
) -> None:
    answer: Answer
    try:
        if not store.is_open:
            store.check_open()
        answer = ack(reserved)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        answer = error
    receive(answer)


def trouble_with(answer: Answer, operation: Settlement, reserved: Reserved) -> Exception | None:
    """Return what an answer means where it is not simply yes."""
    if answer is Verdict.SETTLED:
        return None
    if answer is Verdict.STALE:
        return StaleDelivery(operation, job_id=reserved.id, queue=reserved.queue)
    if isinstance(answer, Exception):
        return answer
    return OutcomeUnknown(f"the store did not say whether the {operation} was applied", job_id=reserved.id)


def _check(answer: Answer, operation: Settlement, reserved: Reserved) -> None:
    trouble = trouble_with(answer, operation, reserved)
    if trouble is not None:
        raise trouble


def _record_weight(failing: Failing) -> int:
    return len(failing.record.payload) + len(failing.record.traceback) + 512


def failed_record(delivery: Delivery, reason: str, error: BaseException | None, worker: str) -> FailedRecord:
    """Return what is kept of a delivery that is set aside."""
    ran = delivery.attempt - (1 if reason == "lost" else 0)
    return FailedRecord(
        id=delivery.id,
        name=clean_text(delivery.name, 1024),
        queue=delivery.queue,
        payload=delivery.reserved.payload,
        attempts=ran,
        lost=delivery.lost,
        reason=clean_text(reason),
        error_type=error_type(error) if error is not None else "",
        error=error_text(error) if error is not None else "",
        traceback=error_traceback(error) if error is not None else "",
        pushed_at=delivery.pushed_at.timestamp(),
        worker=clean_text(worker),
        delivery=str(delivery.receipt),
    )
