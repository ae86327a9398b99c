"""How a job gets into the store: checked, encoded and sealed before anything is sent, then sent together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from aqueue.claims import Claims
from aqueue.coalesce import Coalescer
from aqueue.contract.envelope import SENSITIVE_KEY, VERSION, Envelope
from aqueue.contract.names import check_delay, check_job_id, check_max_attempts, check_queue_name
from aqueue.contract.occurrence import OCCURRENCE_KEY
from aqueue.contract.results import RESULTS_KEY, Keep, check_results
from aqueue.contract.unique import UNIQUE_KEY, Claim, Unique
from aqueue.errors import (
    InvalidQueueArgument,
    PublishManyError,
    PushManyError,
    UnserializableJob,
    Unsupported,
)
from aqueue.ids import new_id
from aqueue.jobs import JobType, job_type
from aqueue.port import LeaseKind, Message, Quiet, Stored, Transactional
from aqueue.sealing import CloseEnvelope
from aqueue.store import Store
from aqueue.telemetry import PushSpan, Telemetry

DEFAULT_QUEUE = "default"


class Prepared(Quiet, frozen=True):
    """A job whose arguments are checked and encoded; only its metadata and its seal are missing."""

    id: str
    name: str
    queue: str
    args: bytes
    pushed_at: float
    delay: float
    max_attempts: int | None
    sensitive: str
    claim: Claim | None = None
    occurrence: str = ""
    extra: dict[str, str] | None = None

    def along_with(self, metadata: Mapping[str, str] | None) -> "Prepared":
        """Return the same job with this in its metadata as well."""
        return replace(self, extra={**(self.extra or {}), **metadata}) if metadata else self


class Pusher:
    """Makes messages of jobs and stores them, many callers to a round trip (PUSH-1 to PUSH-10)."""

    def __init__(
        self,
        store: Store,
        telemetry: Telemetry,
        claims: Claims,
        *,
        failed: Store,
        close_envelope: CloseEnvelope,
        clock: Callable[[], float],
        results: Keep = None,
    ) -> None:
        self._results = results
        self._store = store
        self._telemetry = telemetry
        self._claims = claims
        self._close_envelope = close_envelope
        self._clock = clock
        self._capabilities = store.capabilities
        self._is_immediate = store.capabilities.immediate
        # A job that its failed store couldn't hold could never be set aside: it would come back for ever.
        self._tightest = min(
            store.capabilities, failed.capabilities, key=lambda limits: limits.max_message_bytes
        )
        self._coalescer = Coalescer[Message, None](
            self._send,
            max_items=self._capabilities.max_batch,
            max_weight=self._capabilities.max_batch_bytes,
            weigh=_weight,
        )

    def prepare(
        self,
        job: object,
        *,
        queue: str | None = None,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        id: str | None = None,
        unique: Unique | Literal[False] | None = None,
        results: float | timedelta | Literal[False] | None = None,
    ) -> Prepared:
        """Check everything a caller gave and encode the arguments; nothing has been sent (PUSH-1, ARG-3)."""
        declared: JobType = type(job).__dict__.get("__aqueue_job__") or job_type(type(job))
        queue = (declared.queue or DEFAULT_QUEUE) if queue is None else check_queue_name(queue)
        now = self._clock()
        seconds = check_delay(delay, at, now, self._capabilities.longest_delay)
        attempts = declared.max_attempts if max_attempts is None else check_max_attempts(max_attempts)
        job_id = new_id() if id is None else self._chosen_id(id)
        codec = declared.codec
        args = codec.encode(job)
        claim = None
        if unique := declared.unique if unique is None else unique:
            claim = self._claim(unique, job, declared.name, args, seconds)
        prepared = Prepared(
            job_id, declared.name, queue, args, now, seconds, attempts, codec.sensitive, claim
        )
        keep = declared.results if results is None else check_results(results)
        keep = self._results if keep is None else keep
        return self._keeping_results(prepared, keep) if keep else prepared

    async def push(self, job: Prepared, connection: object | None) -> str:
        """Store one job and return its id; a cancellation withdraws it or leaves it to be stored."""
        span, id = None, job.id
        if self._telemetry.active():
            span = self._telemetry.start_push(job.queue, job.id, job.name, len(job.args), job.delay)
        try:
            message = self._seal(job, span.metadata() if span is not None else self._telemetry.metadata())
            if connection is not None:
                _refuse_a_claim(job)
                await self._push_within(connection, [message])
            elif job.claim is not None:
                id = await self._claims.push(message, job.claim)
            elif self._is_immediate:
                if not self._store.is_open:
                    self._store.check_open()
                (trouble,) = await self._store.backend.push((message,))
                if trouble is not None:
                    raise trouble  # noqa: TRY301 - it ends the span as any other trouble does
            else:
                await self._coalescer.submit(message)
        except BaseException as error:
            self._telemetry.finish(span, error)
            raise
        if span is not None:
            self._telemetry.finish(span)
        return id

    def prepare_copies(
        self,
        job: object,
        queues: Sequence[str],
        *,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        max_attempts: int | None = None,
    ) -> list[Prepared]:
        """Check and encode a job once, and give each queue its own copy of it (TOPIC-1)."""
        if not queues:
            raise InvalidQueueArgument("a job can't be copied to no queue at all: name one")
        first = self.prepare(job, queue=queues[0], delay=delay, at=at, max_attempts=max_attempts)
        copies = (replace(first, id=new_id(), queue=queue) for queue in queues[1:])
        return [first, *copies]

    async def push_copies(self, copies: Sequence[Prepared], connection: object | None) -> list[str]:
        """Store the copies in one act, or raise `PublishManyError` where that can't be (TOPIC-1)."""
        try:
            return await self.push_many(copies, connection, together=True)
        except PushManyError as error:
            outcomes = zip(copies, error.outcomes, strict=True)
            raise PublishManyError({copy.queue: outcome for copy, outcome in outcomes}) from error

    async def push_many(
        self, jobs: Sequence[Prepared], connection: object | None, *, together: bool = False
    ) -> list[str]:
        """Store many jobs and return their ids in order, or raise `PushManyError` (PUSH-7).

        `together` stores all or none where the store can, and then raises what went wrong itself.
        """
        if not jobs:
            self._store.check_open()
            return []
        if any(job.claim is not None for job in jobs):
            return await self._push_each(jobs, connection)
        together = together and connection is None and self._capabilities.atomic_push
        if together:
            self._check_one_act(len(jobs))
        span = self._telemetry.start_push_many(jobs) if self._telemetry.active() else None
        try:
            messages = [
                self._seal(job, span.metadata(job) if span is not None else self._telemetry.metadata())
                for job in jobs
            ]
            if connection is not None:
                await self._push_within(connection, messages)
            elif together:
                await self._store_together(messages)
            else:
                await self._store_all(messages)
        except BaseException as error:
            self._telemetry.finish(span, error)
            raise
        self._telemetry.finish(span)
        return [job.id for job in jobs]

    async def _push_each(self, jobs: Sequence[Prepared], connection: object | None) -> list[str]:
        """Unique jobs have their own step each, in which their key is taken, so there is no act of all."""
        outcomes = await asyncio.gather(*(self.push(job, connection) for job in jobs), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        answers = [outcome for outcome in outcomes if isinstance(outcome, str | Exception)]
        if any(isinstance(answer, Exception) for answer in answers):
            raise PushManyError(answers)
        return [str(answer) for answer in answers]

    def message(self, job: Prepared) -> tuple[Message, PushSpan | None]:
        """Return what to store for a job that a note is written with, and its span, to be finished then.

        A span that nobody finishes was never there. Raises `UnserializableJob` for a job that is too large.
        """
        span = None
        if self._telemetry.active():
            span = self._telemetry.start_push(job.queue, job.id, job.name, len(job.args), job.delay)
        metadata = span.metadata() if span is not None else self._telemetry.metadata()
        return self._seal(job, metadata), span

    def closed(self, job: Prepared) -> Message:
        """Return what is stored for a job that is not pushed yet; raises `UnserializableJob` if too large."""
        return self._seal(job, self._telemetry.metadata())

    async def drain(self) -> None:
        """Wait until every push under way is answered."""
        await self._coalescer.drain()

    def check_connection(self) -> None:
        """Refuse `connection=` where the store can't write inside a caller's transaction (PUSH-8)."""
        if not isinstance(self._store.backend, Transactional):
            raise Unsupported(
                f"{self._capabilities.system} can't push inside a caller's transaction: leave connection= out"
            )

    def _claim(self, unique: Unique, job: object, name: str, args: bytes, delay: float) -> Claim | None:
        if self._capabilities.lease is LeaseKind.NONE:
            return None  # inline: the job is done before anybody could push another
        return unique.claim(job, name, args, delay)

    def _keeping_results(self, job: Prepared, seconds: float) -> Prepared:
        """Have the job say that its result is kept; under `inline://` nobody could ask for it."""
        if self._capabilities.lease is LeaseKind.NONE:
            return job
        self._claims.check_kept()
        return job.along_with({RESULTS_KEY: repr(seconds)})

    def _chosen_id(self, id: str) -> str:
        if not self._capabilities.idempotent_push:
            raise Unsupported(f"{self._capabilities.system} can't tell a repeated id: leave id= out")
        return check_job_id(id)

    def _seal(self, job: Prepared, metadata: dict[str, str]) -> Message:
        if job.sensitive:
            metadata = {**metadata, SENSITIVE_KEY: job.sensitive}
        if job.claim is not None and job.claim.freed:
            metadata = {**metadata, UNIQUE_KEY: job.claim.freed}
        if job.occurrence:
            metadata = {**metadata, OCCURRENCE_KEY: job.occurrence}
        if job.extra:
            metadata = {**metadata, **job.extra}
        args = msgspec.Raw(job.args)
        payload = self._close_envelope(
            Envelope(VERSION, job.id, job.name, job.pushed_at, args, job.max_attempts, metadata)
        )
        if len(payload) > self._tightest.max_message_bytes:
            raise UnserializableJob(
                f"job {job.name} takes {len(payload)} bytes; {self._tightest.system} stores at most "
                f"{self._tightest.max_message_bytes}: push a reference to the data instead"
            )
        return Message(job.id, job.queue, payload, job.delay)

    async def _store_all(self, messages: Sequence[Message]) -> None:
        if self._capabilities.immediate:
            self._store.check_open()
            _raise_unless_stored(messages, await self._store.backend.push(messages))
            return
        futures = [self._coalescer.submit(message) for message in messages]
        _raise_unless_stored(messages, await _answered(futures))

    async def _store_together(self, messages: Sequence[Message]) -> None:
        """All messages share the fate of the first: their batch is one act of the store."""
        self._check_one_act(len(messages), sum(len(message.payload) for message in messages))
        if self._capabilities.immediate:
            self._store.check_open()
            first, *_ = await self._store.backend.push(messages)
            if first is not None:
                raise first
            return
        errors = await _answered(self._coalescer.submit_together(messages))
        if errors[0] is not None:
            raise errors[0]

    def _check_one_act(self, jobs: int, size: int = 0) -> None:
        most = max(self._capabilities.max_batch_bytes, self._capabilities.max_message_bytes)
        if jobs > self._capabilities.max_batch:
            raise InvalidQueueArgument(
                f"{self._capabilities.system} stores at most {self._capabilities.max_batch} jobs in one act, "
                f"not {jobs}: push fewer together"
            )
        if size > most:
            raise UnserializableJob(
                f"{jobs} jobs that go together take {size} bytes; {self._capabilities.system} stores at most "
                f"{most} in one act: push a reference to the data instead"
            )

    async def _push_within(self, connection: object, messages: Sequence[Message]) -> None:
        """The connection is the caller's, and so is the task: nothing of it may outlive the transaction."""
        backend = self._store.backend
        if not isinstance(backend, Transactional):
            raise InvalidQueueArgument("this backend takes no connection=")
        await self._store.call("push", lambda: backend.push_within(connection, messages))

    async def _send(self, batch: Sequence[Message]) -> Sequence[Stored]:
        try:
            answers = await self._store.raw_call(lambda: self._store.backend.push(batch))
        except Exception as error:  # noqa: BLE001 - each caller gets its own error, with its own job's id
            answers = [error] * len(batch)
        return [
            self._store.translated(answer, "push", message.id) if answer is not None else None
            for answer, message in zip(answers, batch, strict=True)
        ]


def _refuse_a_claim(job: Prepared) -> None:
    if job.claim is not None:
        raise InvalidQueueArgument(
            f"job {job.name} is unique, and its key can't be taken inside a caller's transaction: leave "
            "connection= out, or push with unique=False"
        )


def _weight(message: Message) -> int:
    return len(message.payload) + 128


async def _answered(futures: "Sequence[asyncio.Future[None]]") -> list[BaseException | None]:
    """Wait for every answer and return the errors; a cancellation withdraws what was not sent."""
    try:
        await asyncio.wait(futures)
    except asyncio.CancelledError:
        for future in futures:
            future.cancel()
        raise
    return [future.exception() for future in futures]


def _raise_unless_stored(messages: Sequence[Message], errors: Sequence[BaseException | None]) -> None:
    if any(errors):
        pairs = zip(messages, errors, strict=True)
        raise PushManyError(
            [error if isinstance(error, Exception) else message.id for message, error in pairs]
        )
