"""One attempt at a job: everything between its delivery and its settlement (WORK-1, WORK-9).

    scope -> span -> rebuild the job -> middleware -> handle -> close what must commit before the settlement

What any of it raises is the attempt's own error; nothing here settles, reports or logs. A worker's runner
and `inline://` are its two callers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from aqueue.contract.following import is_followed
from aqueue.contract.retry import Backoff, BackoffFunction
from aqueue.contract.settlement import is_handed_out_too_often, is_poison
from aqueue.delivery import Delivery
from aqueue.errors import JobLost
from aqueue.handlers import Handlers
from aqueue.jobs import JobType
from aqueue.limits import asked
from aqueue.middleware import Bindable, Middleware, bound_to
from aqueue.queue import Queue
from aqueue.routes import Route, Router
from aqueue.running import Cause, Run, forget_cancellation
from aqueue.scope import Builtins, RequestScope, ScopeProvider
from aqueue.telemetry import ProcessSpan, Span, TraceMode, current_span
from aqueue.threads import Threads

LONGEST_CLOSING = 5.0
"""Seconds that a scope may take to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a worker's deliveries are handled where the job says nothing itself. Durations are seconds."""

    max_attempts: int = 0
    backoff: Backoff | BackoffFunction = field(default_factory=Backoff.none)
    timeout: float | None = None
    max_lost: int = 5
    trace: TraceMode = "link"
    worker: str = ""


class Handling:
    """Makes attempts; many at once are many calls of `attempt`. Made, it raises what `Router` does."""

    def __init__(
        self,
        queue: Queue,
        handlers: Handlers,
        *,
        provider: ScopeProvider,
        middleware: Sequence[Middleware | Bindable],
        policy: Policy,
        threads: Threads,
    ) -> None:
        self.policy = policy
        self._begin = provider.begin
        self._threads = threads
        self._queue = queue
        self._telemetry = queue.telemetry
        self._counts_hand_outs = queue.capabilities.counts_give_backs
        self._builtins: Builtins = {
            Delivery: _itself,
            Queue: lambda _: queue,
            Span: lambda _: current_span(),
        }
        self._router = Router(handlers, provider, self._builtins, middleware, bound_to(queue))

    def begin(self, delivery: Delivery) -> RequestScope:
        """Make the scope of one delivery; whoever begins closes it."""
        return self._begin(delivery, self._builtins)

    def start_span(self, delivery: Delivery) -> ProcessSpan | None:
        """Start the span of one delivery and make it current; None where nobody listens."""
        if not delivery.envelope.metadata and not self._telemetry.active():
            return None
        return self._telemetry.start_process(
            delivery,
            delivery.name,
            trace=self.policy.trace,
            waited=delivery.waited,
            client_id=self.policy.worker,
        )

    async def attempt(self, run: Run, scope: RequestScope) -> BaseException | None:
        """Do everything that can fail the attempt; return what it raised, or None when it returned."""
        delivery = run.delivery
        reserved, envelope = delivery.reserved, delivery.envelope
        error: BaseException | None = None
        try:
            route = self._router.resolve(envelope.name, reserved.queue)
            run.declared = declared = route.job_type
            if reserved.lost or self._counts_hand_outs:
                self._check_may_run(delivery, declared)
            if envelope.metadata and is_followed(envelope.metadata):
                await asked(self._queue.endings.begin(delivery))
            if scope.initializers:
                await scope.initialize()
            run.job = job = route.restore(bytes(envelope.args))
            timeout = declared.timeout or self.policy.timeout
            if timeout is not None:
                run.limit(timeout)
            if route.around is not None:
                await route.around(delivery, lambda _: self._call(run, route, scope))
            elif route.direct is not None:
                run.value = await route.direct(job)
            else:
                run.value = await route.call(job, scope, self._threads.run)
        except BaseException as raised:  # noqa: BLE001 - whatever user code raises is its job's failure
            error = raised
        if run.end_handling():
            await forget_cancellation(run.task)
        if run.cause is Cause.TIMEOUT and isinstance(error, asyncio.CancelledError):
            error = TimeoutError(f"the job ran longer than its timeout of {run.timeout:g} s")
        return await self._close_function_scope(scope, error) if scope.has_function_exits else error

    def _check_may_run(self, delivery: Delivery, declared: JobType) -> None:
        """Refuse to run a job that was lost, or where losses aren't told handed out, too often (ATT-3)."""
        if is_poison(delivery.lost, self.policy.max_lost):
            raise JobLost(f"its lease ran out {delivery.lost} times without a settlement")
        if not self._counts_hand_outs:
            return
        cap, declared_cap = delivery.max_attempts, declared.max_attempts
        if cap is None:
            cap = declared_cap if declared_cap is not None else self.policy.max_attempts
        if is_handed_out_too_often(delivery.attempt, max_attempts=cap, max_lost=self.policy.max_lost):
            raise JobLost(
                f"it was handed out {delivery.attempt} times, which is more than its {cap} attempts and "
                f"{self.policy.max_lost} lost leases"
            )

    async def _call(self, run: Run, route: Route, scope: RequestScope) -> None:
        """Call the handler for middleware; called again, it gets fresh dependencies (MID-1)."""
        error: BaseException | None = None
        try:
            run.value = await route.call(run.job, scope, self._threads.run)
        except BaseException as raised:  # noqa: BLE001 - raised again below, once the scope has seen it
            error = raised
        if scope.has_function_exits:
            error = await self._close_function_scope(scope, error)
        if error is not None:
            raise error

    async def _close_function_scope(
        self, scope: RequestScope, error: BaseException | None
    ) -> BaseException | None:
        """Close what commits before the settlement: its failure is the attempt's (WORK-9)."""
        try:
            with anyio.CancelScope(shield=True, deadline=closing_deadline()) as patience:
                await scope.close_function_scope(error)
        except BaseException as failure:  # noqa: BLE001 - any dependency may raise anything while it closes
            return error or failure
        if patience.cancelled_caught:
            return error or TimeoutError(f"a dependency took longer than {LONGEST_CLOSING} s to close")
        return error


def _itself(delivery: Delivery) -> Delivery:
    return delivery


def closing_deadline() -> float:
    """Return when a scope that begins to close now must be closed."""
    return anyio.current_time() + LONGEST_CLOSING
