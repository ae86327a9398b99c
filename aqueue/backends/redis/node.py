"""One server, reached over a few shared links that are made when they are first needed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from redis import exceptions as driver

from aqueue.backends.redis.dialling import Address, Dialler
from aqueue.backends.redis.link import Link, Unsent
from aqueue.port import NotDispatched

_INSPECT_TIMEOUT = 2.0

Find = Callable[[], Awaitable[Address]]
Inspect = Callable[[Link, Address], Awaitable[None]]


class Node:
    """The links to one server, one for each lane.

    `find` says where the server is, each time before a link is made; `inspect` looks at a link just made and
    raises where it is not to be used. `address` is where the server was last found.
    """

    def __init__(self, dialler: Dialler, lanes: int, find: Find, inspect: Inspect | None = None) -> None:
        self._dialler = dialler
        self._find = find
        self._inspect = inspect
        self.address: Address | None = None
        self._links: list[Link | None] = [None] * lanes
        self._dialling: dict[int, asyncio.Task[Link]] = {}

    async def link(self, lane: int) -> Link:
        """Return the lane's link, made anew where it was lost; raise `NotDispatched` where that fails.

        Callers that come while one is being made share it; cancelling one of them does not stop it.
        """
        lane %= len(self._links)
        link = self._links[lane]
        if link is not None and link.is_open:
            return link
        dialling = self._dialling.get(lane)
        if dialling is None:
            dialling = self._dialling[lane] = asyncio.create_task(self._made(lane))
            dialling.add_done_callback(_read)
        try:
            return await asyncio.shield(dialling)
        except (OSError, Unsent, driver.RedisError) as error:
            raise NotDispatched(f"connecting failed: {str(error) or type(error).__name__}") from error

    def drop(self) -> None:
        """Drop every link at once; the next caller makes a new one."""
        for link in self._links:
            if link is not None:
                link.abort()

    async def aclose(self) -> None:
        """Close every link and stop making any."""
        for dialling in list(self._dialling.values()):
            dialling.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await dialling
        await asyncio.gather(*(link.aclose() for link in self._links if link is not None))

    async def _made(self, lane: int) -> Link:
        try:
            self.address = address = await self._find()
            link = await self._dialler.dial(address)
            if self._inspect is not None:
                await self._inspected(link, address, self._inspect)
            self._links[lane] = link
            return link
        finally:
            del self._dialling[lane]

    async def _inspected(self, link: Link, address: Address, inspect: Inspect) -> None:
        try:
            async with asyncio.timeout(_INSPECT_TIMEOUT):
                await inspect(link, address)
        except BaseException:
            link.abort()
            raise


def _read(dialling: "asyncio.Task[Link]") -> None:
    """Everybody who waited for it may have been cancelled."""
    if not dialling.cancelled():
        dialling.exception()
