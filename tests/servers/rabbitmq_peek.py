"""What lies in a broker, seen and done by another client than aqueue's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage


@asynccontextmanager
async def channel_on(url: str) -> AsyncIterator[AbstractChannel]:
    """Open a channel on the broker of an aqueue URL."""
    connection = await aio_pika.connect(url.partition("?")[0])
    async with connection:
        yield await connection.channel()


async def messages(url: str, name: str) -> list[AbstractIncomingMessage]:
    """Take every ready message out of a queue, for good."""
    async with channel_on(url) as channel:
        queue = await channel.get_queue(name)
        found = []
        while (message := await queue.get(fail=False)) is not None:
            await message.ack()
            found.append(message)
        return found


async def delete(url: str, *names: str) -> None:
    """Delete queues, whatever is in them or reads from them."""
    async with channel_on(url) as channel:
        for name in names:
            await channel.queue_delete(name)


async def publish(url: str, name: str, message: aio_pika.Message) -> None:
    """Put somebody else's message into a queue."""
    async with channel_on(url) as channel:
        await channel.default_exchange.publish(message, name)
