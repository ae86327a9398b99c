"""Work that goes on whether or not anybody waits for it, until the connection is closed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Errands:
    """Tasks of our own, kept from being forgotten while they run."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def send(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start some work."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    async def through(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work that must be finished once begun; cancelling the caller abandons only the waiting."""
        return await asyncio.shield(self.send(work))

    async def back(self, seconds: float) -> None:
        """Wait for all of them, for so long at most."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def call_off(self) -> None:
        """Cancel what is left."""
        for task in set(self._tasks):
            task.cancel()
            await asyncio.wait({task})

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller that would have read it was cancelled
