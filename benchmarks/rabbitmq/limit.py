"""The limit: aqueue's own connection and frames in a bare loop that knows nothing of frameworks.

The same messages with the same bytes, as well coalesced as 100 tasks allow: two writes of 50 messages in
flight, and for draining one consumer with a prefetch of 200 that acknowledges what each read of the socket
brought with one frame.
"""

import asyncio
import itertools

from pamqp import commands

from aqueue.backends.rabbitmq import wire
from aqueue.backends.rabbitmq.channel import Content, Hears
from aqueue.backends.rabbitmq.dialling import Line
from aqueue.backends.rabbitmq.names import Names
from aqueue.backends.rabbitmq.publishing import Publisher
from aqueue.backends.rabbitmq.settings import settings_from
from aqueue.backends.rabbitmq.wire import Letter
from aqueue.contract.envelope import encode_envelope
from aqueue.urls import parse_url
from benchmarks.rabbitmq.harness import CONCURRENCY, PAYLOAD, TASKS, Contender, main

_WRITES = 2


class Limit(Contender):
    """Links and packed frames."""

    settings = (
        f"aqueue's connection and frames, bare: {_WRITES} writes of {TASKS // _WRITES} messages, prefetch 200"
    )

    async def open(self) -> None:
        """Connect, and declare the queue."""
        settings = settings_from(parse_url(self.url))
        self._line = Line(settings.dialler())
        self._publisher = Publisher(self._line, confirm_timeout=30.0)
        self._ids = (f"{number:032x}" for number in itertools.count())
        self._payload = encode_envelope(
            id="0" * 32, name="noop", pushed_at=1.7e9, args=f'{{"data":"{PAYLOAD}"}}'.encode(),
            max_attempts=None, metadata={},
        )  # fmt: skip
        self._address = wire.address("", "limit")
        channel = await (await self._line.link()).channel(Hears())
        await channel.call(Names("", self.queue_type).queue("limit"))

    async def push(self) -> None:
        """Push a batch of one."""
        await self._publish(1)

    async def push_all(self, jobs: int) -> None:
        """Push full batches, a few in flight."""
        batches = iter([TASKS // _WRITES] * (jobs * _WRITES // TASKS))

        async def push_some() -> None:
            for size in batches:
                await self._publish(size)

        await asyncio.gather(*(push_some() for _ in range(_WRITES)))

    async def work(self) -> None:
        """Count and acknowledge what comes."""
        loop, last = asyncio.get_running_loop(), [0, 0]

        def ack() -> None:
            channel.write(wire.ack(channel.number, last[0], multiple=True))
            last[1] = last[0]

        def delivered(content: Content) -> None:
            method = content.method
            wire.read(content.properties)
            if last[0] == last[1]:
                loop.call_soon(ack)
            last[0] = wire.UNSIGNED_64.unpack_from(method, 5 + method[4])[0]
            self.handled()

        channel = await (await self._line.link()).channel(Hears(delivered=delivered))
        await channel.call(commands.Basic.Qos(prefetch_count=2 * CONCURRENCY))
        await channel.call(commands.Basic.Consume(queue="limit", consumer_tag="1"))
        await asyncio.Event().wait()

    async def _publish(self, count: int) -> None:
        letters = [Letter(self._address, next(self._ids), self._payload, 0, 0, 1) for _ in range(count)]
        await self._publisher.publish(letters)


if __name__ == "__main__":
    main(Limit)
