"""taskiq 0.13 over taskiq-aio-pika: orjson, no results, acknowledged once executed."""

from taskiq.acks import AcknowledgeType
from taskiq.api import run_receiver_task
from taskiq.decor import AsyncTaskiqDecoratedTask
from taskiq.serializers import ORJSONSerializer
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.queue import Queue, QueueType

from benchmarks.rabbitmq.harness import CONCURRENCY, PAYLOAD, Contender, main


class Taskiq(Contender):
    """A broker that kicks, and a receiver on another."""

    settings = (
        "AioPikaBroker(qos=200) (default 10), no result backend, max_async_tasks=100, max_prefetch=100, "
        "validate_params=False, ack when executed; orjson"
    )

    async def open(self) -> None:
        """Connect, and declare the queue before anything is pushed."""
        self._producer, self._task = self._connected()
        await self._producer.startup()

    async def push(self) -> None:
        """Kick."""
        await self._task.kiq(PAYLOAD)

    async def work(self) -> None:
        """Run a receiver."""
        broker, _ = self._connected()
        broker.is_worker_process = True
        await broker.startup()
        await run_receiver_task(
            broker,
            validate_params=False,
            max_async_tasks=CONCURRENCY,
            max_prefetch=CONCURRENCY,
            ack_time=AcknowledgeType.WHEN_EXECUTED,
        )

    def _connected(self) -> tuple[AioPikaBroker, AsyncTaskiqDecoratedTask[[str], object]]:
        async def noop(data: str) -> None:
            self.handled()

        queue = Queue(name="taskiq", type=QueueType(self.queue_type))
        broker = AioPikaBroker(self.url, qos=2 * CONCURRENCY, task_queues=[queue])
        broker.with_serializer(ORJSONSerializer())
        return broker, broker.register_task(noop, task_name="noop")


if __name__ == "__main__":
    main(Taskiq)
