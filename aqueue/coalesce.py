"""Many callers, one round trip (PUSH-6).

While one batch is under way, later items gather; when it is answered they go together in the next one.
There is no timer: an idle coalescer sends at the end of the loop turn that asked. The batch runs in a task
of its own, so a caller that is cancelled abandons only its waiting, and never the connection or the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from aqueue.errors import OutcomeUnknown

Item = TypeVar("Item")
Result = TypeVar("Result")

Receive: TypeAlias = Callable[[Result | Exception], None]
"""Is told what became of an item, by a plain call that must not raise."""

_Entry: TypeAlias = tuple[Item, asyncio.Future[Result] | None, Receive[Result] | None]
"""An item, and who is told: its future or its receiver."""


class Coalescer(Generic[Item, Result]):
    """Sends items in bounded batches, one batch at a time, in the order they were submitted.

    `send` answers with one result or exception per item; what it raises reaches every item of the batch.
    With `withdraws=False` an item is sent even if nobody waits for its answer any more. Without `weigh` a
    batch is bounded in items alone.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        max_items: int,
        max_weight: int = 0,
        weigh: Callable[[Item], int] | None = None,
        withdraws: bool = True,
    ) -> None:
        self._send = send
        self._max_items = max_items
        self._max_weight = max_weight
        self._weigh = weigh
        self._withdraws = withdraws
        self._waiting: deque[_Entry[Item, Result]] = deque()
        self._together: dict[asyncio.Future[Result], int] = {}
        self._flight: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> "asyncio.Future[Result]":
        """Queue the item and return the future of its result.

        Cancelling the future before its batch is sent withdraws the item, where items can be withdrawn;
        afterwards it changes nothing.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future, None))
        if self._flight is None:
            self._take_off()
        return future

    def send(self, item: Item, receive: Receive[Result]) -> None:
        """Queue an item that is never withdrawn, and have its result told where a future costs too much."""
        self._waiting.append((item, None, receive))
        if self._flight is None:
            self._take_off()

    def submit_together(self, items: Sequence[Item]) -> "list[asyncio.Future[Result]]":
        """Queue 1 to `max_items` items that travel in one batch, whatever else does (TOPIC-1).

        They are withdrawn together as well: who cancels one of their futures cancels all, at once.
        """
        futures = [self.submit(item) for item in items]
        self._together[futures[0]] = len(futures)
        return futures

    async def drain(self) -> None:
        """Wait until nothing is waiting or under way."""
        while self._flight is not None:
            await asyncio.wait({self._flight})

    def _take_off(self) -> None:
        self._flight = asyncio.get_running_loop().create_task(self._fly())

    async def _fly(self) -> None:
        batch: list[_Entry[Item, Result]] = []
        try:
            while batch := self._next_batch():
                _tell(batch, await self._results([entry[0] for entry in batch]))
        finally:
            self._flight = None
            # Only a loop that is shutting down cancels this task: nobody may be left waiting for ever.
            for _, future, receive in (*batch, *self._waiting):
                if future is not None:
                    future.cancel()
                elif receive is not None:
                    receive(OutcomeUnknown("the event loop ended before the store answered"))

    async def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            results = await self._send(items)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait for it
            return [error] * len(items)
        if len(results) != len(items):
            return [OutcomeUnknown("the backend did not answer for each item")] * len(items)
        return results

    def _next_batch(self) -> list[_Entry[Item, Result]]:
        waiting, weigh = self._waiting, self._weigh
        batch: list[_Entry[Item, Result]] = []
        weight = 0
        while waiting and len(batch) < self._max_items:
            item, future, _ = waiting[0]
            if self._together and future in self._together:
                taken = self._take_together(future, room=self._max_items - len(batch), weight=weight)
                if taken is None:
                    break
                batch += taken
                weight += self._weight_of(taken)
                continue
            if self._withdraws and future is not None and future.cancelled():
                waiting.popleft()
                continue
            if weigh is not None:
                weight += weigh(item)
                if batch and weight > self._max_weight:
                    break
            batch.append(waiting.popleft())
        return batch

    def _take_together(
        self, first: "asyncio.Future[Result]", *, room: int, weight: int
    ) -> list[_Entry[Item, Result]] | None:
        """Take the group at the head whole, as nothing if it was withdrawn; None if it has to wait.

        A group too heavy for any batch goes in one of its own.
        """
        count = self._together[first]
        group = [self._waiting[place] for place in range(count)]
        is_withdrawn = self._withdraws and first.cancelled()
        heavy = self._weigh is not None and weight + self._weight_of(group) > self._max_weight
        if not is_withdrawn and (count > room or (weight > 0 and heavy)):
            return None
        del self._together[first]
        for _ in range(count):
            self._waiting.popleft()
        return [] if is_withdrawn else group

    def _weight_of(self, entries: Sequence[_Entry[Item, Result]]) -> int:
        return sum(self._weigh(entry[0]) for entry in entries) if self._weigh is not None else 0


def _tell(batch: Sequence[_Entry[Item, Result]], results: Sequence[Result | Exception]) -> None:
    for (_, future, receive), result in zip(batch, results, strict=True):
        if receive is not None:
            receive(result)
        elif future is None or future.done():
            continue
        elif isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
