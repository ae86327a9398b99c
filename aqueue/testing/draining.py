"""Running everything a queue holds, retries and delayed jobs included, until nothing is left."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from aqueue.contract.names import check_limit, check_queue_names, check_seconds
from aqueue.contract.retry import Backoff, BackoffFunction
from aqueue.errors import JobSignal
from aqueue.events import JobFailed, Outcome
from aqueue.handlers import Handlers
from aqueue.middleware import Bindable, Middleware
from aqueue.port import Standing
from aqueue.queue import Queue
from aqueue.scope import ScopeProvider
from aqueue.testing.clock import ManualClock
from aqueue.testing.contents import held_jobs, shown
from aqueue.worker import Worker

_LEAST_STEP = 0.001
_MOST_SHOWN = 10
_MOST_IN_VAIN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain did: how many deliveries ended how, and how many seconds of the store's time went by.

    `errors` are those that set jobs aside, in order; a job that chose its end, by `Discard`, has none here.
    """

    acked: int
    released: int
    failed: int
    malformed: int
    seconds: float
    errors: tuple[BaseException, ...]

    @property
    def runs(self) -> int:
        """How many deliveries were handled."""
        return self.acked + self.released + self.failed + self.malformed


async def drain(
    queue: Queue,
    handlers: Handlers | Iterable[object],
    *,
    queues: Sequence[str] | None = None,
    scope: ScopeProvider | None = None,
    middleware: Sequence[Middleware | Bindable] = (),
    max_attempts: int = 0,
    backoff: Backoff | BackoffFunction | None = None,
    clock: ManualClock | None = None,
    within: float | timedelta | None = None,
    at_most: int = 1000,
    raises: bool = True,
) -> Drained:
    """Run what the queue holds, one job at a time, and what that pushes, until nothing is left.

    Where nothing is due, time moves to the next job that will be: by the `MemoryQueue`'s own manual clock, by
    `clock`, which must be the store's, or else by waiting for it. A job that somebody holds, and never
    settles, runs when its lease is over. `queues` are all that hold something, unless named; `within` leaves
    what is due later than so many seconds from now. `scope`, `middleware`, `max_attempts` and `backoff` are
    the worker's.

    Errors that set a job aside are raised at the end, several as an `ExceptionGroup`, unless `raises` is
    False. Raises `AssertionError` where more than `at_most` deliveries would be handled, and says what is
    stuck; `Unsupported` where the store can't show what it holds.
    """
    make = _worker_maker(
        queue,
        Handlers.of(handlers),
        scope=scope,
        middleware=middleware,
        max_attempts=max_attempts,
        backoff=backoff or Backoff.none(),
    )
    own_clock = getattr(queue, "clock", None)
    draining = _Draining(
        queue,
        make,
        queues=None if queues is None else check_queue_names(queues),
        clock=clock if clock is not None else own_clock if isinstance(own_clock, ManualClock) else None,
        within=float("inf") if within is None else check_seconds(within, "within"),
        at_most=check_limit(at_most),
    )
    drained = await draining.run()
    if raises and drained.errors:
        raise _as_one(drained.errors)
    return drained


_MakeWorker = Callable[[Sequence[str]], Worker]


def _worker_maker(
    queue: Queue,
    handlers: Handlers,
    *,
    scope: ScopeProvider | None,
    middleware: Sequence[Middleware | Bindable],
    max_attempts: int,
    backoff: Backoff | BackoffFunction,
) -> _MakeWorker:
    def make(names: Sequence[str]) -> Worker:
        return Worker(
            queue,
            handlers,
            queues=names,
            concurrency=1,
            scope=scope,
            middleware=middleware,
            max_attempts=max_attempts,
            backoff=backoff,
            name="drain",
        )

    return make


class _Draining:
    def __init__(
        self,
        queue: Queue,
        make: _MakeWorker,
        *,
        queues: Sequence[str] | None,
        clock: ManualClock | None,
        within: float,
        at_most: int,
    ) -> None:
        self._queue = queue
        self._make = make
        self._queues = queues
        self._clock = clock
        self._within = within
        self._at_most = at_most
        self._workers: dict[tuple[str, ...], Worker] = {}
        self._outcomes: Counter[Outcome] = Counter()
        self._errors: list[BaseException] = []
        self._seconds = 0.0
        self._in_vain = 0
        make(queues or ())  # what can't be handled at all is said before anything runs (ARG-5)

    async def run(self) -> Drained:
        """Handle and wait in turn until there is nothing to wait for."""
        while True:
            due, names = await self._next()
            if not names or self._seconds + due > self._within:
                return self._report()
            if self._outcomes.total() >= self._at_most or self._in_vain > _MOST_IN_VAIN:
                raise AssertionError(await self._stuck())
            if due > 0:
                await self._pass(due)
            await self._handle(names)

    async def _next(self) -> tuple[float, Sequence[str]]:
        """Return in how many seconds the next job is due, and on which queues there are any."""
        soonest, names = float("inf"), dict[str, None]()
        for name in self._queues if self._queues is not None else (None,):
            async for held, _ in held_jobs(self._queue, name):
                names[held.queue] = None
                due = self._queue.lease if held.standing is Standing.LEASED else held.delay
                soonest = min(soonest, due)
        return soonest, list(names) if self._queues is None else [n for n in self._queues if n in names]

    async def _pass(self, seconds: float) -> None:
        seconds = max(seconds, _LEAST_STEP)  # a step that rounding swallows would never end
        self._seconds += seconds
        if self._clock is not None:
            self._clock.advance(seconds)
        else:
            await asyncio.sleep(seconds)

    async def _handle(self, names: Sequence[str]) -> None:
        outcome = await self._worker(tuple(names)).run_one()
        if outcome is None:
            self._in_vain += 1
        else:
            self._in_vain = 0
            self._outcomes[outcome] += 1

    def _worker(self, names: tuple[str, ...]) -> Worker:
        worker = self._workers.get(names)
        if worker is None:
            worker = self._workers[names] = self._make(names)
            worker.listen(JobFailed, self._note_failure)
        return worker

    def _note_failure(self, event: JobFailed) -> None:
        if event.error is not None and not isinstance(event.error, JobSignal):
            self._errors.append(event.error)

    async def _stuck(self) -> str:
        left = [shown(held, envelope) async for held, envelope in held_jobs(self._queue, None)]
        listed = "".join(f"\n  {line}" for line in left[:_MOST_SHOWN])
        more = f"\n  and {len(left) - _MOST_SHOWN} more" if len(left) > _MOST_SHOWN else ""
        return (
            f"{self._outcomes.total()} deliveries were handled, of at most {self._at_most}, in "
            f"{self._seconds:g} s of the store's time, and this is left:{listed}{more}"
        )

    def _report(self) -> Drained:
        count = self._outcomes
        return Drained(
            acked=count[Outcome.ACKED],
            released=count[Outcome.RELEASED] + count[Outcome.LOST],
            failed=count[Outcome.FAILED],
            malformed=count[Outcome.MALFORMED],
            seconds=self._seconds,
            errors=tuple(self._errors),
        )


def _as_one(errors: Sequence[BaseException]) -> BaseException:
    return errors[0] if len(errors) == 1 else BaseExceptionGroup(f"{len(errors)} jobs failed", list(errors))
