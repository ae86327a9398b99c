"""What a check is given: a fresh place in the store, and ways to reach it as users and as workers do."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Protocol
from uuid import uuid4

from aqueue.connection import open_backend
from aqueue.contract.signing import Keyring
from aqueue.delivery import Delivery
from aqueue.errors import AqueueError, Settlement, StaleDelivery
from aqueue.port import Backend, Capabilities, KeepsFailed, KeepsNotes, LeaseKind, StoreOptions
from aqueue.queue import Queue, QueueOptions
from aqueue.testing.clock import ManualClock
from aqueue.testing.contract.raising import raises
from aqueue.testing.eventually import eventually

Opener = Callable[[str, StoreOptions], Backend]
DEFAULT = "default"


class _Closing(Protocol):
    async def aclose(self) -> None: ...


class Harness:
    """One check's own place in a store, which holds nothing yet.

    `url` must lead to a namespace nobody else uses. `lease` is the seconds a delivery is held; with a
    `clock` (for stores that take one) a long lease costs nothing, without one the checks wait it out.
    `patience` is how many seconds a store may take until something that must come has come. `unopened` is a
    backend on the same place to ask what it can do.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float | None = None,
        clock: ManualClock | None = None,
        opener: Opener = open_backend,
        patience: float = 10.0,
    ) -> None:
        self.url = url
        self.clock = clock
        self.lease = lease if lease is not None else (1.0 if clock is None else 60.0)
        self.patience = patience
        self._opener = opener
        self._opened: list[_Closing] = []
        self._is_migrated = False
        self._keeper = f"memory://{uuid4().hex}"
        self.unopened = self._made(self.lease)
        self.capabilities: Capabilities = self.unopened.capabilities
        self.keeps_failed = isinstance(self.unopened, KeepsFailed)
        self.keeps_notes = isinstance(self.unopened, KeepsNotes)

    async def queue(
        self,
        *,
        lease: float | None = None,
        keyring: Keyring | None = None,
        accept_unsigned: bool | datetime = False,
        failed: str | Backend | None = None,
        keep_failed: timedelta | int | None = None,
        backend: Backend | None = None,
        own_failed: bool = False,
    ) -> Queue:
        """Return an open queue on this place, on a connection of its own; `aclose` closes it.

        `failed` is another store for its failed jobs; a store that keeps none itself is given one, unless
        `own_failed` asks for what the store does about them by itself.
        """
        options = QueueOptions(
            lease=lease if lease is not None else self.lease,
            keyring=keyring,
            accept_unsigned=accept_unsigned,
            keep_failed=keep_failed,
            clock=self._clock(),
        )
        keeper = None if own_failed else self._failed_keeper(failed)
        queue = Queue(backend or self._made(options.lease), options, failed=keeper)
        self._opened.append(queue)
        await queue.open()
        if not self._is_migrated:
            await queue.migrate()
            self._is_migrated = True
        return queue

    async def backend(self) -> Backend:
        """Return an open backend on the same place: for raw bytes, and for what a queue would refuse."""
        if not self._is_migrated:
            await self.queue()
        backend = self._made(self.lease)
        self._opened.append(backend)
        await backend.open()
        return backend

    def closed_queue(self) -> Queue:
        """Return a queue on this place that nobody has opened."""
        return Queue(self._made(self.lease), QueueOptions(lease=self.lease, clock=self._clock()))

    async def aclose(self) -> None:
        """Close everything this harness opened, the last first."""
        while self._opened:
            await self._opened.pop().aclose()

    async def pass_time(self, seconds: float) -> None:
        """Let this much of the store's time go by: at once where it takes a clock, else by waiting."""
        if self.clock is not None:
            self.clock.advance(seconds)
        else:
            await asyncio.sleep(seconds)

    async def lose(self, holder: Queue | Backend) -> None:
        """Let everything `holder` holds be lost, as if its process had died, and its lease be over."""
        if self.capabilities.lease is LeaseKind.CHANNEL:
            await holder.aclose()
        else:
            await self.pass_time(self.lease * 1.2)

    async def take(self, queue: Queue, *names: str) -> Delivery:
        """Pop one delivery that must be there by now."""
        return (await self.take_many(queue, 1, *names))[0]

    async def take_many(self, queue: Queue, count: int, *names: str) -> list[Delivery]:
        """Pop exactly this many deliveries, in as many pops as it takes."""
        taken: list[Delivery] = []
        while len(taken) < count:
            async with self.promptly():
                taken += await queue.pop_many(count - len(taken), queues=names or (DEFAULT,))
        return taken

    def expect_order(self, taken: Sequence[Delivery], ids: Sequence[str]) -> None:
        """Hold an ordered store to these ids in this order, and any other to these ids."""
        found = [delivery.id for delivery in taken]
        assert sorted(found) == sorted(ids), "it was not these jobs that came"
        assert found == list(ids) or not self.capabilities.ordered, "the jobs came in another order"

    async def expect_nothing(self, queue: Queue, *names: str) -> None:
        """Hold the store to it that nothing is due now."""
        found = await queue.pop_now(1, queues=names or (DEFAULT,))
        assert not found, f"{found[0]!r} was handed out, though nothing is due"

    def expect_attempt(self, delivery: Delivery, number: int, *, given_back: int | None = 0) -> None:
        """Hold a delivery to being this attempt, and none of its leases lost.

        Give-backs before it, None for any number of them, count where a store counts hand-outs (ATT-1).
        """
        counts = self.capabilities.counts_give_backs
        least = number + (given_back or 0 if counts else 0)
        is_right = delivery.attempt >= least if counts and given_back is None else delivery.attempt == least
        assert is_right, f"attempt {delivery.attempt}, not {least}"
        assert delivery.lost == 0, f"{delivery.lost} lost leases, where none was"

    async def expect_counts(
        self,
        queue: Queue,
        name: str = DEFAULT,
        *,
        ready: int = 0,
        delayed: int = 0,
        leased: int = 0,
        paused: int = 0,
    ) -> None:
        """Hold `size` and `stats` to these numbers, or where they are estimates to coming there in time.

        `paused` are jobs released with a delay: delayed ones, or leased ones where they stay in flight.
        """
        if self.capabilities.pauses_in_flight:
            leased += paused
        else:
            delayed += paused

        async def agree() -> None:
            stats = await queue.stats(name)
            assert stats.ready + stats.delayed == ready + delayed, f"{stats}, not {ready} + {delayed} waiting"
            assert await queue.size(name) == ready + delayed
            if self.capabilities.exact_size:
                assert (stats.ready, stats.delayed, stats.leased) == (ready, delayed, leased), f"{stats}"

        await eventually(agree, 0 if self.capabilities.exact_size else self.patience)

    async def expect_stale(self, operation: Settlement, settling: Awaitable[None], *, of: Delivery) -> None:
        """Hold a fenced store to refusing this settlement; another may answer it in its own way."""
        if not self.capabilities.fenced:
            with suppress(AqueueError):
                await settling
            return
        with raises(StaleDelivery, f"{operation} of a finished delivery") as caught:
            await settling
        assert caught.error.operation is operation, f"{operation} was refused as {caught.error.operation}"
        assert (caught.error.job_id, caught.error.queue) == (of.id, of.queue), "refused for another job"

    @asynccontextmanager
    async def promptly(self) -> AsyncIterator[None]:
        """Hold what runs inside to ending within the harness's patience."""
        try:
            async with asyncio.timeout(self.patience):
                yield
        except TimeoutError:
            raise AssertionError(f"it did not end within {self.patience:g} s") from None

    def failed_backend(self, url: str) -> Backend:
        """Return another store's backend on this harness's clock, for keeping failed jobs."""
        return open_backend(url, StoreOptions(lease=self.lease, clock=self._clock()))

    def _made(self, lease: float) -> Backend:
        return self._opener(self.url, StoreOptions(lease=lease, clock=self._clock()))

    def _failed_keeper(self, failed: str | Backend | None) -> Backend | None:
        if failed is None:
            return None if self.keeps_failed else self.failed_backend(self._keeper)
        return self.failed_backend(failed) if isinstance(failed, str) else failed

    def _clock(self) -> Callable[[], float]:
        return self.clock if self.clock is not None else time.time
