"""What jobs return, kept for a while, and how far they are (RESULT-1, RESULT-2).

Each is a note by the job's id, written before the job is settled: a crash between the two leaves a job that
runs again and a note that it writes again.
"""

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from aqueue.contract.envelope import Envelope, Malformed
from aqueue.contract.failure import clean_text, error_text, error_type
from aqueue.contract.names import check_job_id, check_seconds
from aqueue.contract.notes import note_key
from aqueue.contract.results import Ending, Standing, ending_in, ending_with, kept_for, standing_in, written
from aqueue.delivery import Delivery
from aqueue.errors import ResultFailed, ResultMissing, ResultTimeout
from aqueue.notes import Change, Decision, Leave, Note, Notes
from aqueue.progress import Progress, Reporter
from aqueue.sealing import CloseEnvelope, OpenEnvelope
from aqueue.store import Store

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

logger = logging.getLogger("aqueue.queue")


class Results:
    """Results and progress of the jobs of a queue's store, in its notes."""

    def __init__(
        self, store: Store, notes: Notes, *, open_envelope: OpenEnvelope, close_envelope: CloseEnvelope
    ) -> None:
        self._spawn = store.spawn
        self._notes = notes
        self._open = open_envelope
        self._close = close_envelope
        self._listening: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    async def get(self, job_id: str, *, timeout: float | timedelta | None = None) -> object:
        """Return what a job returned, as plain JSON, once it has (RESULT-1).

        None looks once; else `timeout` is the seconds, or a timedelta, to wait for it. Raises `ResultFailed`
        for a job that failed finally and has not succeeded since, `ResultMissing` where nothing is kept, or
        nothing that can be read, and its kind `ResultTimeout` where nothing came in time.
        """
        check_job_id(job_id)
        loop = asyncio.get_running_loop()
        end = loop.time() + (0.0 if timeout is None else check_seconds(timeout, "timeout"))
        pause = _FIRST_PAUSE
        async with self._listen(job_id) as arrived:
            while True:
                note = await self._notes.read(*_place("result", job_id))
                if note.value is not None:
                    return self._value(job_id, note.value)
                left = end - loop.time()
                if left <= 0:
                    break
                await _wait(arrived, min(left, random.uniform(pause / 2, pause)))  # noqa: S311 - spreads
                pause = min(2 * pause, _LONGEST_PAUSE)
        if timeout is None:
            raise ResultMissing(
                job_id, "it isn't known, isn't done yet, keeps no result, or its result has expired"
            )
        raise ResultTimeout(job_id, "nothing came in time")

    async def progress(self, job_id: str) -> Progress | None:
        """Return how far a job said it is, None where it said nothing, or none is kept (RESULT-2)."""
        check_job_id(job_id)
        told, ended = await asyncio.gather(
            self._notes.read(*_place("progress", job_id)), self._notes.read(*_place("result", job_id))
        )
        opened = self._opened(told.value)
        standing = standing_in(opened, job_id) if opened is not None else None
        if opened is None or standing is None:
            return None
        ending = self._ending(job_id, ended.value)
        return Progress(
            fraction=standing.fraction,
            text=standing.text,
            at=datetime.fromtimestamp(opened.pushed_at, UTC),
            state="running" if ending is None else "failed" if ending.state == "failed" else "done",
        )

    def watch(self, delivery: Delivery) -> None:
        """Let the handler of a job whose result is kept tell its progress."""
        seconds = kept_for(delivery.envelope.metadata)
        if seconds is not None:
            delivery.report_to(Reporter(partial(self._write_progress, delivery.id, seconds), self._spawn))

    async def keep(self, delivery: Delivery, value: object) -> None:
        """Keep what a handler returned, if its job's results are kept; the settlement comes after."""
        seconds = kept_for(delivery.envelope.metadata)
        if seconds is None:
            return
        ending = ending_with(value)
        if ending.state == "unfit":
            logger.warning("the result of %r is not kept: %s", delivery, ending.error)
        await self._end(delivery, ending, seconds)

    async def keep_failure(self, delivery: Delivery, reason: str, error: BaseException | None) -> None:
        """Keep that a job failed, unless it has succeeded before: then that is what is told."""
        seconds = kept_for(delivery.envelope.metadata)
        if seconds is None:
            return
        ending = Ending(
            "failed",
            reason=clean_text(reason),
            error_type=error_type(error) if error is not None else "",
            error=error_text(error) if error is not None else "",
        )
        await self._end(delivery, ending, seconds)

    async def _end(self, delivery: Delivery, ending: Ending, seconds: float) -> None:
        await delivery.finish_reporting()

        def decide(note: Note) -> Decision[None]:
            before = self._ending(delivery.id, note.value) if ending.state == "failed" else None
            if before is not None and before.state != "failed":
                return Leave(None)
            return self._change(ending, delivery.id, note, seconds)

        await self._notes.change(*_place("result", delivery.id), decide)
        for event in self._listening.get(delivery.id, ()):
            event.set()

    async def _write_progress(self, id: str, seconds: float, standing: Standing) -> None:
        def decide(note: Note) -> Decision[None]:
            before = self._standing(id, note.value)
            if before is not None and before.attempt > standing.attempt:
                return Leave(None)
            return self._change(standing, id, note, seconds)

        await self._notes.change(*_place("progress", id), decide)

    def _change(self, kept: Ending | Standing, id: str, note: Note, seconds: float) -> Decision[None]:
        value = self._close(written(kept, id=id, now=max(0.0, note.now)))
        return Change(value=value, seconds=seconds, result=None)

    def _value(self, job_id: str, value: bytes) -> object:
        ending = self._ending(job_id, value)
        if ending is None:
            raise ResultMissing(job_id, "what is kept of it can't be read, or its seal is not ours")
        if ending.state == "failed":
            raise ResultFailed(job_id, reason=ending.reason, error_type=ending.error_type, error=ending.error)
        if ending.state == "unfit":
            raise ResultMissing(job_id, f"it has no wire form: {ending.error}")
        result: object = msgspec.json.decode(ending.value)
        return result

    def _ending(self, id: str, value: bytes | None) -> Ending | None:
        opened = self._opened(value)
        return ending_in(opened, id) if opened is not None else None

    def _standing(self, id: str, value: bytes | None) -> Standing | None:
        opened = self._opened(value)
        return standing_in(opened, id) if opened is not None else None

    def _opened(self, value: bytes | None) -> Envelope | None:
        if value is None:
            return None
        with contextlib.suppress(Malformed):
            return self._open(value)
        return None

    @asynccontextmanager
    async def _listen(self, job_id: str) -> AsyncIterator[asyncio.Event]:
        """Hear at once of a result that this queue object writes; of others' a look tells."""
        event = asyncio.Event()
        self._listening[job_id].add(event)
        try:
            yield event
        finally:
            self._listening[job_id].discard(event)
            if not self._listening[job_id]:
                del self._listening[job_id]


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()


def _place(kind: str, job_id: str) -> tuple[str, str]:
    """Return the queue and the key of a note; they lie beside 256 queues of their own, as limits do."""
    key = note_key(kind, job_id)
    return f"results-{note_key('result', job_id)[-2:]}", key
