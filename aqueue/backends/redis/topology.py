"""Where the queues live: on one server, on whichever server Sentinel calls the master, or over a cluster.

A cluster is in `cluster.py`; here is what a topology is asked, and the two kinds that have one node.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from redis import exceptions as driver

from aqueue.backends.redis.dialling import Address, Dialler
from aqueue.backends.redis.link import Link, Unsent, packed
from aqueue.backends.redis.node import Node

_SENTINEL_TIMEOUT = 1.0


class Topology(Protocol):
    """Which node serves a slot, and what to make of a server's word that it is another."""

    is_partitioned: bool
    """Whether two queues may live on different nodes."""

    async def node(self, slot: int) -> Node:
        """Return the node that serves the slot, as far as is known; raise `NotDispatched` if none is."""

    async def any_node(self) -> Node:
        """Return a node that answers for them all; raise `NotDispatched` if none does."""

    async def primaries(self) -> Sequence[Node]:
        """Return the nodes that hold all keys between them; raise `NotDispatched` if they can't be told."""

    async def lost(self, slot: int) -> bool:
        """Note that the slot's node can't be reached; say whether another one serves it now."""

    def refused(self, error: driver.RedisError, by: Node) -> Node | None:
        """Return the node that takes this one command instead, where the error names one (ASK)."""

    def is_passing(self, error: driver.RedisError) -> bool:
        """Note the refusal; say whether the same command may be accepted a moment later, or elsewhere."""

    async def address(self) -> Address:
        """Return a server that hears of every arrival."""

    async def aclose(self) -> None:
        """Close every connection."""


class SingleServer:
    """One server at one address."""

    is_partitioned = False

    def __init__(self, address: Address, dialler: Dialler, lanes: int) -> None:
        self._address = address
        self._node = Node(dialler, lanes, self.address)

    async def node(self, slot: int) -> Node:
        """There is one."""
        return self._node

    async def any_node(self) -> Node:
        """There is one."""
        return self._node

    async def primaries(self) -> Sequence[Node]:
        """There is one."""
        return [self._node]

    async def lost(self, slot: int) -> bool:
        """There is no other."""
        return False

    def refused(self, error: driver.RedisError, by: Node) -> Node | None:
        """There is no other."""
        return None

    def is_passing(self, error: driver.RedisError) -> bool:
        """What one server refuses is for the caller to know."""
        return False

    async def address(self) -> Address:
        """There is one."""
        return self._address

    async def aclose(self) -> None:
        """Close the server's links."""
        await self._node.aclose()


class SentinelMaster:
    """The master of a service, asked of the sentinels before each connection is made."""

    is_partitioned = False

    def __init__(
        self,
        sentinels: Sequence[Address],
        service: str,
        *,
        dialler: Dialler,
        sentinel_dialler: Dialler,
        lanes: int,
    ) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._sentinel_dialler = sentinel_dialler
        self._node = Node(dialler, lanes, self.address, _check_is_master)

    async def node(self, slot: int) -> Node:
        """There is one master; its links find out who it is."""
        return self._node

    async def any_node(self) -> Node:
        """There is one master."""
        return self._node

    async def primaries(self) -> Sequence[Node]:
        """There is one master."""
        return [self._node]

    async def lost(self, slot: int) -> bool:
        """Whoever is the master now was asked for just before."""
        return False

    def refused(self, error: driver.RedisError, by: Node) -> Node | None:
        """Sentinel redirects nobody."""
        return None

    def is_passing(self, error: driver.RedisError) -> bool:
        """A replica refuses writes: it was the master until a failover."""
        if not isinstance(error, driver.ReadOnlyError | driver.MasterDownError):
            return False
        self._node.drop()
        return True

    async def address(self) -> Address:
        """Ask the sentinels in turn, the one that answered last first."""
        trouble: Exception = driver.ConnectionError("no sentinel to ask")
        for sentinel in tuple(self._sentinels):
            try:
                master = await self._asked(sentinel)
            except (OSError, Unsent, driver.RedisError) as error:
                trouble = error
                continue
            if master is not None:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                return master
            trouble = driver.ConnectionError(f"the sentinels know no master of {self._service!r}")
        raise trouble

    async def aclose(self) -> None:
        """Close the master's links."""
        await self._node.aclose()

    async def _asked(self, sentinel: Address) -> Address | None:
        async with asyncio.timeout(_SENTINEL_TIMEOUT):
            link = await self._sentinel_dialler.dial(sentinel)
            try:
                reply = await link.call(packed(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)))
            finally:
                link.abort()
        if not isinstance(reply, list):
            return None
        host, port = reply
        return Address(host.decode(), int(port))


async def _check_is_master(link: Link, address: Address) -> None:
    """A sentinel may be the last to hear of a failover."""
    with contextlib.suppress(driver.NoPermissionError):
        reply = await link.call(packed(("ROLE",)))
        if isinstance(reply, list) and reply[0] != b"master":
            raise driver.ConnectionError(f"{address} is not the master yet")
