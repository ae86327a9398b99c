"""One run of a worker, from its first claim to its last settlement (WORK-2, WORK-8, STOP-1).

    claim what the slots have room for -> hand it out -> … -> stop: claim no more, let what runs end within
    the grace, cancel what is left, give it back; leave behind what won't even be cancelled

The whole shift lives in a task of its own around one task group. Its host only waits for it, so the host may
be cancelled at any moment without cutting a settlement short, and a handler that ignores its cancellation
can't keep the host.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from aqueue.crew import Crew
from aqueue.delivery import Delivery
from aqueue.errors import MalformedJobSettled, StoreError
from aqueue.events import log_quietly
from aqueue.lease import LeaseKeeper, OnLeaseLost
from aqueue.outage import Outages
from aqueue.port import LeaseKind
from aqueue.queue import Queue
from aqueue.runner import Runner
from aqueue.running import Cause, Stepping
from aqueue.watchdog import LoopWatchdog

_CANCEL_MARGIN = 3.0
_GIVE_BACK_MARGIN = 1.0
_LEAVE_MARGIN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftPlan:
    """What a shift is told. Durations are seconds."""

    queues: Sequence[str]
    concurrency: int
    renew: bool
    on_lease_lost: OnLeaseLost
    stops_on_outage: bool
    poll_timeout: float
    grace: float


class Shift:
    """Runs deliveries until it is stopped, or until an outage that it was told to stop at."""

    def __init__(
        self,
        queue: Queue,
        runner: Runner,
        plan: ShiftPlan,
        *,
        outages: Outages,
        stepping: Stepping,
        on_malformed: Callable[[MalformedJobSettled], object],
    ) -> None:
        self._queue = queue
        self._plan = plan
        self._outages = outages
        self._stepping = stepping
        self._on_malformed = on_malformed
        self._crew = Crew(
            runner,
            plan.concurrency,
            stepping,
            on_trouble=self._settlement_failed,
            is_ending=self._is_ending,
        )
        self._work_task: asyncio.Task[None] | None = None
        self._group_scope: anyio.CancelScope | None = None
        self._fatal: BaseException | None = None
        self._stopped = asyncio.Event()
        self._claiming = anyio.CancelScope()
        self._in_grace = anyio.CancelScope()
        self._left_behind = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether every slot has a job, so that none is asked for."""
        return self._crew.free == 0

    def stop(self, *, at_once: bool = False) -> None:
        """Claim no more; `at_once` also cancels what runs instead of letting it end within the grace."""
        self._stopped.set()
        self._claiming.cancel()
        if at_once:
            self._in_grace.cancel()

    async def run(self) -> None:
        """Work until stopped; a cancellation of the caller is a stop at once, and then goes on (STOP-2)."""
        self._work_task = work = asyncio.create_task(self._work(), name="aqueue shift")
        left_behind = asyncio.create_task(self._left_behind.wait())
        try:
            await asyncio.wait({work, left_behind}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.stop(at_once=True)
            with anyio.CancelScope(shield=True):
                await asyncio.wait({work, left_behind}, return_when=asyncio.FIRST_COMPLETED)
            raise
        finally:
            left_behind.cancel()
        if work.done():
            work.result()
        if self._fatal is not None:
            raise self._fatal

    async def _work(self) -> None:
        watchdog = LoopWatchdog(self._stepping)
        watchdog.start()
        try:
            async with anyio.create_task_group() as group:
                self._group_scope = group.cancel_scope
                self._crew.start(group)
                if self._plan.renew and self._queue.capabilities.lease is not LeaseKind.NONE:
                    keeper = LeaseKeeper(self._queue, self._crew.running, self._plan.on_lease_lost)
                    group.start_soon(keeper.keep, name="aqueue leases")
                group.start_soon(self._claim_until_stopped, name="aqueue claims")
                group.start_soon(self._end_when_stopped, name="aqueue stop")
        finally:
            watchdog.stop()

    async def _claim_until_stopped(self) -> None:
        with self._claiming:
            while not self._stopped.is_set():
                await self._claim(await self._crew.wait_free())

    async def _claim(self, free: int) -> None:
        """Take as many jobs as there are free slots, in one pop; wait where there are none (WORK-2)."""
        try:
            deliveries = await self._queue.pop_now(free, queues=self._plan.queues)
            self._outages.succeeded()
            if self._stopped.is_set():
                await self._give_back(deliveries)
                return
            self._crew.hand_out(deliveries)
            if not deliveries:
                await self._queue.wait(self._plan.poll_timeout, queues=self._plan.queues)
        except MalformedJobSettled as malformed:
            self._on_malformed(malformed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker must not go silent (WORK-8)
            if self._plan.stops_on_outage:
                self._give_up(error)
            else:
                await anyio.sleep(self._outages.failed(error))

    async def _end_when_stopped(self) -> None:
        await self._stopped.wait()
        await self._wind_up()
        assert self._group_scope is not None
        self._group_scope.cancel()
        # Whatever still hangs, a store that doesn't answer or a handler, is left behind.
        asyncio.get_running_loop().call_later(_LEAVE_MARGIN, self._left_behind.set)

    async def _wind_up(self) -> None:
        """Let what runs end within the grace, cancel the rest, and leave behind what won't be cancelled."""
        with self._in_grace as grace:
            grace.deadline = anyio.current_time() + self._plan.grace
            await self._crew.wait_idle()
        self._crew.cancel_running(Cause.STOP)
        with anyio.move_on_after(_CANCEL_MARGIN):
            await self._crew.wait_idle()
        stubborn = [run.delivery for run in self._crew.running]
        for delivery in stubborn:
            log_quietly(logging.ERROR, "%r did not end when it was cancelled; it is given back", delivery)
        await self._give_back(stubborn)

    async def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Put back what this shift won't finish, no attempt counted, even while it is being cancelled."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _GIVE_BACK_MARGIN):
            releases = [self._queue.release(delivery, counted=False) for delivery in deliveries]
            answers = await asyncio.gather(*releases, return_exceptions=True)
            for delivery, answer in zip(deliveries, answers, strict=True):
                if answer is not None:  # its lease will bring it back
                    log_quietly(logging.WARNING, "%r could not be given back: %s", delivery, answer)

    def _is_ending(self) -> bool:
        """Whether the tasks of this shift are being cancelled: at its very end, or by a loop that closes.

        The shift's own task only waits for its group, so nothing else ever cancels it.
        """
        assert self._work_task is not None
        assert self._group_scope is not None
        return self._group_scope.cancel_called or self._work_task.cancelling() > 0

    def _settlement_failed(self, error: BaseException) -> None:
        if self._plan.stops_on_outage:
            self._give_up(error)
        elif isinstance(error, StoreError):
            self._outages.failed(error)
        else:
            log_quietly(logging.ERROR, "nobody saw how a delivery was settled: %r", error)

    def _give_up(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self.stop()
