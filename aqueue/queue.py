"""`Queue`: what users hold. It checks what they ask, and hands each verb to the part that does it."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, NamedTuple, Self

import anyio

from aqueue.chains import PushOptions
from aqueue.claims import Claims
from aqueue.contract.following import is_followed
from aqueue.contract.names import check_limit, check_queue_name, check_queue_names, check_seconds
from aqueue.contract.results import check_results
from aqueue.contract.unique import Unique
from aqueue.delivery import Delivery
from aqueue.diagnosis import Diagnosis
from aqueue.doctor import Doctor
from aqueue.endings import Endings
from aqueue.errors import InvalidQueueArgument, NotClearable
from aqueue.failed import FailedJobs
from aqueue.inventory import KeyInventory
from aqueue.notes import Notes
from aqueue.plans import Batch, Chain
from aqueue.popper import Popper
from aqueue.port import (
    Answer,
    Backend,
    Capabilities,
    Clearable,
    DeadLetters,
    KeepsFailed,
    LeaseKind,
    QueueStats,
)
from aqueue.pusher import DEFAULT_QUEUE, Pusher
from aqueue.queue_options import (
    QueueOptions,
    check_keeps_failed,
    check_lease,
    default_results,
    retention,
)
from aqueue.sealing import CloseEnvelope, OpenEnvelope, envelope_closer, envelope_opener
from aqueue.settler import Settler, failed_record
from aqueue.store import Store
from aqueue.telemetry import Telemetry

__all__ = ["Queue", "QueueOptions"]

logger = logging.getLogger("aqueue.queue")


class _Envelopes(NamedTuple):
    """How envelopes are opened and closed: checked and sealed with the queue's keys, if it has any."""

    open: OpenEnvelope
    close: CloseEnvelope


