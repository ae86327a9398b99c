"""How deliveries are found: one sweep in list order, a paced wait, and the sweep again (POP-1 to POP-7)."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from aqueue.contract.envelope import Envelope, Malformed
from aqueue.contract.failure import clean_text
from aqueue.delivery import Delivery
from aqueue.errors import MalformedJobSettled
from aqueue.port import FailedRecord, Failing, LeaseKind, Reserved, Verdict
from aqueue.sealing import OpenEnvelope
from aqueue.settler import Settler
from aqueue.store import Store
from aqueue.telemetry import Telemetry


class Popper:
    """Reserves jobs and makes deliveries of them; what can't be read is set aside (MAL-1)."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        telemetry: Telemetry,
        open_envelope: OpenEnvelope,
    ) -> None:
        self._store = store
        self._settler = settler
        self._telemetry = telemetry
        self._open_envelope = open_envelope

    async def take(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        """Make one sweep and return what is due now, perhaps nothing."""
        if not queues:
            return []
        started = time.time_ns()
        reserved = await self._sweep(queues, min(limit, self._store.capabilities.max_batch))
        if not reserved:
            return []
        deliveries = await self._readable(reserved)
        if deliveries and self._telemetry.active():
            self._telemetry.received(deliveries, started, time.time_ns())
        return deliveries

    async def wait_and_take(self, queues: Sequence[str], limit: int, timeout: float) -> list[Delivery]:
        """Sweep until something is found or `timeout` seconds are over; 0 waits with no deadline (POP-1)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout if timeout else float("inf")
        while queues and self._store.capabilities.lease is not LeaseKind.NONE:
            if deliveries := await self.take(queues, limit):
                return deliveries
            left = deadline - loop.time()
            if left <= 0:
                break
            await self.pause(queues, left)
        return []

    async def pause(self, queues: Sequence[str], left: float) -> None:
        """Wait until something may have arrived, at most the store's own pause or what is left (POP-3)."""
        seconds = min(self._store.capabilities.longest_wait, left)
        await self._store.call(
            "wait", lambda: self._store.backend.wait(queues, seconds), longer=seconds + 1.0
        )

    async def _sweep(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        backend = self._store.backend
        if self._store.capabilities.immediate:
            return await self._store.call("pop", lambda: backend.pop(queues, limit))
        sweep = self._store.spawn(self._store.call("pop", lambda: backend.pop(queues, limit)))
        try:
            return await asyncio.shield(sweep)
        except asyncio.CancelledError:
            await self._store.see_through(self._give_back_from(sweep))
            raise

    async def _give_back_from(self, sweep: "asyncio.Task[Sequence[Reserved]]") -> None:
        """Nobody waits for this sweep any more: let it end, and strand nothing it took (POP-6)."""
        await asyncio.wait({sweep})
        if not sweep.cancelled() and sweep.exception() is None:
            await self._settler.give_back(sweep.result())

    async def _readable(self, reserved: Sequence[Reserved]) -> list[Delivery]:
        """Make deliveries of a batch, or set the unreadable ones aside and give the others back."""
        deliveries: list[Delivery] = []
        unreadable: list[tuple[Reserved, Malformed]] = []
        try:
            for item in reserved:
                try:
                    deliveries.append(Delivery(item, self._envelope_of(item)))
                except Malformed as malformed:
                    unreadable.append((item, malformed))
        except Exception:
            # Only bytes that are certainly bad may be removed: a defect, a missing keyring or a newer
            # writer's envelope leaves every job of the batch where it was.
            await self._store.see_through(self._settler.give_back(reserved))
            raise
        if unreadable:
            await self._store.run_through(self._sort_out(deliveries, unreadable))
            return []
        return deliveries

    async def _sort_out(
        self, readable: Sequence[Delivery], unreadable: Sequence[tuple[Reserved, Malformed]]
    ) -> None:
        """Give the good ones back, so that the next pop finds them at once, and set the bad ones aside."""
        await self._settler.give_back([delivery.reserved for delivery in readable])
        await self._quarantine(unreadable)

    def _envelope_of(self, item: Reserved) -> Envelope:
        if item.attempt < 1 or item.lost < 0:
            raise Malformed("a stored counter is out of range")
        envelope = self._open_envelope(item.payload)
        if envelope.id != item.id:
            raise Malformed("the envelope belongs to another job than its record")
        return envelope

    async def _quarantine(self, unreadable: Sequence[tuple[Reserved, Malformed]]) -> None:
        """Set the unreadable aside and say so; one whose fence was lost is its new holder's to judge."""
        failings = [
            Failing(
                item,
                FailedRecord(
                    id=item.id,
                    name="",
                    queue=item.queue,
                    payload=item.payload,
                    attempts=max(0, item.attempt - 1),
                    lost=item.lost,
                    reason=malformed.reason,
                    error_type="Malformed",
                    error=clean_text(str(malformed)),
                    delivery=str(item.receipt),
                ),
            )
            for item, malformed in unreadable
        ]
        answers = await self._settler.set_aside(failings)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        settled = [
            pair for pair, answer in zip(unreadable, answers, strict=True) if answer is not Verdict.STALE
        ]
        for (queue, reason), count in Counter((item.queue, why.reason) for item, why in settled).items():
            self._telemetry.count_outcome(queue, reason, count)
        if settled:
            raise MalformedJobSettled(
                settled[0][0].queue,
                [item.id for item, _ in settled],
                [malformed.reason for _, malformed in settled],
            )
