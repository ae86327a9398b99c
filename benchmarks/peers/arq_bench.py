"""arq 0.28: no results kept, and polling often, since it learns of jobs in no other way."""

from arq import create_pool, func
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

from benchmarks.peers.harness import CONCURRENCY, PAYLOAD, Contender, main


class Arq(Contender):
    """A pool that enqueues, and a worker on a pool of its own."""

    settings = "max_jobs=100, poll_delay=0.01 (default 0.5), keep_result=0, log_results=False; pickle"

    async def open(self) -> None:
        """Connect."""
        self._redis = RedisSettings(host=self.host, port=self.port)
        self._pool: ArqRedis = await create_pool(self._redis)

    async def push(self) -> None:
        """Enqueue."""
        await self._pool.enqueue_job("noop", PAYLOAD)

    async def work(self) -> None:
        """Run a worker."""

        async def noop(context: dict[str, object], data: str) -> None:
            self.handled()

        worker = Worker(
            [func(noop, name="noop")],
            redis_settings=self._redis,
            max_jobs=CONCURRENCY,
            poll_delay=0.01,
            keep_result=0,
            log_results=False,
            handle_signals=False,
        )
        await worker.async_run()


if __name__ == "__main__":
    main(Arq)
