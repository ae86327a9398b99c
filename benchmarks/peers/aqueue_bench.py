"""aqueue: as an application would use it."""

import asyncio

from aqueue import Handlers, Worker, connect, job
from benchmarks.peers.harness import CONCURRENCY, PAYLOAD, Contender, main


@job(name="noop")
class Noop:
    """Nothing to do, with something to carry."""

    data: str


class Aqueue(Contender):
    """Two connections' worth of queue: one pushes, one works."""

    settings = "defaults; concurrency=100"

    async def open(self) -> None:
        """Open both."""
        self._producer = connect(self.url)
        self._consumer = connect(self.url)
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
            stats = await self._producer.stats()
            if stats.ready == stats.leased == stats.failed == 0:
                return
            await asyncio.sleep(0.05)
        raise RuntimeError("not everything was settled")


if __name__ == "__main__":
    main(Aqueue)
