"""What there has to be in the broker, declared before it is used.

A declaration is made once a connection: declaring again changes nothing, so it is safe whenever in doubt.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from pamqp import base

from aqueue.backends.rabbitmq.asking import Asking, counted
from aqueue.backends.rabbitmq.dialling import Line
from aqueue.backends.rabbitmq.names import Names
from aqueue.backends.rabbitmq.troubles import dropping
from aqueue.backends.rabbitmq.turns import turn

_MOURNING = 0.5


class Declarations:
    """Declares queues and ladders on one connection, and asks about them."""

    def __init__(self, line: Line, names: Names) -> None:
        self._line = line
        self._names = names
        self._asking: Asking | None = None
        self._queues: set[str] = set()
        self._ladders: dict[str, int] = {}
        self._missed: dict[str, float] = {}
        self._one_at_a_time = asyncio.Lock()

    async def ensure(self, queues: Iterable[str]) -> None:
        """Declare the queues with these names that this connection has not declared yet."""
        await self._renewed()
        unknown = [name for name in queues if name not in self._queues]
        if unknown:
            await self.declare(unknown)

    async def declare(self, queues: Sequence[str]) -> list[int]:
        """Declare the queues with these names and return how many messages each has ready."""
        if not queues:
            return []
        await self._mourn(queues)
        asking = await self._renewed()
        async with self._alone(asking):
            unknown = [name for name in queues if name not in self._queues]
            requests = [self._names.queue(name) for name in queues]
            replies = await self._made(asking, unknown, requests, f"declaring {queues[0]!r}")
            self._queues.update(queues)
        return counted(replies)

    async def ensure_ladder(self, queue: str, seconds: int) -> None:
        """Declare what a delay of so many seconds on this queue goes through."""
        asking = await self._renewed()
        if self._ladders.get(queue, 0) >= seconds.bit_length():
            return
        ready = self._names.ready(queue)
        await self._mourn([ready])
        async with self._alone(asking):
            requests = self._names.ladder(queue, seconds)
            await self._made(asking, [ready], requests, f"declaring the delays of {queue!r}")
            self._ladders[queue] = seconds.bit_length()
            self._queues.add(ready)

    def forget(self, queue: str) -> None:
        """Declare this queue anew when it is used next, in a moment: somebody seems to have deleted it."""
        self._ladders.pop(queue, None)
        for name in (self._names.ready(queue), self._names.failed(queue)):
            self._queues.discard(name)
            self._missed[name] = asyncio.get_running_loop().time()

    async def counts(self, names: Sequence[str]) -> list[int]:
        """Return how many messages these queues have ready, up to the first that isn't there."""
        return await (await self._renewed()).counts(names)

    async def purge(self, names: Sequence[str]) -> int:
        """Throw away what these queues have ready, in this order; return how many messages that were."""
        return await (await self._renewed()).purge(names)

    @asynccontextmanager
    async def _alone(self, asking: Asking) -> AsyncIterator[None]:
        with dropping(asking.link):
            async with self._one_at_a_time:
                yield

    async def _made(
        self, asking: Asking, unknown: Sequence[str], requests: Sequence[base.Frame], what: str
    ) -> list[base.Frame]:
        if not unknown or not self._names.take_turns:
            return await asking.ask(requests, what)
        async with turn(asking.link, unknown):
            return await asking.ask(requests, what)

    async def _mourn(self, queues: Sequence[str]) -> None:
        """Let a while pass before a deleted queue is made again, so that the broker has told its consumers.

        Consumers of a quorum queue that is made again at once are the new one's, and are sent nothing of it.
        """
        now = asyncio.get_running_loop().time()
        longest = max(self._missed.pop(name, now - _MOURNING) for name in queues)
        if longest + _MOURNING > now:
            await asyncio.sleep(longest + _MOURNING - now)

    async def _renewed(self) -> Asking:
        """Return what asks on the connection there is; what was declared on an older one is in doubt."""
        link = await self._line.link()
        if self._asking is None or link is not self._asking.link:
            self._asking = Asking(link)
            self._queues, self._ladders = set(), {}
        return self._asking
