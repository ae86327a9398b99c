"""A cluster: which node serves which slot, learned from the nodes and corrected by what they refuse.

Redirects are followed by the caller (`client.py`); here they only change the map. An ASK concerns one command
and changes nothing.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from redis import exceptions as driver

from aqueue.backends.redis.dialling import Address, Dialler
from aqueue.backends.redis.link import Unsent, packed
from aqueue.backends.redis.node import Node
from aqueue.backends.redis.replies import Reply
from aqueue.port import NotDispatched

_MAP_TIMEOUT = 2.0
_PASSING = (driver.TryAgainError, driver.ClusterDownError, driver.BusyLoadingError, driver.ReadOnlyError)


class Cluster:
    """The nodes of a cluster. The map of slots is read when it is first needed and when it proved wrong."""

    is_partitioned = True

    def __init__(self, seeds: Sequence[Address], dialler: Dialler, lanes: int) -> None:
        self._seeds = tuple(seeds)
        self._dialler = dialler
        self._lanes = lanes
        self._nodes: dict[Address, Node] = {}
        self._slots: dict[int, Address] = {}
        self._is_doubtful = True
        self._answered: Address | None = None
        self._reading: asyncio.Task[None] | None = None

    async def node(self, slot: int) -> Node:
        """Return the slot's node by the map, which is read anew first where it is in doubt."""
        if self._is_doubtful:
            await self._read_map()
        address = self._slots.get(slot)
        if address is None:
            self._is_doubtful = True
            raise NotDispatched(f"no node of the cluster serves slot {slot}") from driver.ClusterDownError(
                "CLUSTERDOWN Hash slot not served"
            )
        return self._at(address)

    async def any_node(self) -> Node:
        """Return the node that answered last."""
        return self._at(await self.address())

    async def primaries(self) -> Sequence[Node]:
        """Return the nodes of the map, which is read anew first."""
        self._is_doubtful = True
        await self._read_map()
        return [self._at(address) for address in dict.fromkeys(self._slots.values())]

    async def lost(self, slot: int) -> bool:
        """Read the map anew; say whether it names another node for the slot."""
        before = self._slots.get(slot)
        self._is_doubtful = True
        await self._read_map()
        return self._slots.get(slot) != before

    def refused(self, error: driver.RedisError, by: Node) -> Node | None:
        """Follow an ASK, and a MOVED into the map."""
        if not isinstance(error, driver.AskError):
            return None
        address = _address(error.host, error.port, by.address)
        if isinstance(error, driver.MovedError):
            self._slots[error.slot_id] = address
        return self._at(address)

    def is_passing(self, error: driver.RedisError) -> bool:
        """A slot on the move, a failover or a restart is over in a while; the map may be another then."""
        is_passing = isinstance(error, _PASSING)
        if isinstance(error, driver.ConnectionError) or (
            is_passing and not isinstance(error, driver.TryAgainError)
        ):
            self._is_doubtful = True
        return is_passing

    async def address(self) -> Address:
        """Return a node that has just answered: what is published on one is heard on all."""
        self._is_doubtful = True
        await self._read_map()
        assert self._answered is not None
        return self._answered

    async def aclose(self) -> None:
        """Close the links to every node."""
        if self._reading is not None:
            self._reading.cancel()
        for node in self._nodes.values():
            await node.aclose()

    def _at(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(self._dialler, self._lanes, partial(_same, address))
        return node

    async def _read_map(self) -> None:
        """Read the map once for everybody who asks meanwhile; raise `NotDispatched` where no node answers."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_from_any())
            self._reading.add_done_callback(self._read_done)
        await asyncio.shield(self._reading)

    def _read_done(self, reading: "asyncio.Task[None]") -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()

    async def _read_from_any(self) -> None:
        trouble: Exception | None = None
        for address in dict.fromkeys((*self._slots.values(), *self._seeds)):
            node = self._at(address)
            try:
                async with asyncio.timeout(_MAP_TIMEOUT):
                    link = await node.link(0)
                    slots = slots_from(await link.call(packed(("CLUSTER", "SLOTS"))), address)
            except TimeoutError as error:
                node.drop()  # it neither answers nor hangs up
                trouble = error
                continue
            except (NotDispatched, Unsent, driver.RedisError) as error:
                trouble = error
                continue
            if slots:
                self._slots = slots
                self._is_doubtful = False
                self._answered = address
                return
            trouble = driver.ClusterDownError("CLUSTERDOWN no slot is served")
        raise NotDispatched("no node of the cluster answers") from trouble


def slots_from(reply: Reply, asked: Address) -> dict[int, Address]:
    """Return each slot's primary from a CLUSTER SLOTS reply; a node without a name of its own is `asked`."""
    slots: dict[int, Address] = {}
    assert isinstance(reply, list)
    for first, last, primary, *_ in reply:
        address = _address((primary[0] or b"").decode(), primary[1], asked)
        slots.update(dict.fromkeys(range(first, last + 1), address))
    return slots


def _address(host: str, port: int, asked: Address | None) -> Address:
    """Return where a node is; one that is named by its port alone is on the host that was asked."""
    return Address(asked.host, port) if asked is not None and host in {"", "?"} else Address(host, port)


async def _same(address: Address) -> Address:
    return address
