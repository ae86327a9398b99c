"""The limit: aqueue's own scripts over its own connection, in a bare loop that knows nothing of frameworks.

The same commands with the same bytes, as well coalesced as 100 tasks allow: two connections in turn with 50
jobs each, the acks of one batch and the pop of the next in one write. No future for each job, no scope, no
decoding, no settlement of its own: what is left is Redis, its scripts, the parser and the socket.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, cast

from aqueue.backends.redis.dialling import Address, Dialler, Identity
from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.link import Argument, Link, packed
from aqueue.backends.redis.replies import Reply
from aqueue.backends.redis.scripts import Script, load
from aqueue.contract.envelope import encode_envelope
from benchmarks.peers.harness import CONCURRENCY, PAYLOAD, TASKS, Contender, main

LANES = 2
LEASE = 60_000_000

_PUSH, _POP, _ACK = load("push"), load("pop"), load("ack")


class Limit(Contender):
    """Links and packed commands."""

    settings = f"aqueue's scripts and connection, bare: {LANES} lanes of {TASKS // LANES} jobs"

    async def open(self) -> None:
        """Connect, and let the server know the scripts."""
        self._keys = KeySpace("limit").of("default")
        self._ids = (f"{number:032x}" for number in itertools.count())
        self._tokens = (b"%020x" % number for number in itertools.count())
        self._payload = encode_envelope(
            id="0" * 32, name="noop", pushed_at=1.7e9, args=f'{{"data":"{PAYLOAD}"}}'.encode(),
            max_attempts=None, metadata={},
        )  # fmt: skip
        self._dialler = Dialler(Identity(), None)
        self._links = [await self._dialler.dial(Address(self.host, self.port)) for _ in range(LANES)]
        for script in (_PUSH, _POP, _ACK):
            await self._links[0].call(packed(("SCRIPT", "LOAD", script.source)))

    async def push(self) -> None:
        """Push a batch of one."""
        await self._links[0].call(self._push(1))

    async def push_all(self, jobs: int) -> None:
        """Push full batches, one in flight on each lane."""
        batches = iter([TASKS // LANES] * (jobs * LANES // TASKS))

        async def push_some(link: Link) -> None:
            for size in batches:
                await link.call(self._push(size))

        await asyncio.gather(*(push_some(link) for link in self._links))

    async def work(self) -> None:
        """Take, count and acknowledge on every lane; wait for hints while there is nothing."""
        arrived = asyncio.Event()
        hints = await self._dialler.dial(Address(self.host, self.port), lambda _: arrived.set())
        hints.post(packed(("SUBSCRIBE", self._keys.channel)))

        async def take(link: Link) -> None:
            receipts: list[bytes] = []
            while True:
                acked = link.call(self._ack(receipts)) if receipts else None
                token = next(self._tokens)
                taken = _entries(await link.call(self._pop(CONCURRENCY // LANES, token)))
                if acked is not None:
                    await acked
                receipts = [b"%b:%b" % (entry, token) for entry in taken]
                for _ in taken:
                    self.handled()
                if not taken:
                    arrived.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            await arrived.wait()

        await asyncio.gather(*(take(link) for link in self._links))

    def _push(self, jobs: int) -> bytes:
        keys = self._keys
        arguments: list[Argument] = [keys.channel, jobs]
        for _ in range(jobs):
            arguments += (next(self._ids), 0, self._payload)
        return _evalsha(_PUSH, (keys.pending, keys.delayed, keys.jobs), arguments)

    def _pop(self, limit: int, token: bytes) -> bytes:
        return _evalsha(_POP, self._keys[:5], (limit, LEASE, token))

    def _ack(self, receipts: Sequence[bytes]) -> bytes:
        return _evalsha(_ACK, (self._keys.leased, self._keys.jobs, self._keys.counts), receipts)


def _entries(reply: Reply) -> Sequence[bytes]:
    """Return what a pop of one queue has taken."""
    _now, _due, *queues = cast("list[Any]", reply)
    return cast("Sequence[bytes]", queues[0][1]) if queues else ()


def _evalsha(script: Script, keys: Sequence[bytes], arguments: Sequence[Argument]) -> bytes:
    return packed((b"EVALSHA", script.digest, len(keys), *keys, *arguments))


if __name__ == "__main__":
    main(Limit)