class Queue:
    """Jobs in a store, and the one concrete class that applications and workers hold.

    Open it with `async with`, or `open` and `aclose`, from any task. Concurrent calls on one event loop
    travel together (PUSH-6). Cancelling a caller never harms the connection or another caller. `lease` is
    how long a delivery is held without renewal, in seconds.
    """

    def __init__(
        self,
        backend: Backend,
        options: QueueOptions | None = None,
        *,
        failed: Backend | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        options = options or QueueOptions()
        self.lease = options.lease
        self._call_timeout = options.call_timeout
        self.capabilities: Capabilities = backend.capabilities
        check_lease(options.lease, self.capabilities)
        self.telemetry = telemetry or Telemetry(self.capabilities.system)
        self._store = Store(backend, self.telemetry, call_timeout=options.call_timeout)
        self._failed_store = self._store
        if failed is not None:
            check_keeps_failed(failed)
            self._failed_store = Store(failed, self.telemetry, call_timeout=options.call_timeout)
        envelopes = _Envelopes(
            envelope_opener(options.keyring, accept_unsigned=options.accept_unsigned, clock=options.clock),
            envelope_closer(options.keyring),
        )
        self._settler = Settler(
            self._store,
            self._failed_store,
            retention(self._failed_store, options.keep_failed),
            self.telemetry,
        )
        self.send_ack = self._settler.send_ack
        self._popper = Popper(self._store, self._settler, self.telemetry, envelopes.open)
        self._add_notes(options, envelopes)
        self.failed = FailedJobs(
            self._failed_store,
            self._store,
            open_envelope=envelopes.open,
            close_envelope=envelopes.close,
            clock=options.clock,
        )
        self.keys = KeyInventory(self._store, self._failed_store, options.keyring)
        self.doctor = Doctor(self._store, self._failed_store, options.keyring)
        self.why = Diagnosis(self._store, self._failed_store).why
        self._is_open = False

    def _add_notes(self, options: QueueOptions, envelopes: "_Envelopes") -> None:
        """Make what is built on notes (unique pushes, results, chains, batches) and the pusher they use."""
        self.notes = Notes(self._store)
        self.claims = Claims(self.notes)
        self.pusher = Pusher(
            self._store,
            self.telemetry,
            self.claims,
            failed=self._failed_store,
            close_envelope=envelopes.close,
            clock=options.clock,
            results=default_results(options.results, self.notes, self.capabilities),
        )
        self.endings = Endings(
            self._store,
            self.notes,
            self.claims,
            self.pusher,
            open_envelope=envelopes.open,
            close_envelope=envelopes.close,
            clock=options.clock,
        )
        self.result, self.progress = self.endings.results.get, self.endings.results.progress
        self.batch = self.endings.batches.look

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"<Queue on {self.capabilities.system}, {state}>"

    async def open(self) -> None:
        """Connect to the store; opening an open queue does nothing. Raises `ConnectionFailed`."""
        if self._is_open:
            return
        await self._store.open()
        if self._failed_store is not self._store:
            try:
                await self._failed_store.open()
            except BaseException:
                await self._store.aclose()
                raise
        self._is_open = True
        self._warn_if_failing_deletes()

    async def aclose(self) -> None:
        """Let calls under way end, then close the store; idempotent. What is leased stays leased."""
        if not self._is_open:
            return
        self._is_open = False
        with anyio.CancelScope(shield=True):  # bounded by the call timeout, so a cancelled host can't be held
            await asyncio.sleep(0)  # a pop that was just cancelled gets its turn to give back what it took
            await self._drain()
            await self._store.aclose()
            if self._failed_store is not self._store:
                await self._failed_store.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def push(
        self,
        job: object,
        *,
        queue: str | None = None,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        id: str | None = None,
        connection: object | None = None,
        unique: Unique | Literal[False] | None = None,
        results: float | timedelta | Literal[False] | None = None,
    ) -> str:
        """Store a job and return its id, once the store holds it (PUSH-3).

        `delay` is seconds or a timedelta, `at` an aware datetime instead; both are floors. `id` makes the
        push safe to repeat: one that its queue still holds stores nothing new (PUSH-10). `unique` replaces
        what the job declares, False takes it away (UNIQUE-1); so does `results`, the seconds to keep what
        it returns (RESULT-1). A `chain` or `batch` is pushed the same way (CHAIN-1, BATCH-1). `connection`
        writes inside the caller's own transaction (PUSH-8). Raises `InvalidQueueArgument`, `InvalidJob` or
        `UnserializableJob` with nothing sent, `ConnectionFailed` when nothing was, `OutcomeUnknown` when it
        may have been. Cancelling withdraws the job, or leaves it to be stored.
        """
        if isinstance(job, Chain | Batch):
            options = PushOptions(
                queue=queue, delay=delay, at=at, max_attempts=max_attempts, results=check_results(results)
            )
            return await self._push_plan(job, options, id, connection, unique)
        prepared = self.pusher.prepare(
            job,
            queue=queue,
            delay=delay,
            at=at,
            max_attempts=max_attempts,
            id=id,
            unique=unique,
            results=results,
        )
        if connection is not None:
            self.pusher.check_connection()
        return await self.pusher.push(prepared, connection)

    async def push_many(
        self,
        jobs: Iterable[object],
        *,
        queue: str | None = None,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        connection: object | None = None,
        together: bool = False,
    ) -> list[str]:
        """Store many jobs and return their ids in order; one unfit job refuses all, with nothing sent.

        Raises `PushManyError` with an outcome per position where the store took only some (PUSH-7).
        `together` stores all or none where the store can (`capabilities.atomic_push`): at most `max_batch`
        jobs, and what went wrong is raised itself.
        """
        prepared = [
            self.pusher.prepare(job, queue=queue, delay=delay, at=at, max_attempts=max_attempts)
            for job in jobs
        ]
        if connection is not None:
            self.pusher.check_connection()
        return await self.pusher.push_many(prepared, connection, together=together)

    async def push_copies(
        self,
        job: object,
        queues: Sequence[str],
        *,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        connection: object | None = None,
    ) -> list[str]:
        """Store a copy of a job on each queue, each with an id of its own; return the ids in order (TOPIC-1).

        All copies or none where the store can (`capabilities.atomic_push`) and with `connection`; elsewhere
        `PublishManyError` has an outcome per queue. Raises else what `push` does.
        """
        names = check_queue_names(queues)
        copies = self.pusher.prepare_copies(job, names, delay=delay, at=at, max_attempts=max_attempts)
        if connection is not None:
            self.pusher.check_connection()
        return await self.pusher.push_copies(copies, connection)

    async def pop(self, *, timeout: float = 0, queues: Sequence[str] = (DEFAULT_QUEUE,)) -> Delivery | None:
        """Return the next delivery, or None after `timeout` seconds; 0 waits with no deadline (POP-1).

        The first queue in the list that has a ready job wins (POP-2). Cancelling strands nothing (POP-6).
        Raises `MalformedJobSettled` when it met bytes nobody can read, which it set aside (MAL-1).
        """
        deliveries = await self.pop_many(1, timeout=timeout, queues=queues)
        return deliveries[0] if deliveries else None

    async def pop_many(
        self, limit: int, *, timeout: float = 0, queues: Sequence[str] = (DEFAULT_QUEUE,)
    ) -> list[Delivery]:
        """Return up to `limit` deliveries as soon as there is at least one; see `pop`."""
        check_limit(limit)
        seconds = check_seconds(timeout, "timeout")
        names = check_queue_names(queues)
        return await self._popper.wait_and_take(names, limit, seconds)

    async def pop_now(self, limit: int, *, queues: Sequence[str] = (DEFAULT_QUEUE,)) -> list[Delivery]:
        """Return up to `limit` deliveries that are due now, perhaps none, without waiting."""
        check_limit(limit)
        names = check_queue_names(queues)
        return await self._popper.take(names, limit)

    async def wait(self, seconds: float, *, queues: Sequence[str] = (DEFAULT_QUEUE,)) -> None:
        """Return when something may have arrived, at the store's own pace, or after `seconds` (POP-3)."""
        await self._popper.pause(check_queue_names(queues), check_seconds(seconds, "seconds"))

    async def ack(self, delivery: Delivery, *, result: object = None) -> None:
        """Remove a job that is done; raises `StaleDelivery` if its lease has passed on (FENCE-1).

        Before that its `result` is kept where that was asked for, and what follows it is stored (RESULT-1,
        CHAIN-1, BATCH-1); a store that can't do it raises, and the job stays leased.
        """
        if is_followed(delivery.envelope.metadata):
            await self.endings.done(delivery, result)
        await self._settler.ack(delivery)

    async def release(
        self, delivery: Delivery, *, delay: float | timedelta = 0, counted: bool = True
    ) -> None:
        """Put the job back, due after `delay` seconds (REL-1); `counted=False` adds no attempt (ATT-1)."""
        seconds = check_seconds(delay, "delay")
        await self._settler.release(delivery, seconds, counted=counted)

    async def fail(
        self,
        delivery: Delivery,
        reason: str = "error",
        *,
        error: BaseException | None = None,
        worker: str = "",
    ) -> None:
        """Set the job aside as a failed job, with the error that ended it if there was one (FAIL-1)."""
        if is_followed(delivery.envelope.metadata):
            await self.endings.failed(delivery, reason, error)
        await self._settler.fail(delivery, failed_record(delivery, reason, error, worker))

    async def extend(self, delivery: Delivery) -> None:
        """Renew the lease for its full length; raises `StaleDelivery` if it has passed on (LEASE-3)."""
        await self._settler.extend(delivery)

    async def extend_many(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """Renew many leases in one round trip and answer for each: a verdict, or what went wrong."""
        return await self._settler.extend_many(deliveries)

    async def size(self, queue: str = DEFAULT_QUEUE) -> int:
        """Return how many jobs wait: ready, delayed, and those whose lease ran out (SIZE-1)."""
        stats = await self.stats(queue)
        return stats.ready + stats.delayed

    async def stats(self, queue: str = DEFAULT_QUEUE) -> QueueStats:
        """Return how many jobs stand where, and the age in seconds of the oldest ready one (SIZE-1)."""
        check_queue_name(queue)
        return await self._store.run("stats", lambda: self._store.backend.stats(queue))

    async def clear(self, queue: str) -> int:
        """Discard every job of the queue that nobody holds, delayed ones too; return how many (CLEAR-1).

        No copy is kept. Raises `NotClearable` where the store can't spare what workers hold.
        """
        check_queue_name(queue)
        backend = self._clearable()
        return await self._store.run("clear", lambda: backend.clear(queue))

    def check_clearable(self) -> None:
        """Raise `NotClearable` where `clear` would, before anything is touched."""
        self._clearable()

    async def migrate(self) -> None:
        """Create or upgrade what the store needs, the failed store's too; safe to repeat and side by side."""
        for store in {self._store, self._failed_store}:
            await store.run("migrate", store.backend.migrate)

    async def _push_plan(
        self, plan: Chain | Batch, options: PushOptions, id: str | None, connection: object, unique: object
    ) -> str:
        if unique:
            raise InvalidQueueArgument("unique= is for one job, not for a chain or a batch")
        if isinstance(plan, Chain):
            return await self.endings.chains.push(plan, options, id, connection)
        if connection is not None:
            raise InvalidQueueArgument("a batch can't be pushed inside a caller's transaction")
        return await self.endings.batches.push(plan, options, id)

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):  # a store that no longer answers keeps nobody from leaving
            async with asyncio.timeout(self._call_timeout):
                await self.pusher.drain()
                await self._settler.drain()

    def _warn_if_failing_deletes(self) -> None:
        backend = self._failed_store.backend
        if self.capabilities.lease is LeaseKind.NONE or isinstance(backend, KeepsFailed | DeadLetters):
            return
        logger.warning(
            "%s keeps no failed jobs, so a job that fails is logged and removed: give connect(failed=…) "
            "another aqueue URL to keep them",
            self.capabilities.system,
        )

    def _clearable(self) -> Clearable:
        backend = self._store.backend
        if not isinstance(backend, Clearable):
            raise NotClearable(f"{self.capabilities.system} can't clear a queue without touching leased jobs")
        return backend
