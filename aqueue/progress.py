"""How a running job says how far it is, without a write for each word (RESULT-2)."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from aqueue.contract.results import Standing
from aqueue.errors import AqueueError

_PAUSE = 0.4

logger = logging.getLogger("aqueue.queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is: `fraction` from 0 to 1, a text, and when that was, by the store's clock in UTC.

    `state` is "running" until the job ended, then "done" or "failed"; a "failed" one may be put back.
    """

    fraction: float
    text: str
    at: datetime
    state: Literal["running", "done", "failed"]


class Reporter:
    """Writes one delivery's progress, every 0.4 s at most; the last word always, in the end at once."""

    def __init__(
        self,
        write: Callable[[Standing], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self._write = write
        self._spawn = spawn
        self._latest: Standing | None = None
        self._writing: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def tell(self, standing: Standing) -> None:
        """Have this written as soon as it may be, in place of what was told before and isn't written yet."""
        self._latest = standing
        if not self._ended.is_set() and (self._writing is None or self._writing.done()):
            self._writing = self._spawn(self._go_on_writing())
        await asyncio.sleep(0)  # a handler that only computes lets the write begin

    async def finish(self) -> None:
        """Write what isn't written yet, and nothing from then on."""
        self._ended.set()
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _go_on_writing(self) -> None:
        while self._latest is not None:
            latest, self._latest = self._latest, None
            try:
                await self._write(latest)
            except AqueueError as error:
                logger.warning("a job's progress was not written: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._ended.wait()
