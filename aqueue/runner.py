"""The life of one delivery, step by step (WORK-1).

    scope -> span -> rebuild the job -> middleware -> handle -> settle -> report -> dispose the scope

Nothing in one step is repeated by another. Only the handler decides the outcome (WORK-3); a failing observer
changes nothing (WORK-4); a failing closing changes nothing either (WORK-9).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, assert_never

import anyio

from aqueue.contract.failure import error_text, error_type
from aqueue.contract.following import is_followed
from aqueue.contract.retry import Backoff
from aqueue.contract.settlement import ACK, GIVE_BACK, Ack, Decision, Fail, Release, decision_after
from aqueue.errors import ConnectionFailed, JobSignal, Settlement, StaleDelivery
from aqueue.events import (
    JobFailed,
    JobReleased,
    JobSettlementLost,
    JobSucceeded,
    Listeners,
    Outcome,
    best_effort,
    log_quietly,
    redacted_args,
)
from aqueue.handling import Handling, closing_deadline
from aqueue.queue import Queue
from aqueue.running import Cause, Run
from aqueue.scope import RequestScope
from aqueue.settler import trouble_with

Persist: TypeAlias = Callable[[Run, ConnectionFailed], Awaitable[bool]]
"""Waits out a settlement's failure to connect; False gives up and lets the error reach the caller."""

_OUTCOMES = {Ack: Outcome.ACKED, Release: Outcome.RELEASED, Fail: Outcome.FAILED}


class Runner:
    """Runs deliveries one by one; many at once are many calls of `run`."""

    def __init__(
        self,
        queue: Queue,
        *,
        handling: Handling,
        listeners: Listeners,
        persist: "Persist",
    ) -> None:
        self._queue = queue
        self._handling = handling
        self._policy = handling.policy
        self._listeners = listeners
        self._persist = persist
        self._telemetry = queue.telemetry

    async def run(self, run: Run) -> Outcome | None:
        """Handle and settle one delivery; raises only what the store raised while settling (WORK-8).

        A cancellation from outside gives the job back uncounted and goes on its way. None says that its ack,
        the last thing to do for it, was handed over to `run.confirm`; a run whose answer wasn't simply yes is
        run again, to go on with that.
        """
        delivery = run.delivery
        if run.answer is not None:
            return await self._settle(run, ACK, trouble_with(run.answer, Settlement.ACK, delivery.reserved))
        scope = self._handling.begin(delivery)
        span = self._handling.start_span(delivery)
        outcome = Outcome.LOST
        try:
            run.error = error = await self._handling.attempt(run, scope)
            if error is None and span is None and run.confirm and self._needs_only_its_ack(run, scope):
                run.is_handed_over = True
                self._queue.send_ack(delivery.reserved, partial(run.confirm, run))
                return None
            if run.is_ending():
                with anyio.CancelScope(shield=True, deadline=closing_deadline()):
                    outcome = await self._settle(run, self._decide(run))
                raise asyncio.CancelledError  # noqa: TRY301 - it was taken back for the settlement alone
            outcome = await self._settle(run, self._decide(run))
        except BaseException as trouble:
            run.error = run.error or trouble
            raise
        finally:
            if span is not None:
                self._telemetry.finish_process(span, outcome, _error_to_tell(run), duration=run.duration)
            if scope.has_exits:
                await self._dispose(run, scope)
        return outcome

    def _needs_only_its_ack(self, run: Run, scope: RequestScope) -> bool:
        return not (
            run.was_cancelled
            or scope.has_exits
            or self._listeners.wants(JobSucceeded)
            or is_followed(run.delivery.envelope.metadata)
        )

    def _decide(self, run: Run) -> Decision:
        if run.error is None:
            return ACK
        if run.cause is Cause.STOP or (run.is_ending() and isinstance(run.error, asyncio.CancelledError)):
            return GIVE_BACK
        delivery, declared = run.delivery, run.declared
        cap, backoff = delivery.max_attempts, self._policy.backoff
        if declared is not None:
            cap = declared.max_attempts if cap is None else cap
            backoff = declared.backoff or backoff
        decide = partial(
            decision_after,
            run.error,
            attempt=delivery.attempt,
            max_attempts=self._policy.max_attempts if cap is None else cap,
            chance=random.random(),  # noqa: S311 - spreads retries, hides nothing
        )
        try:
            return decide(backoff=backoff)
        except Exception:  # noqa: BLE001 - a backoff is user code; its job is retried all the same
            log_quietly(logging.ERROR, "the backoff of %r raised", delivery, with_traceback=True)
            return decide(backoff=Backoff.none())

    async def _settle(self, run: Run, decision: Decision, trouble: Exception | None = None) -> Outcome:
        """Make the delivery's one transition, then tell of it, refused or not (WORK-7).

        One that was certainly never sent may be tried again: that repeats nothing (WORK-8). `trouble` is what
        a first try met.
        """
        if isinstance(decision, Fail):
            _log_final_failure(run, decision)
        while True:
            try:
                if trouble is not None:
                    raise trouble
                await self._apply(run, decision)
            except StaleDelivery as stale:
                return await self._report_lost(run, stale)
            except ConnectionFailed as error:
                if not await self._persist(run, error):
                    raise
                trouble = None
            else:
                if decision is not ACK or self._listeners.wants(JobSucceeded):
                    await self._report(run, decision)
                return _OUTCOMES[type(decision)]

    def _apply(self, run: Run, decision: Decision) -> Awaitable[None]:
        """Choose the queue's verb for a decision; one for a lease that is lost is not even sent."""
        queue, delivery = self._queue, run.delivery
        if run.cause is Cause.LEASE and run.error is not None:
            raise StaleDelivery(Settlement.EXTEND, job_id=delivery.id, queue=delivery.queue)
        match decision:
            case Ack():
                return queue.ack(delivery, result=run.value)
            case Release():
                return queue.release(delivery, delay=decision.delay, counted=decision.counted)
            case Fail():
                return queue.fail(delivery, decision.reason, error=run.error, worker=self._policy.worker)
            case _:
                assert_never(decision)

    async def _report(self, run: Run, decision: Decision) -> None:
        listeners = self._listeners
        match decision:
            case Ack():
                await listeners.tell(JobSucceeded(**_facts(run)))
            case Release():
                _log_release(run, decision)
                if listeners.wants(JobReleased):
                    event = JobReleased(**_facts(run), delay=decision.delay, counted=decision.counted)
                    await listeners.tell(event)
            case Fail():
                await _call_failed_hook(run)
                if listeners.wants(JobFailed):
                    await listeners.tell(JobFailed(**_facts(run), reason=decision.reason))

    async def _report_lost(self, run: Run, stale: StaleDelivery) -> Outcome:
        log_quietly(logging.WARNING, "%r: %s", run.delivery, stale)
        if self._listeners.wants(JobSettlementLost):
            event = JobSettlementLost(**_facts(run), operation=stale.operation, stale=stale)
            await self._listeners.tell(event)
        run.error = run.error or stale
        return Outcome.LOST

    async def _dispose(self, run: Run, scope: RequestScope) -> None:
        """Close the scope, even in a task that is being cancelled; never change the outcome (WORK-9)."""
        try:
            with anyio.CancelScope(shield=True, deadline=closing_deadline()) as patience:
                await scope.close(run.error)
            if patience.cancelled_caught:
                log_quietly(logging.ERROR, "closing the scope of %r took too long", run.delivery)
        except BaseException:  # noqa: BLE001 - any dependency may raise anything while it closes
            log_quietly(logging.ERROR, "closing the scope of %r failed", run.delivery, with_traceback=True)


