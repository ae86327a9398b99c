"""The scheduler: pushes the jobs of schedules when they are due, once each, from any number of processes.

There is no leader. Every scheduler looks, and whoever changes the schedule's note first pushes the job in the
same step (CRON-1). What is due is decided by the clock of the store; a process's own clock is never asked,
only how long to sleep is measured here.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta

import anyio

from aqueue.errors import (
    InvalidQueueArgument,
    NotesMissing,
    QueueClosed,
    StoreError,
    UnknownSchedule,
    Unsupported,
)
from aqueue.events import log_quietly
from aqueue.limits import check_time
from aqueue.outage import Health, Outages
from aqueue.port import LeaseKind
from aqueue.queue import Queue
from aqueue.schedules import Schedule
from aqueue.ticker import Looked, ScheduleStatus, Ticker

_SPREAD = 0.05
_LEAVING = 0.2


class Scheduler:
    """Pushes the jobs of schedules when they are due; give it to a `Worker`, or `run` it alone (CRON-1).

    Any number of schedulers, in any number of processes, push one job for each time of a schedule. What they
    have to agree on is a note in the queue's own store. Where that keeps none, `store` is another queue whose
    store does. Both must be open while it runs. `glance` is how long a scheduler sleeps at most before it
    looks whether anything has changed, in seconds or as a timedelta.

    Raises `NotesMissing` where there is no store for the notes, `InvalidQueueArgument` for two schedules of
    one name, and what pushing the jobs would raise.
    """

    def __init__(
        self,
        queue: Queue,
        schedules: Iterable[Schedule],
        *,
        store: Queue | None = None,
        glance: float | timedelta = 30.0,
    ) -> None:
        self.queue = queue
        self.store = store or queue
        self._glance = check_time(glance, "glance")
        _check_stores(queue, self.store)
        self._tickers: dict[str, Ticker] = {}
        for schedule in schedules:
            if not isinstance(schedule, Schedule):
                raise InvalidQueueArgument(f"a scheduler takes schedules, not {type(schedule).__name__}")
            if schedule.name in self._tickers:
                raise InvalidQueueArgument(f"there are two schedules named {schedule.name!r}")
            self._tickers[schedule.name] = Ticker(schedule, queue, self.store)
        self._outages = Outages()
        self._stopping: asyncio.Event | None = None

    def __repr__(self) -> str:
        state = "running" if self._stopping is not None else "idle"
        return f"<Scheduler of {', '.join(self._tickers) or 'nothing'}, {state}>"

    @property
    def schedules(self) -> Sequence[Schedule]:
        """The schedules, in the order they were given."""
        return [ticker.schedule for ticker in self._tickers.values()]

    async def run(self) -> None:
        """Push what is due when it is due, until `stop()` or until the caller is cancelled.

        A store that is away is waited for, with growing pauses and a line in the log for each; so is a job
        that can't be pushed. Raises `QueueClosed` for a queue that is not open. Cancelling it at any moment
        leaves each tick either with its one job or still to be acted on.
        """
        if self._stopping is not None:
            raise InvalidQueueArgument("this scheduler is running already")
        self._stopping = stopping = asyncio.Event()
        looks = dict.fromkeys(self._tickers.values(), 0.0)
        try:
            while not stopping.is_set():
                await self._look_at_some(looks)
                wake_at = min(looks.values(), default=anyio.current_time() + self._glance)
                with anyio.move_on_after(wake_at - anyio.current_time()):
                    await stopping.wait()
        finally:
            self._stopping = None

    def stop(self) -> None:
        """End `run` once the look under way has ended; a plain call, which does nothing while it is idle."""
        if self._stopping is not None:
            self._stopping.set()

    @contextlib.asynccontextmanager
    async def beside(self, on_trouble: Callable[[], object]) -> AsyncIterator[None]:
        """Run while the block does; what ends it before is told to `on_trouble`, and raised afterwards."""
        running = asyncio.create_task(self.run(), name="aqueue scheduler")
        running.add_done_callback(lambda task: on_trouble() if _failed(task) else None)
        try:
            yield
        finally:
            self.stop()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({running}, timeout=_LEAVING)
                if not running.done():
                    running.cancel()
                    await asyncio.wait({running}, timeout=_LEAVING)
        if _failed(running):
            running.result()

    def health(self) -> Health:
        """Say how the scheduler does; `last_claim` is when it last looked without an error."""
        running = self._stopping is not None
        return Health(
            ok=running and self._outages.is_over,
            running=running,
            last_claim=self._outages.last_claim,
            last_error=self._outages.last_error,
        )

    async def run_due(self) -> int:
        """Push everything that is due now and return how many jobs that were; raises what the store raises.

        The first look at a schedule begins it: nothing was due before.
        """
        return sum(await asyncio.gather(*(_all_due(ticker) for ticker in self._tickers.values())))

    async def list(self) -> "Sequence[ScheduleStatus]":
        """Say where each schedule stands, in the order they were given."""
        return await asyncio.gather(*(ticker.status() for ticker in self._tickers.values()))

    async def pause(self, name: str) -> None:
        """Have nothing of this schedule fire, in no process, until `resume`; raises `UnknownSchedule`."""
        await self._ticker(name).pause()

    async def resume(self, name: str) -> None:
        """End a pause: what is due from now on fires, and what passed meanwhile was not missed."""
        await self._ticker(name).resume()

    async def trigger(self, name: str) -> str:
        """Push one job of this schedule now, paused or not, and return its id; no tick is touched by it."""
        return await self._ticker(name).trigger()

    async def preview(self, name: str, count: int = 5) -> "Sequence[datetime]":
        """Return the next times of this schedule by the store's clock, in the schedule's own zone."""
        return await self._ticker(name).preview(count)

    def _ticker(self, name: str) -> Ticker:
        if name not in self._tickers:
            raise UnknownSchedule(
                f"there is no schedule {name!r}; there is {', '.join(sorted(self._tickers)) or 'none'}"
            )
        return self._tickers[name]

    async def _look_at_some(self, looks: dict[Ticker, float]) -> None:
        """Look at those whose time has come, side by side, and say when to look at each again."""
        now = anyio.current_time()
        asked = [ticker for ticker, at in looks.items() if at <= now]
        answers = await asyncio.gather(*(_look(ticker) for ticker in asked))
        pause = self._heard_from(answers)
        now = anyio.current_time()
        for ticker, answer in zip(asked, answers, strict=True):
            looks[ticker] = now + (self._wait_after(answer) if isinstance(answer, Looked) else pause)

    def _wait_after(self, looked: Looked) -> float:
        """Until the next tick, a little spread out, so that many processes don't all meet at the note."""
        if looked.wait == 0:
            return 0.0
        glance = self._glance * random.uniform(0.8, 1.0)  # noqa: S311 - spreads, hides nothing
        return min(looked.wait, glance) + random.uniform(0, _SPREAD)  # noqa: S311 - likewise

    def _heard_from(self, answers: "Sequence[Looked | Exception]") -> float:
        """Note how the looks went, and return how long to leave those alone that failed."""
        troubles = [answer for answer in answers if isinstance(answer, Exception)]
        for trouble in troubles:
            if isinstance(trouble, QueueClosed):
                raise trouble
        if not troubles:
            if answers:
                self._outages.succeeded()
            return 0.0
        return self._outages.failed(troubles[0])


async def _look(ticker: Ticker) -> Looked | Exception:
    try:
        return await ticker.look()
    except Exception as error:  # noqa: BLE001 - one schedule's trouble must not stop the others
        if not isinstance(error, StoreError):
            name = ticker.schedule.name
            log_quietly(logging.ERROR, "schedule %r could not be looked at", name, with_traceback=True)
        return error


def _failed(task: "asyncio.Task[None]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


async def _all_due(ticker: Ticker) -> int:
    pushed = 0
    while True:
        looked = await ticker.look()
        pushed += looked.pushed
        if looked.wait > 0:
            return pushed


def _check_stores(queue: Queue, store: Queue) -> None:
    if queue.capabilities.lease is LeaseKind.NONE:
        raise Unsupported("inline:// runs a job inside push(), so there is nothing to schedule")
    try:
        store.notes.check_kept()
    except NotesMissing:
        system = store.capabilities.system
        raise NotesMissing(
            f"{system} keeps no notes, which schedulers agree by: give Scheduler(store=…) a queue whose "
            "store does, such as one on SQLite, Redis or PostgreSQL"
        ) from None
