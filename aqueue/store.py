"""The one door to a backend: every call has an upper time, a task of its own and its errors translated.

What a driver raises says, through `Backend.faults`, whether the call was never sent, refused, or left
unknown (PUSH-4). It is decided here, once, and nothing is ever sent again from here.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio

from aqueue.errors import AqueueError, ConnectionFailed, OutcomeUnknown, QueueClosed, StoreError, StoreRefused
from aqueue.port import Backend, Fault, NotDispatched, Refused
from aqueue.telemetry import Telemetry

T = TypeVar("T")

_TROUBLE: dict[Fault, tuple[type[StoreError], str]] = {
    Fault.NEVER_SENT: (ConnectionFailed, "was never sent"),
    Fault.REFUSED: (StoreRefused, "was refused"),
    Fault.UNKNOWN: (OutcomeUnknown, "may or may not have been applied"),
}


class Store:
    """A backend, reached through its door. Owns the tasks that outlive a cancelled caller."""

    def __init__(self, backend: Backend, telemetry: Telemetry, *, call_timeout: float) -> None:
        self.backend = backend
        self.capabilities = backend.capabilities
        self._telemetry = telemetry
        self._call_timeout = call_timeout
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_open = False

    async def open(self) -> None:
        """Open the backend in a task of ours; a cancelled caller leaves nothing half open."""
        self.is_open = True
        try:
            await self.run("open", self.backend.open)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Let what is under way end, within the call timeout, then close the backend.

        Cleaning up may start more work, a give-back after a cancelled pop for one, so the door stays open
        until nothing is left.
        """
        with contextlib.suppress(TimeoutError):  # a store that no longer answers keeps nobody from leaving
            async with asyncio.timeout(self._call_timeout):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        self.is_open = False
        await self.backend.aclose()

    def check_open(self) -> None:
        """Raise `QueueClosed` before `open` and after `aclose`."""
        if not self.is_open:
            raise QueueClosed("the queue is not open: use `async with connect(...) as queue`, or open() it")

    async def call(self, verb: str, call: Callable[[], Awaitable[T]], *, longer: float = 0.0) -> T:
        """Make one backend call in the current task, which must be one of ours (PUSH-11, CALL-1).

        `longer` seconds are added to the upper time for a declared wait. Raises a `StoreError`.
        """
        try:
            return await self.raw_call(call, longer=longer)
        except Exception as error:
            translated = self.translated(error, verb)
            if translated is error:
                raise
            raise translated from translated.__cause__

    async def raw_call(self, call: Callable[[], Awaitable[T]], *, longer: float = 0.0) -> T:
        """Make one backend call as `call` does, its errors left as the driver raised them."""
        self.check_open()
        if self.capabilities.immediate:
            return await call()
        with self._telemetry.suppressed():
            async with asyncio.timeout(self._call_timeout + longer):
                return await call()

    async def run(self, verb: str, call: Callable[[], Awaitable[T]], *, longer: float = 0.0) -> T:
        """Make one backend call in a task of its own; cancelling the caller abandons only the waiting."""
        if self.capabilities.immediate:
            return await self.call(verb, call)
        return await asyncio.shield(self.spawn(self.call(verb, call, longer=longer)))

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start work that is finished even if nobody waits for it; `aclose` does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    async def run_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work that must be finished once begun; cancelling the caller abandons only the waiting."""
        return await asyncio.shield(self.spawn(work))

    async def see_through(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for cleaning work although the caller was cancelled, for at most the call timeout (POP-6)."""
        task = self.spawn(work)
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task}, timeout=self._call_timeout)

    def translated(self, error: Exception, verb: str, job_id: str | None = None) -> Exception:
        """Return what the driver's error proves, as one of our errors; leave what is not the driver's."""
        fault = self._fault_of(error)
        if fault is None:
            return error
        kind, what = _TROUBLE[fault]
        of_job = f" of job {job_id}" if job_id is not None else ""
        # A driver's own words may quote data or a URL; what a backend says itself doesn't.
        why = str(error) if isinstance(error, NotDispatched | Refused) else ""
        translated = kind(
            f"{verb}{of_job} on {self.capabilities.system} {what}: {why or type(error).__name__}",
            job_id=job_id,
        )
        translated.__cause__ = error.__cause__ if isinstance(error, NotDispatched | Refused) else error
        return translated

    def _fault_of(self, error: Exception) -> Fault | None:
        if isinstance(error, AqueueError):
            return None
        if isinstance(error, NotDispatched):
            return Fault.NEVER_SENT
        if isinstance(error, Refused):
            return Fault.REFUSED
        faults = self.backend.faults
        for kind in type(error).__mro__:
            if kind in faults:
                return faults[kind]
        return Fault.UNKNOWN if isinstance(error, TimeoutError) else None

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller that would have read it was cancelled
