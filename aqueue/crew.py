"""A worker's slots: long-lived tasks, each running one delivery at a time in a fresh context (WORK-2)."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence

import anyio.abc

from aqueue.delivery import Delivery
from aqueue.port import Answer, Verdict
from aqueue.runner import Runner
from aqueue.running import Cause, InContext, Run, Stepping, forget_cancellation


class Crew:
    """Runs up to `size` deliveries at once in the tasks of one task group.

    `on_trouble` is told what the store raised while a delivery was settled; `is_ending` tells whether the
    slots themselves are being cancelled. `running` holds the deliveries whose handling has not ended. A
    delivery whose ack is all that is left needs no task to wait for it, but its place is free again only when
    the ack is confirmed.
    """

    def __init__(
        self,
        runner: Runner,
        size: int,
        stepping: Stepping,
        *,
        on_trouble: Callable[[BaseException], None],
        is_ending: Callable[[], bool],
    ) -> None:
        self.running: set[Run] = set()
        self._runner = runner
        self._size = size
        self._stepping = stepping
        self._on_trouble = on_trouble
        self._is_ending = is_ending
        self._context = contextvars.copy_context()
        self._inbox: deque[Delivery] = deque()
        self._unconfirmed: deque[Run] = deque()
        self._busy = 0
        self._resting: deque[asyncio.Future[None]] = deque()
        self._waking = 0
        self._at_once = 1
        self._change: asyncio.Future[None] | None = None

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

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            if self._inbox:
                context = self._context.copy()
                run = Run(self._inbox.popleft(), task, self._is_ending, context, self._confirm)
            elif self._unconfirmed:
                run = self._unconfirmed.popleft()
                run.task = task
                run.is_handed_over = False
            else:
                await self._rest()
                continue
            self.running.add(run)
            try:
                steps = InContext(self._runner.run(run), run, self._stepping)
                if steps.step():
                    self._let_others_begin()
                    await steps
                else:
                    self._at_once = 1
            except BaseException as error:
                if self._is_ending():
                    raise
                self._on_trouble(error)
            finally:
                self.running.discard(run)
                if not run.is_handed_over:
                    self._busy -= 1
                    self._tell_of_change()
            if task.cancelling():
                await forget_cancellation(task)

    def _confirm(self, run: Run, answer: Answer) -> None:
        """Take the answer to an ack that was handed over; a slot goes on where it isn't simply yes."""
        if answer is Verdict.SETTLED:
            self._busy -= 1
            if self._change is not None:
                self._tell_of_change()
        else:
            run.answer = answer
            self._unconfirmed.append(run)
            self._wake()

    def _tell_of_change(self) -> None:
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def _let_others_begin(self) -> None:
        """A delivery waits for something and its slot with it: those that came with it begin together now.

        The next ones will too, so that their settlements travel together.
        """
        self._at_once = self._size
        self._wake()

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
        """Wake slots for what waits, no more than `at_once` that have not begun to run yet."""
        wanted = min(self._at_once, len(self._inbox) + len(self._unconfirmed))
        while self._resting and self._waking < wanted:
            waker = self._resting.popleft()
            if not waker.done():
                waker.set_result(None)
                self._waking += 1
