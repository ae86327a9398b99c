"""The changes of a job's state that a caller asks for, item by item: one script for each queue in a batch.

Pushes are one script for all queues of a slot, and so for all there are where nothing is partitioned.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.failed_jobs import FailedJobs
from aqueue.backends.redis.failed_queue import encoded, label_of
from aqueue.backends.redis.keys import KeySpace, QueueKeys
from aqueue.backends.redis.link import Argument
from aqueue.backends.redis.replies import Reply
from aqueue.port import Answer, Failing, Message, Releasing, Reserved, Stored, Verdict

Item = TypeVar("Item")
Result = TypeVar("Result")
Place = TypeVar("Place", str, int)

_PUSHING, _SETTLING = 0, 1
"""Lanes: a large push does not hold up a settlement, where there is more than one connection."""


class Transitions:
    """Pushes jobs and settles deliveries. `lease` is in seconds."""

    def __init__(self, client: Client, keys: KeySpace, failed: FailedJobs, *, lease: float) -> None:
        self._client = client
        self._keys = keys
        self._failed = failed
        self._lease = microseconds(lease)

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:
        """Store each message, in order, those whose queues share a slot in one act."""
        if self._client.is_partitioned:
            return await by_place(batch, self._slot_of, self._push)
        return await self._push(self._slot_of(batch[0]), batch) if batch else []

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Remove each job that its delivery still holds."""
        return await by_place(batch, _of_reserved, self._ack)

    async def release(self, batch: Sequence[Releasing]) -> Sequence[Answer]:
        """Put each job back that its delivery still holds."""
        return await by_place(batch, _of_inner, self._release)

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Swap each job that its delivery still holds for its record.

        The queue is registered by the same script; in a cluster the registry is elsewhere and comes first.
        """
        if self._client.is_partitioned:
            await self._failed.register({item.reserved.queue for item in batch})
        return await by_place(batch, _of_inner, self._fail)

    async def extend(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        """Start each lease anew that its delivery still holds."""
        return await by_place(batch, _of_reserved, self._extend)

    async def _push(self, slot: int, batch: Sequence[Message]) -> list[None]:
        jobs: dict[str, list[Argument]] = {}
        for message in batch:
            of_queue = jobs.get(message.queue)
            if of_queue is None:
                of_queue = jobs[message.queue] = []
            delay = message.delay
            of_queue += (message.id, microseconds(delay) if delay else 0, message.payload)
        names: list[bytes] = []
        arguments: list[Argument] = []
        for queue, of_queue in jobs.items():
            keys = self._keys.of(queue)
            names += (keys.pending, keys.delayed, keys.jobs)
            arguments += (keys.channel, len(of_queue) // 3, *of_queue)
        await self._client.run(_PUSH, names, arguments, slot=slot, lane=_PUSHING)
        return [None] * len(batch)

    def _slot_of(self, message: Message) -> int:
        return self._keys.of(message.queue).slot

    async def _ack(self, queue: str, batch: Sequence[Reserved]) -> list[Verdict]:
        keys = self._keys.of(queue)
        receipts = [str(item.receipt) for item in batch]
        return await self._settled(_ACK, keys, (keys.leased, keys.jobs, keys.counts), receipts, len(batch))

    async def _release(self, queue: str, batch: Sequence[Releasing]) -> list[Verdict]:
        keys = self._keys.of(queue)
        arguments: list[Argument] = [keys.channel]
        for item in batch:
            arguments += (str(item.reserved.receipt), microseconds(item.delay), int(item.counted))
        names = (keys.pending, keys.delayed, keys.leased, keys.counts)
        return await self._settled(_RELEASE, keys, names, arguments, len(batch))

    async def _fail(self, queue: str, batch: Sequence[Failing]) -> list[Verdict]:
        keys = self._keys.of(queue)
        arguments: list[Argument] = [queue]
        for item in batch:
            arguments += (str(item.reserved.receipt), label_of(item.record), encoded(item.record))
        names = [keys.leased, keys.jobs, keys.counts, keys.failed, keys.failed_order, keys.failed_names]
        if not self._client.is_partitioned:
            names.append(self._keys.registry)
        return await self._settled(_FAIL, keys, names, arguments, len(batch))

    async def _extend(self, queue: str, batch: Sequence[Reserved]) -> list[Verdict]:
        keys = self._keys.of(queue)
        arguments: list[Argument] = [self._lease, *(str(item.receipt) for item in batch)]
        return await self._settled(_EXTEND, keys, (keys.leased,), arguments, len(batch))

    async def _settled(
        self,
        script: scripts.Script,
        keys: QueueKeys,
        names: Sequence[bytes],
        arguments: Sequence[Argument],
        items: int,
    ) -> list[Verdict]:
        reply = await self._client.run(script, names, arguments, slot=keys.slot, lane=_SETTLING)
        return _verdicts(reply, items)


def microseconds(seconds: float) -> int:
    """Return whole microseconds, never fewer than asked for: a delay is a floor (DELAY-1)."""
    return math.ceil(seconds * 1e6)


def _verdicts(stale: Reply, items: int) -> list[Verdict]:
    """Return a verdict for each item from the positions of the stale ones."""
    verdicts = [Verdict.SETTLED] * items
    assert isinstance(stale, list)
    for position in stale:
        verdicts[position] = Verdict.STALE
    return verdicts


async def by_place(
    batch: Sequence[Item],
    place_of: Callable[[Item], Place],
    send: Callable[[Place, Sequence[Item]], Awaitable[Sequence[Result]]],
) -> Sequence[Result | Exception]:
    """Send the items of each queue or slot together, all at once; an error concerns these items alone."""
    places: dict[Place, list[int]] = {}
    for position, item in enumerate(batch):
        places.setdefault(place_of(item), []).append(position)
    if len(places) == 1:
        return await send(next(iter(places)), batch)
    answers = await asyncio.gather(
        *(send(place, [batch[at] for at in positions]) for place, positions in places.items()),
        return_exceptions=True,
    )
    results: dict[int, Result | Exception] = {}
    for positions, answer in zip(places.values(), answers, strict=True):
        if isinstance(answer, Exception):
            results |= dict.fromkeys(positions, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            results |= dict(zip(positions, answer, strict=True))
    return [results[position] for position in range(len(batch))]


def _of_reserved(reserved: Reserved) -> str:
    return reserved.queue


def _of_inner(item: Releasing | Failing) -> str:
    return item.reserved.queue


_ACK = scripts.load("ack")
_EXTEND = scripts.load("extend")
_FAIL = scripts.load("fail")
_PUSH = scripts.load("push")
_RELEASE = scripts.load("release")
