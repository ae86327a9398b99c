"""How a script reaches the server that holds its keys: sent again only where it certainly was not run.

NOSCRIPT, a redirect and a slot on the move are refusals, and so is a command that never left: each is
followed here. Everything else is the caller's to know, and nothing is ever sent twice that may have run.
"""

import asyncio
from collections.abc import Sequence

from redis import exceptions as driver

from aqueue.backends.redis.dialling import Address
from aqueue.backends.redis.link import Argument, Link, Unsent, packed
from aqueue.backends.redis.node import Node
from aqueue.backends.redis.replies import Reply
from aqueue.backends.redis.scripts import Script
from aqueue.backends.redis.topology import Topology
from aqueue.port import NotDispatched

_PATIENCE = 5.0
"""Seconds for which a refusal that will pass is waited out; the caller is told after them."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_MOST_HOPS = 16
_SCAN_STEP = 1_000


class Client:
    """Runs scripts and plain commands on the nodes of a topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.is_partitioned = topology.is_partitioned

    async def run(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], *, slot: int, lane: int
    ) -> Reply:
        """Run a script whose keys share a slot and return its reply.

        Cancelling drops the connection: the upper time of a call is over, and what is in flight on it is
        unknown (CALL-1). Raises `NotDispatched` or what the server or the connection raised.
        """
        command = packed((b"EVALSHA", script.digest, len(keys), *keys, *arguments))
        try:
            return await self._sent(command, slot, lane)
        except driver.NoScriptError:
            pass
        return await self._sent(packed((b"EVAL", script.source, len(keys), *keys, *arguments)), slot, lane)

    async def command(self, *command: Argument, slot: int, lane: int) -> Reply:
        """Send a plain command and return its reply; see `run`."""
        return await self._sent(packed(command), slot, lane)

    async def scan(self, pattern: bytes, *, lane: int) -> set[bytes]:
        """Return every key that matches, of all nodes, in small steps that hold nobody up.

        A key that a cluster moves from one node to another meanwhile may be missed.
        """
        found: set[bytes] = set()
        for node in await self._topology.primaries():
            cursor = b"0"
            while True:
                command = packed((b"SCAN", cursor, b"MATCH", pattern, b"COUNT", _SCAN_STEP))
                reply = await self._once(node, command, lane, is_asking=False)
                assert isinstance(reply, list)
                cursor, keys = reply
                found.update(keys)
                if cursor == b"0":
                    break
        return found

    async def primaries(self) -> Sequence[Node]:
        """Return the nodes that hold all keys between them."""
        return await self._topology.primaries()

    async def link(self) -> Link:
        """Return a link to a server, for asking it about itself."""
        return await (await self._topology.any_node()).link(0)

    async def address(self) -> Address:
        """Return a server that hears of every arrival."""
        return await self._topology.address()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._topology.aclose()

    async def _sent(self, command: bytes, slot: int, lane: int) -> Reply:
        patience = _Patience()
        redirected: Node | None = None
        is_asking = False
        while True:
            node = redirected or await self._topology.node(slot)
            try:
                return await self._once(node, command, lane, is_asking)
            except NotDispatched:
                if patience.is_over() or not await self._topology.lost(slot):
                    raise
                redirected = None
            except driver.RedisError as error:
                redirected = self._topology.refused(error, node)
                is_asking = type(error) is driver.AskError
                if redirected is None and not self._topology.is_passing(error):
                    raise
                if patience.is_over():
                    raise
            await patience.pause(at_once=redirected is not None)

    async def _once(self, node: Node, command: bytes, lane: int, is_asking: bool) -> Reply:
        for _ in range(2):
            link = await node.link(lane)
            try:
                return await (link.call_asking(command) if is_asking else link.call(command))
            except Unsent:
                continue  # the server had hung up before a byte was written
            except asyncio.CancelledError:
                link.abort()
                raise
        raise NotDispatched("the connection was closed twice before anything was sent")


class _Patience:
    """Paces the tries of one command, and says when they are enough."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._tries = 0

    def is_over(self) -> bool:
        """Whether refusals have gone on for too long."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        return now - self._since > _PATIENCE

    async def pause(self, *, at_once: bool) -> None:
        """Wait before the next try; a redirect is followed at once, unless they go round in circles."""
        self._tries += 1
        if not at_once or self._tries > _MOST_HOPS:
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 1.5**self._tries))
