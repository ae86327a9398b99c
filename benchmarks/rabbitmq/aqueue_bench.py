"""aqueue: as an application would use it."""

import asyncio

from aqueue import Handlers, Worker, connect, job
from benchmarks.rabbitmq.harness import CONCURRENCY, PAYLOAD, Contender, main


@job(name="noop")
class Noop:
    """Nothing to do, with something to carry."""

    data: str


class Aqueue(Contender):
    """Two queues' worth of connections: one pushes, one works."""

    settings = "defaults; concurrency=100"

    async def open(self) -> None:
        """Open both."""
        url = f"{self.url}?queue_type={self.queue_type}"
        self._producer, self._consumer = connect(url), connect(url)
        await self._producer.open()
        await self._consumer.open()

    async def push(self) -> None:
        """Push the job that any web request would."""
        await self._producer.push(Noop(PAYLOAD))

    async def work(self) -> None:
        """Run a worker whose handler only counts."""
        handlers = Handlers()

        @handlers.on(Noop)
        async def handle(job: Noop) -> None:
            self.handled()

        await Worker(self._consumer, handlers, concurrency=CONCURRENCY).run()

    async def check_settled(self) -> None:
        """Wait until the last settlements have arrived."""
        for _ in range(100):
            consumer = await self._consumer.stats()
            if (await self._producer.stats()).ready == consumer.ready == consumer.leased == 0:
                return
            await asyncio.sleep(0.05)
        raise RuntimeError("not everything was settled")


if __name__ == "__main__":
    main(Aqueue)
