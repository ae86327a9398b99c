"""The worker: what users build, run and stop. `shift` is how it works, `runner` what it does to each job."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Literal, TypeVar

import anyio

from aqueue.contract.names import check_limit, check_max_attempts, check_queue_names, check_seconds
from aqueue.contract.retry import Backoff, BackoffFunction, check_backoff
from aqueue.delivery import Delivery
from aqueue.errors import ConnectionFailed, InvalidQueueArgument, MalformedJobSettled
from aqueue.events import Event, Listeners, Outcome, log_quietly
from aqueue.handlers import Handlers
from aqueue.handling import Handling, Policy
from aqueue.lease import LeaseKeeper, OnLeaseLost
from aqueue.middleware import Bindable, Middleware
from aqueue.occurrences import OccurrenceGuard, OccurrenceRuntime
from aqueue.outage import Health, Outages
from aqueue.port import LeaseKind
from aqueue.pusher import DEFAULT_QUEUE
from aqueue.queue import Queue
from aqueue.runner import Runner
from aqueue.running import InContext, Run, Stepping
from aqueue.scheduler import Scheduler
from aqueue.scope import AppScope, ScopeProvider
from aqueue.shift import Shift, ShiftPlan
from aqueue.telemetry import TraceMode
from aqueue.threads import Threads

OnOutage = Literal["resume", "stop"]
Word = TypeVar("Word", bound=str)

_MOST_THREADS = 40


class Worker:
    """Pops jobs and handles them, `concurrency` at once, until `stop()` or until its task is cancelled.

    It starts nothing and installs nothing before `run`; signals are its host's business (STOP-2). Durations
    are seconds or timedeltas. `handlers` may be a plain list of jobs that handle themselves. Raises
    `InvalidQueueArgument` for a bad option, `UnresolvableParameter` and `InvalidJob` for handlers that could
    never run (ARG-5). `occurrences` is asked before a scheduled job is run (OCC-1), `scheduler` runs while
    the worker does (CRON-1).
    """

    def __init__(
        self,
        queue: Queue,
        handlers: Handlers | Iterable[object],
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        concurrency: int = 10,
        max_attempts: int = 0,
        backoff: Backoff | BackoffFunction = Backoff.none(),  # noqa: B008 - a frozen value, shared on purpose
        timeout: float | timedelta | None = None,
        max_lost: int = 5,
        renew: bool = True,
        on_lease_lost: OnLeaseLost = "cancel",
        on_outage: OnOutage = "resume",
        poll_timeout: float | timedelta = 1.0,
        grace: float | timedelta = 30.0,
        scope: ScopeProvider | None = None,
        middleware: Sequence[Middleware | Bindable] = (),
        trace: TraceMode = "link",
        name: str | None = None,
        occurrences: OccurrenceRuntime | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.queue = queue
        self.grace = check_seconds(grace, "grace")
        self.queues = check_queue_names(queues)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._plan = ShiftPlan(
            queues=self.queues,
            concurrency=check_limit(concurrency),
            renew=bool(renew),
            on_lease_lost=_one_of(on_lease_lost, "on_lease_lost", ("cancel", "continue")),
            stops_on_outage=_one_of(on_outage, "on_outage", ("resume", "stop")) == "stop",
            poll_timeout=_pace(check_seconds(poll_timeout, "poll_timeout"), queue.capabilities.longest_wait),
            grace=self.grace,
        )
        policy = Policy(
            max_attempts=_count(max_attempts, "max_attempts"),
            backoff=check_backoff(backoff),
            timeout=None if timeout is None else _positive(timeout, "timeout"),
            max_lost=_count(max_lost, "max_lost"),
            trace=_one_of(trace, "trace", ("link", "parent")),
            worker=self.name,
        )
        self._listeners = Listeners()
        self._outages = Outages()
        self._stepping = Stepping()
        self._shift: Shift | None = None
        self.scheduler = scheduler
        if occurrences is not None:
            guard = OccurrenceGuard(occurrences, self.name)
            guard.listen(self._listeners)
            middleware = [guard, *middleware]
        handling = Handling(
            queue,
            Handlers.of(handlers),
            provider=scope or AppScope(),
            middleware=middleware,
            policy=policy,
            threads=Threads(min(concurrency, _MOST_THREADS)),
        )
        self._runner = Runner(queue, handling=handling, listeners=self._listeners, persist=self._persist)

    def __repr__(self) -> str:
        state = "running" if self._shift is not None else "idle"
        return f"<Worker {self.name} on {', '.join(self.queues)}, {state}>"

    def listen(self, event: type[Event], listener: Callable[[Event], Awaitable[object] | object]) -> None:
        """Call `listener`, sync or async, with each event of this type, after its transition (WORK-5)."""
        self._listeners.add(event, listener)

    def stop(self, *, at_once: bool = False) -> None:
        """Take no new work, let what runs end within `grace`, then cancel it and give it back (STOP-1).

        `at_once` cancels and gives back without waiting. A plain call: it may be made from a handler, a
        listener or a signal handler of the loop. Does nothing when the worker isn't running.
        """
        if self._shift is not None:
            self._shift.stop(at_once=at_once)
            if self.scheduler is not None:
                self.scheduler.stop()

    def health(self) -> Health:
        """Say how the worker does, by the progress of its claims."""
        running = self._shift is not None
        return Health(
            ok=running and self._outages.is_over,
            running=running,
            last_claim=self._outages.last_claim,
            last_error=self._outages.last_error,
            busy=self._shift is not None and self._shift.is_busy,
        )

    async def run(self) -> None:
        """Work until `stop()`; return within grace plus 5 s of it, whatever handlers and store do (STOP-1).

        Cancelling the caller is a stop without grace: what runs is cancelled and given back, then the
        cancellation goes on (STOP-2). With `on_outage="stop"` the store's error is raised (WORK-8).
        """
        if self._plan.poll_timeout == 0:
            raise InvalidQueueArgument("run() needs a poll_timeout longer than 0 seconds: 0 waits for ever")
        if self._shift is not None:
            raise InvalidQueueArgument("this worker is running already")
        self._shift = Shift(
            self.queue,
            self._runner,
            self._plan,
            outages=self._outages,
            stepping=self._stepping,
            on_malformed=self._report_malformed,
        )
        beside = self.scheduler.beside(self.stop) if self.scheduler else contextlib.nullcontext()
        try:
            async with beside:
                await self._shift.run()
        finally:
            self._shift = None

    async def run_one(self, timeout: float | timedelta | None = None) -> Outcome | None:
        """Handle at most one delivery that is due now, or that comes within `timeout` seconds.

        Returns its outcome, or None if there was none. Raises what the store raises (WORK-8); cancelling
        gives the delivery back.
        """
        try:
            if timeout is None:
                deliveries = await self.queue.pop_now(1, queues=self.queues)
            else:
                seconds = check_seconds(timeout, "timeout")
                deliveries = await self.queue.pop_many(1, timeout=seconds, queues=self.queues)
        except MalformedJobSettled as malformed:
            self._report_malformed(malformed)
            return Outcome.MALFORMED
        return (await self._handle(deliveries))[0] if deliveries else None

    async def run_all(self) -> int:
        """Handle everything that is due now, `concurrency` at once; return how many deliveries were handled.

        A job that goes back without a delay is due again, and is handled again. Raises what the store
        raises (WORK-8).
        """
        handled = 0
        while True:
            try:
                deliveries = await self.queue.pop_now(self._plan.concurrency, queues=self.queues)
            except MalformedJobSettled as malformed:
                handled += self._report_malformed(malformed)
                continue
            if not deliveries:
                return handled
            handled += len(await self._handle(deliveries))

    async def _handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Run deliveries side by side, their leases kept; raise the store's first error once all ended."""
        caller = asyncio.current_task()
        assert caller is not None
        runs: list[Run] = []
        results: dict[Delivery, Outcome | Exception | None] = {}

        async def handle(delivery: Delivery) -> None:
            """Run it in this task, whose context is its own."""
            task = asyncio.current_task()
            assert task is not None
            runs.append(run := Run(delivery, task, lambda: caller.cancelling() > 0))
            steps = InContext(self._runner.run(run), run, self._stepping)
            try:
                results[delivery] = await steps if steps.step() else steps.result
            except Exception as error:  # noqa: BLE001 - raised below, when the others have ended too
                results[delivery] = error

        async with anyio.create_task_group() as group:
            if self._plan.renew and self.queue.capabilities.lease is LeaseKind.TIMED:
                keeper = LeaseKeeper(self.queue, runs, self._plan.on_lease_lost)
                group.start_soon(keeper.keep)
            async with anyio.create_task_group() as handling:
                for delivery in deliveries:
                    handling.start_soon(handle, delivery)
            group.cancel_scope.cancel()
        for result in results.values():
            if isinstance(result, Exception):
                raise result
        return [result for result in results.values() if isinstance(result, Outcome)]

    async def _persist(self, run: Run, error: ConnectionFailed) -> bool:
        """A settlement that was never sent is tried again while the lease may still be ours (WORK-8)."""
        if self._shift is None or self._plan.stops_on_outage:
            return False
        pause = self._outages.failed(error)
        if run.settling_for + pause > self.queue.lease:
            return False
        await anyio.sleep(pause)
        return True

    def _report_malformed(self, malformed: MalformedJobSettled) -> int:
        log_quietly(logging.WARNING, "%s", malformed)
        return len(malformed.job_ids)


def _pace(seconds: float, longest_wait: float) -> float:
    """Wait as long as is best for the store, which ends a wait early anyhow, unless less is asked."""
    return max(seconds, longest_wait) if seconds >= 1.0 else seconds


def _count(value: object, what: str) -> int:
    if value is None:
        raise InvalidQueueArgument(f"{what} must be a whole number from 0, not None")
    return check_max_attempts(value) or 0


def _positive(value: float | timedelta, what: str) -> float:
    seconds = check_seconds(value, what)
    if seconds == 0:
        raise InvalidQueueArgument(f"{what} must be longer than 0 seconds")
    return seconds


def _one_of(value: Word, what: str, allowed: tuple[str, ...]) -> Word:
    if value not in allowed:
        raise InvalidQueueArgument(f"{what} must be one of {', '.join(allowed)}, not {value!r}")
    return value
