"""A worker's slots: long-lived tasks, each running one delivery at a time in a fresh context (WORK-2)."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence

import anyio.abc

from aqueue.delivery import Delivery
from aqueue.runner import Runner
from aqueue.running import Cause, InContext, Run, Stepping, forget_cancellation


class Crew:
    """Runs up to `size` deliveries at once in the tasks of one task group.

    `on_trouble` is told what the store raised while a delivery was settled; `is_ending` tells whether the
    slots themselves are being cancelled. `running` holds the deliveries that began; a slot is free again only
    when its settlement is confirmed. `at_once` is how many slots are woken together: many, where their
    settlements should travel together; one, where a delivery may well be over before the next could begin.
    """

    def __init__(
        self,
        runner: Runner,
        size: int,
        stepping: Stepping,
        *,
        on_trouble: Callable[[BaseException], None],
        is_ending: Callable[[], bool],
        at_once: int,
    ) -> None:
        self.running: set[Run] = set()
        self._runner = runner
        self._size = size
        self._stepping = stepping
        self._on_trouble = on_trouble
        self._is_ending = is_ending
        self._at_once = at_once
        self._context = contextvars.copy_context()
        self._inbox: deque[Delivery] = deque()
        self._busy = 0
        self._resting: deque[asyncio.Future[None]] = deque()
        self._change: asyncio.Future[None] | None = None
        self._is_dismissed = False
        self._waking = 0

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Start the slots in the worker's task group."""
        for number in range(self._size):
            group.start_soon(self._slot, name=f"aqueue slot {number}")

    @property
    def free(self) -> int:
        """How many more deliveries can start now."""
        return self._size - self._busy

    def hand_out(self, deliveries: Sequence[Delivery]) -> None:
        """Give each delivery to a slot; no more of them than are free."""
        self._busy += len(deliveries)
        self._inbox.extend(deliveries)
        self._wake()

    async def wait_free(self) -> int:
        """Wait until a slot is free and return how many are."""
        while self.free == 0:
            await self._changed()
        return self.free

    async def wait_idle(self) -> None:
        """Wait until nothing runs."""
        while self._busy:
            await self._changed()

    def cancel_running(self, cause: Cause) -> None:
        """Cancel every handler that still runs; their deliveries are settled all the same."""
        for run in tuple(self.running):
            run.cancel(cause)

    def dismiss(self) -> None:
        """Let each slot end once its delivery has."""
        self._is_dismissed = True
        for waker in self._resting:
            if not waker.done():
                waker.set_result(None)

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            while not self._inbox:
                if self._is_dismissed:
                    return
                await self._rest()
            delivery = self._inbox.popleft()
            if self._inbox:
                self._wake()
            try:
                await self._work(delivery, task)
            finally:
                self._busy -= 1
                if self._change is not None and not self._change.done():
                    self._change.set_result(None)

    async def _work(self, delivery: Delivery, task: "asyncio.Task[None]") -> None:
        """Run one delivery in a context of its own, whatever it does to itself."""
        run = Run(delivery, task, self._is_ending)
        self.running.add(run)
        try:
            await InContext(self._runner.run(run), self._context.copy(), self._stepping, delivery)
        except BaseException as error:
            if self._is_ending():
                raise
            self._on_trouble(error)
        finally:
            self.running.discard(run)
        if task.cancelling():
            await forget_cancellation(task)

    async def _rest(self) -> None:
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resting.append(waker)
        try:
            await waker
        except asyncio.CancelledError:  # perhaps the late work of a handler that is long gone
            if self._is_ending():
                raise
            await forget_cancellation(asyncio.current_task())
        finally:
            self._waking = max(0, self._waking - 1)

    async def _changed(self) -> None:
        self._change = asyncio.get_running_loop().create_future()
        await self._change

    def _wake(self) -> None:
        """Wake slots for what waits in the inbox, no more than `at_once` that have not begun to run yet."""
        while self._resting and self._waking < min(self._at_once, len(self._inbox)):
            waker = self._resting.popleft()
            if not waker.done():
                waker.set_result(None)
                self._waking += 1
