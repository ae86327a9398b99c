"""SAQ 0.26 on Redis: orjson, done jobs removed, as many operations at once as there are tasks."""

import orjson
from saq import Worker
from saq.queue.redis import RedisQueue

from benchmarks.peers.harness import CONCURRENCY, PAYLOAD, TASKS, Contender, main


class Saq(Contender):
    """A queue that enqueues, and a worker on another."""

    settings = "concurrency=100, max_concurrent_ops=100 (default 20), ttl=-1 (done jobs removed); orjson"

    async def open(self) -> None:
        """Connect."""
        self._queue = self._connected()
        await self._queue.connect()

    async def push(self) -> None:
        """Enqueue."""
        await self._queue.enqueue("noop", data=PAYLOAD, ttl=-1)

    async def work(self) -> None:
        """Run a worker."""

        async def noop(context: object, *, data: str) -> None:
            self.handled()

        queue = self._connected()
        await queue.connect()
        # A worker's first sweep aborts jobs that a slot has just taken and not yet marked as active: its own
        # lock holds it off, or some of the jobs would never run.
        await queue.redis.set("saq:default:sweep", 1, ex=3600)
        await Worker(queue, [("noop", noop)], concurrency=CONCURRENCY).start()

    def _connected(self) -> RedisQueue:
        return RedisQueue.from_url(self.url, dump=orjson.dumps, load=orjson.loads, max_concurrent_ops=TASKS)


if __name__ == "__main__":
    main(Saq)