def _error_to_tell(run: Run) -> BaseException | None:
    """A handler that chose its ending raised a word, not an error."""
    return None if isinstance(run.error, JobSignal) else run.error


def _facts(run: Run) -> Mapping[str, Any]:
    delivery = run.delivery
    return {
        "id": delivery.id,
        "name": delivery.name,
        "queue": delivery.queue,
        "attempt": delivery.attempt,
        "duration": run.duration,
        "args": redacted_args(delivery, run.declared),
        "error": run.error,
    }


def _log_final_failure(run: Run, decision: Fail) -> None:
    """Before the transition, and with the arguments: afterwards the queue no longer has them (WORK-6)."""
    log_quietly(
        logging.ERROR,
        "%r failed for good (%s): %s; arguments: %s",
        run.delivery,
        decision.reason,
        _in_words(run.error),
        redacted_args(run.delivery, run.declared),
    )


def _log_release(run: Run, decision: Release) -> None:
    log_quietly(
        logging.INFO,
        "%r goes back for %.3g s, %s: %s",
        run.delivery,
        decision.delay,
        "an attempt" if decision.counted else "no attempt",
        _in_words(run.error),
    )


def _in_words(error: BaseException | None) -> str:
    return f"{error_type(error)}: {error_text(error)}" if error is not None else "no error"


async def _call_failed_hook(run: Run) -> None:
    """Call the job's own `failed(error)`; one set aside unrun is rebuilt for it now (WORK-5)."""
    declared = run.declared
    if declared is None or not callable(getattr(declared.payload, "failed", None)):
        return

    def call_hook() -> object:
        job: Any = declared.restore(run.delivery.raw_args) if run.job is None else run.job
        return job.failed(run.error)

    await best_effort(call_hook, what=f"failed() of {run.delivery.name}")
