"""FastStream 0.7 on RabbitMQ: persistent, confirmed, acknowledged after the handler."""

import asyncio
import logging

from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from benchmarks.rabbitmq.harness import CONCURRENCY, PAYLOAD, Contender, main


class FastStream(Contender):
    """A broker that publishes, and a subscriber on another."""

    settings = (
        "prefetch_count=100 (a task for each message), publisher confirms, persist=True, apply_types=False "
        "(no validation), no log"
    )

    async def open(self) -> None:
        """Connect, and declare the queue before anything is published."""
        kind = QueueType.QUORUM if self.queue_type == "quorum" else QueueType.CLASSIC
        self._queue = RabbitQueue("jobs", durable=True, queue_type=kind)
        self._producer = self._connected()
        await self._producer.start()
        await self._producer.declare_queue(self._queue)

    async def push(self) -> None:
        """Publish."""
        await self._producer.publish(PAYLOAD, "jobs", persist=True)

    async def work(self) -> None:
        """Run a subscriber."""
        broker = self._connected()

        async def noop(data: str) -> None:
            self.handled()

        broker.subscriber(self._queue, channel=Channel(prefetch_count=CONCURRENCY))(noop)
        await broker.start()
        await asyncio.Event().wait()

    def _connected(self) -> RabbitBroker:
        logging.getLogger("faststream").setLevel(logging.CRITICAL)
        return RabbitBroker(self.url, logger=None, apply_types=False)


if __name__ == "__main__":
    main(FastStream)
