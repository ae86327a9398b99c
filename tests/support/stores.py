"""A backend around a real one: it counts calls, suspends where a real store would, and fails on command."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from aqueue.port import (
    Answer,
    Backend,
    Clearable,
    FailedRecord,
    Failing,
    Fault,
    KeepsFailed,
    KeepsNotes,
    Message,
    Note,
    NoteKey,
    Noting,
    Position,
    QueueStats,
    Releasing,
    Reserved,
    Stored,
)

T = TypeVar("T")


class Unreachable(ConnectionError):
    """The made-up driver's error for a call that was never sent."""


class CutOff(ConnectionError):
    """The made-up driver's error for a call whose reply was lost."""


class WholeBackend(Backend, Clearable, KeepsFailed, KeepsNotes, Protocol):
    """A backend with everything that memory and SQLite can do."""


@dataclass
class _Trouble:
    """What a verb does instead of working: `times` times, then it works again; None is until `recover`."""

    error: type[Exception] | None
    is_applied: bool
    times: int | None


class Wrapper:
    """Passes every verb on to a real backend, unless told to be in trouble.

    `calls` counts calls by verb, `sizes` holds how many items each carried. A wrapper suspends, so what is
    coalesced for networked stores is coalesced here too.
    """

    def __init__(self, inner: WholeBackend) -> None:
        self._inner = inner
        self._troubles: dict[str, _Trouble] = {}
        self._mended = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.sizes: defaultdict[str, list[int]] = defaultdict(list)
        self.batches: defaultdict[str, list[list[str]]] = defaultdict(list)
        self.capabilities = replace(inner.capabilities, immediate=False)
        self.faults = {**inner.faults, Unreachable: Fault.NEVER_SENT, CutOff: Fault.UNKNOWN}

    def break_down(self, *verbs: str, error: type[Exception] = Unreachable, times: int | None = None) -> None:
        """Let these verbs raise without doing anything."""
        self._troubles.update({verb: _Trouble(error, False, times) for verb in verbs})

    def lose_reply(self, *verbs: str, times: int | None = None) -> None:
        """Let these verbs do their work and then raise."""
        self._troubles.update({verb: _Trouble(CutOff, True, times) for verb in verbs})

    def hang(self, *verbs: str) -> None:
        """Let these verbs never answer, until `recover`."""
        self._mended.clear()
        self._troubles.update({verb: _Trouble(None, False, None) for verb in verbs})

    def recover(self) -> None:
        """Let everything work again; what hangs goes on."""
        self._troubles.clear()
        self._mended.set()

    async def open(self) -> None:
        await self._inner.open()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def migrate(self) -> None:
        await self._inner.migrate()

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        return await self._around("push", lambda: self._inner.push(batch), [item.id for item in batch])

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return await self._around("pop", lambda: self._inner.pop(queues, limit), [""] * limit)

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        await self._around("wait", lambda: self._inner.wait(queues, seconds), [])

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return await self._around("ack", lambda: self._inner.ack(batch), [item.id for item in batch])

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        ids = [item.reserved.id for item in batch]
        return await self._around("release", lambda: self._inner.release(batch), ids)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        ids = [item.reserved.id for item in batch]
        return await self._around("fail", lambda: self._inner.fail(batch), ids)

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return await self._around("extend", lambda: self._inner.extend(batch), [item.id for item in batch])

    async def stats(self, queue: str) -> QueueStats:
        return await self._around("stats", lambda: self._inner.stats(queue), [])

    async def clear(self, queue: str) -> int:
        return await self._around("clear", lambda: self._inner.clear(queue), [])

    async def keep(self, batch: Sequence[FailedRecord]) -> None:
        await self._around("keep", lambda: self._inner.keep(batch), [record.id for record in batch])

    async def failed_page(
        self, *, queue: str | None, job: str | None, after: Position | None, limit: int
    ) -> Sequence[FailedRecord]:
        return await self._inner.failed_page(queue=queue, job=job, after=after, limit=limit)

    async def failed_get(self, id: str) -> FailedRecord | None:
        return await self._inner.failed_get(id)

    async def failed_count(self, *, queue: str | None, job: str | None) -> int:
        return await self._inner.failed_count(queue=queue, job=job)

    async def failed_retry(self, record: FailedRecord, message: Message) -> bool:
        return await self._inner.failed_retry(record, message)

    async def failed_discard(self, record: FailedRecord) -> bool:
        return await self._inner.failed_discard(record)

    async def failed_purge(
        self, *, queue: str | None, older_than: float | None, keep: int | None, limit: int
    ) -> int:
        return await self._inner.failed_purge(queue=queue, older_than=older_than, keep=keep, limit=limit)

    async def read_notes(self, keys: Sequence[NoteKey]) -> Sequence[Note | Exception]:
        return await self._around("read_notes", lambda: self._inner.read_notes(keys), [at.key for at in keys])

    async def write_notes(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        keys = [noting.at.key for noting in batch]
        return await self._around("write_notes", lambda: self._inner.write_notes(batch), keys)

    async def _around(self, verb: str, call: Callable[[], Awaitable[T]], ids: list[str]) -> T:
        self.calls[verb] += 1
        self.sizes[verb].append(len(ids))
        self.batches[verb].append(ids)
        trouble = self._take_trouble(verb)
        await asyncio.sleep(0)
        if trouble is None:
            answer = await call()
            await asyncio.sleep(0)
            return answer
        if trouble.error is None:
            await self._mended.wait()
            return await call()
        if trouble.is_applied:
            await call()
            raise trouble.error(f"the reply to {verb} never came")
        raise trouble.error(f"{verb} never left")

    def _take_trouble(self, verb: str) -> _Trouble | None:
        trouble = self._troubles.get(verb)
        if trouble is None or trouble.times is None:
            return trouble
        trouble.times -= 1
        if trouble.times == 0:
            del self._troubles[verb]
        return trouble
