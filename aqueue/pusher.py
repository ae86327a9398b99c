"""How a job gets into the store: checked, encoded and sealed before anything is sent, then sent together."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from aqueue.coalesce import Coalescer
from aqueue.contract.envelope import SENSITIVE_KEY, encode_envelope
from aqueue.contract.names import check_delay, check_job_id, check_max_attempts, check_queue_name
from aqueue.contract.signing import Keyring
from aqueue.errors import InvalidQueueArgument, PushManyError, UnserializableJob, Unsupported
from aqueue.jobs import job_type
from aqueue.port import Message, Stored, Transactional
from aqueue.store import Store
from aqueue.telemetry import Telemetry

DEFAULT_QUEUE = "default"


class Prepared(msgspec.Struct, frozen=True):
    """A job whose arguments are checked and encoded; only its metadata and its seal are missing."""

    id: str
    name: str
    queue: str
    args: bytes
    pushed_at: float
    delay: float
    max_attempts: int | None
    sensitive: str


class Pusher:
    """Makes messages of jobs and stores them, many callers to a round trip (PUSH-1 to PUSH-10)."""

    def __init__(
        self, store: Store, telemetry: Telemetry, *, keyring: Keyring | None, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._keyring = keyring
        self._clock = clock
        self._capabilities = store.capabilities
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
    ) -> Prepared:
        """Check everything a caller gave and encode the arguments; nothing has been sent (PUSH-1, ARG-3)."""
        declared = job_type(type(job))
        if queue is None:
            queue = declared.queue or DEFAULT_QUEUE
        check_queue_name(queue)
        now = self._clock()
        seconds = check_delay(delay, at, now, self._capabilities.longest_delay)
        attempts = check_max_attempts(max_attempts)
        job_id = os.urandom(16).hex() if id is None else self._chosen_id(id)
        return Prepared(
            job_id,
            declared.name,
            queue,
            declared.codec.encode(job),
            now,
            seconds,
            declared.max_attempts if attempts is None else attempts,
            declared.codec.sensitive,
        )

    async def push(self, job: Prepared, connection: object | None) -> str:
        """Store one job and return its id; a cancellation withdraws it or leaves it to be stored."""
        span = None
        if self._telemetry.active():
            span = self._telemetry.start_push(job.queue, job.id, job.name, len(job.args), job.delay)
        try:
            message = self._seal(job, span.metadata() if span is not None else self._telemetry.metadata())
            if connection is not None:
                await self._push_within(connection, [message])
            elif self._capabilities.immediate:
                self._store.check_open()
                _raise_first(await self._store.backend.push((message,)))
            else:
                await self._coalescer.submit(message)
        except BaseException as error:
            self._telemetry.finish(span, error)
            raise
        if span is not None:
            self._telemetry.finish(span)
        return job.id

    async def push_many(self, jobs: Sequence[Prepared], connection: object | None) -> list[str]:
        """Store many jobs and return their ids in order, or raise `PushManyError` (PUSH-7)."""
        if not jobs:
            self._store.check_open()
            return []
        span = self._telemetry.start_push_many(jobs) if self._telemetry.active() else None
        try:
            messages = [
                self._seal(job, span.metadata(job) if span is not None else self._telemetry.metadata())
                for job in jobs
            ]
            if connection is not None:
                await self._push_within(connection, messages)
            else:
                await self._store_all(messages)
        except BaseException as error:
            self._telemetry.finish(span, error)
            raise
        self._telemetry.finish(span)
        return [job.id for job in jobs]

    async def drain(self) -> None:
        """Wait until every push under way is answered."""
        await self._coalescer.drain()

    def check_connection(self) -> None:
        """Refuse `connection=` where the store can't write inside a caller's transaction (PUSH-8)."""
        if not isinstance(self._store.backend, Transactional):
            raise Unsupported(
                f"{self._capabilities.system} can't push inside a caller's transaction: leave connection= out"
            )

    def _chosen_id(self, id: str) -> str:
        if not self._capabilities.idempotent_push:
            raise Unsupported(f"{self._capabilities.system} can't tell a repeated id: leave id= out")
        return check_job_id(id)

    def _seal(self, job: Prepared, metadata: dict[str, str]) -> Message:
        if job.sensitive:
            metadata = {**metadata, SENSITIVE_KEY: job.sensitive}
        payload = encode_envelope(
            id=job.id,
            name=job.name,
            pushed_at=job.pushed_at,
            args=job.args,
            max_attempts=job.max_attempts,
            metadata=metadata,
        )
        if self._keyring is not None:
            payload = self._keyring.seal(payload)
        if len(payload) > self._capabilities.max_message_bytes:
            raise UnserializableJob(
                f"job {job.name} takes {len(payload)} bytes; {self._capabilities.system} stores at most "
                f"{self._capabilities.max_message_bytes}: push a reference to the data instead"
            )
        return Message(job.id, job.queue, payload, job.delay)

    async def _store_all(self, messages: Sequence[Message]) -> None:
        if self._capabilities.immediate:
            self._store.check_open()
            _raise_unless_stored(messages, await self._store.backend.push(messages))
            return
        futures = [self._coalescer.submit(message) for message in messages]
        try:
            await asyncio.wait(futures) if futures else None
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        _raise_unless_stored(messages, [future.exception() for future in futures])

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


def _weight(message: Message) -> int:
    return len(message.payload) + 128


def _raise_unless_stored(messages: Sequence[Message], errors: Sequence[BaseException | None]) -> None:
    if any(errors):
        pairs = zip(messages, errors, strict=True)
        raise PushManyError(
            [error if isinstance(error, Exception) else message.id for message, error in pairs]
        )


def _raise_first(answers: Sequence[Stored]) -> None:
    if answers[0] is not None:
        raise answers[0]
