"""Many callers, one round trip (PUSH-6).

While one batch is under way, later items gather; when it is answered they go together in the next one.
There is no timer: an idle coalescer sends at the end of the loop turn that asked. The batch runs in a task
of its own, so a caller that is cancelled abandons only its waiting, and never the connection or the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from aqueue.errors import OutcomeUnknown

Item = TypeVar("Item")
Result = TypeVar("Result")


class Coalescer(Generic[Item, Result]):
    """Sends items in bounded batches, one batch at a time, in the order they were submitted.

    `send` answers with one result or exception per item; what it raises reaches every item of the batch.
    With `withdraws=False` an item is sent even if nobody waits for its answer any more.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        max_items: int,
        max_weight: int,
        weigh: Callable[[Item], int],
        withdraws: bool = True,
    ) -> None:
        self._send = send
        self._max_items = max_items
        self._max_weight = max_weight
        self._weigh = weigh
        self._withdraws = withdraws
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._flight: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> "asyncio.Future[Result]":
        """Queue the item and return the future of its result.

        Cancelling the future before its batch is sent withdraws the item, where items can be withdrawn;
        afterwards it changes nothing.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if self._flight is None:
            self._flight = loop.create_task(self._fly())
        return future

    async def drain(self) -> None:
        """Wait until nothing is waiting or under way."""
        while self._flight is not None:
            await asyncio.wait({self._flight})

    async def _fly(self) -> None:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        try:
            while batch := self._next_batch():
                _settle(batch, await self._results([item for item, _ in batch]))
        finally:
            self._flight = None
            # Only a loop that is shutting down cancels this task: nobody may be left waiting for ever.
            for _, future in (*batch, *self._waiting):
                future.cancel()

    async def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            results = await self._send(items)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait for it
            return [error] * len(items)
        if len(results) != len(items):
            return [OutcomeUnknown("the backend did not answer for each item")] * len(items)
        return results

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        weight = 0
        while self._waiting and len(batch) < self._max_items:
            item, future = self._waiting[0]
            if self._withdraws and future.cancelled():
                self._waiting.popleft()
                continue
            weight += self._weigh(item)
            if batch and weight > self._max_weight:
                break
            batch.append(self._waiting.popleft())
        return batch


def _settle(
    batch: Sequence[tuple[Item, "asyncio.Future[Result]"]], results: Sequence[Result | Exception]
) -> None:
    for (_, future), result in zip(batch, results, strict=True):
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
