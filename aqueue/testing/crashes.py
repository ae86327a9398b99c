"""A handler's process dies at each of its awaits in turn, and what happened twice in the end is told.

A dead process runs no `finally`. So the handler's coroutine is stepped by hand, and at the given suspension
it is simply not resumed; the job's lease runs out, and it is delivered again as after any crash.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, assert_never

from aqueue.handlers import Handlers
from aqueue.handling import Handling, Policy
from aqueue.jobs import job_type
from aqueue.middleware import Bindable, Middleware
from aqueue.pusher import DEFAULT_QUEUE
from aqueue.running import Run
from aqueue.scope import AppScope, ScopeProvider
from aqueue.testing.crash_report import CrashPoint, CrashReport
from aqueue.testing.draining import drain
from aqueue.testing.effects import Effects
from aqueue.testing.memory_queue import MemoryQueue
from aqueue.testing.process_life import ProcessLife
from aqueue.threads import Threads

Death: TypeAlias = Literal["crash", "cancel"]
Probe: TypeAlias = Callable[[], Iterable[Hashable] | Awaitable[Iterable[Hashable]]]

_MOST_THREADS = 10


async def crash_at_every_await(
    job: object,
    handlers: Handlers | Iterable[object],
    *,
    effects: Effects | Probe,
    reset: Callable[[], object] | None = None,
    scope: ScopeProvider | None = None,
    middleware: Sequence[Middleware | Bindable] = (),
    max_attempts: int = 0,
    death: Death = "crash",
    at_most: int = 200,
    patience: float = 10.0,
) -> CrashReport:
    """Run a job once in peace, and then once for each of its suspensions, at which its process dies.

    After each death the job is delivered again and run to its end, with all that it pushes, on a
    `MemoryQueue`; then the effects are compared with those of the run in peace. The last death comes when the
    handler has returned and its ack is not stored. `effects` is a recorder that the handlers use, or a
    function, async or not, that reads what happened. `reset`, async or not, is called before each run, and
    must take the world back to where it was.

    `death="crash"` doesn't resume the handler, so nothing of its cleanup runs before the effects are read;
    `"cancel"` cancels it there, as a stop without grace does, and lets the cleanup run. `scope`,
    `middleware` and `max_attempts` are the worker's. Raises what fails the run in peace, and `AssertionError`
    beyond `at_most` suspensions, or where the second delivery takes more than `patience` seconds.
    """
    probe, clear = _probing(effects)
    crashes = _Crashes(
        job,
        Handlers.of(handlers),
        probe=probe,
        resets=[call for call in (reset, clear) if call is not None],
        scope=scope or AppScope(),
        middleware=middleware,
        max_attempts=max_attempts,
        death=death,
        patience=patience,
    )
    expected = await crashes.in_peace()
    points: list[CrashPoint] = []
    while len(points) <= at_most:
        point, is_last = await crashes.dying_at(len(points) + 1, expected)
        points.append(point)
        if is_last:
            return CrashReport(points=tuple(points), expected=expected)
    raise AssertionError(f"the job was suspended more than {at_most} times: give at_most=, or a smaller job")


class _Crashes:
    def __init__(
        self,
        job: object,
        handlers: Handlers,
        *,
        probe: Probe,
        resets: Sequence[Callable[[], object]],
        scope: ScopeProvider,
        middleware: Sequence[Middleware | Bindable],
        max_attempts: int,
        death: Death,
        patience: float,
    ) -> None:
        self._job = job
        self._handlers = handlers
        self._probe = probe
        self._resets = resets
        self._scope = scope
        self._middleware = middleware
        self._max_attempts = max_attempts
        self._death = death
        self._patience = patience

    async def in_peace(self) -> tuple[Hashable, ...]:
        """Return the effects of a run in which nobody dies."""
        await self._reset()
        queue = MemoryQueue()
        await queue.push(self._job)
        await self._finish(queue, raises=True)
        return await self._seen()

    async def dying_at(self, step: int, expected: Sequence[Hashable]) -> tuple[CrashPoint, bool]:
        """Let the process die at this suspension; say what came of it, and whether there is none later."""
        await self._reset()
        queue = MemoryQueue()
        await queue.push(self._job)
        life, give_back = await self._begin(queue, step)
        try:
            await life.live_until_death()
            await give_back()
            errors = await self._finish(queue, raises=False)
            seen = await self._seen()
        finally:
            await life.bury()
        point = CrashPoint(
            step=step,
            where=life.where,
            effects=seen,
            doubled=_surplus(seen, expected),
            missing=_surplus(expected, seen),
            error=errors[0] if errors else None,
        )
        return point, life.has_returned

    async def _begin(
        self, queue: MemoryQueue, step: int
    ) -> tuple[ProcessLife, Callable[[], Awaitable[None]]]:
        handling = Handling(
            queue,
            self._handlers,
            provider=self._scope,
            middleware=self._middleware,
            policy=Policy(max_attempts=self._max_attempts, worker="crashes"),
            threads=Threads(_MOST_THREADS),
        )
        name = job_type(self._job).queue or DEFAULT_QUEUE
        (delivery,) = await queue.pop_now(1, queues=[name])
        scope = handling.begin(delivery)

        async def attempt() -> None:
            task = asyncio.current_task()
            assert task is not None
            run = Run(delivery, task, lambda: False)
            try:
                await handling.attempt(run, scope)
            finally:
                run.end_handling()

        async def give_back() -> None:
            match self._death:
                case "crash":
                    queue.advance(queue.lease + 1)
                case "cancel":
                    await queue.release(delivery, counted=False)
                case _:
                    assert_never(self._death)

        life = ProcessLife(
            attempt(), lambda: scope.close(None), dies_at=step, is_cancelled=self._death == "cancel"
        )
        return life, give_back

    async def _finish(self, queue: MemoryQueue, *, raises: bool) -> Sequence[BaseException]:
        """Deliver the job again, and whatever it pushes, until nothing is left."""
        try:
            async with asyncio.timeout(self._patience):
                drained = await drain(
                    queue,
                    self._handlers,
                    scope=self._scope,
                    middleware=self._middleware,
                    max_attempts=self._max_attempts,
                    raises=raises,
                )
        except TimeoutError:
            raise AssertionError(
                f"the job did not end within {self._patience:g} s; a lock, or a transaction, of the run that "
                'died may be in its way: death="cancel" lets that be given back'
            ) from None
        return drained.errors

    async def _reset(self) -> None:
        for call in self._resets:
            await _outcome(call())

    async def _seen(self) -> tuple[Hashable, ...]:
        return tuple(await _outcome(self._probe()))


def _probing(effects: Effects | Probe) -> tuple[Probe, Callable[[], object] | None]:
    return (effects.seen, effects.clear) if isinstance(effects, Effects) else (effects, None)


async def _outcome(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _surplus(these: Iterable[Hashable], those: Iterable[Hashable]) -> tuple[Hashable, ...]:
    return tuple((Counter(these) - Counter(those)).elements())
