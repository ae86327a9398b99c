"""Running a worker for as long as a test needs it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aqueue.port import QueueStats
from aqueue.queue import Queue
from aqueue.testing import eventually
from aqueue.worker import Worker

STOPPED_WITHIN = 5.0
"""Seconds past its grace that a stopping worker has (STOP-1)."""


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    """Run the worker in a task while the block lasts, then stop it at once; raise what it raised."""
    task = asyncio.create_task(worker.run(), name="worker under test")
    await eventually(lambda: worker.health().running or task.done())
    try:
        yield task
    finally:
        worker.stop(at_once=True)
        await ended(task)


async def ended(task: "asyncio.Task[None]", within: float = STOPPED_WITHIN + 1) -> None:
    """Wait until the worker's task has ended; raise what it raised, or an error if it is still going."""
    done, _ = await asyncio.wait({task}, timeout=within)
    assert done, f"the worker is still running {within:g} s after it was stopped"
    task.result()


async def all_settled(queue: Queue, *names: str, timeout: float = 10.0) -> None:
    """Wait until nothing waits in these queues and nobody holds anything of them."""

    async def nothing_left() -> None:
        for name in names or ("default",):
            stats = await queue.stats(name)
            assert (stats.ready, stats.delayed, stats.leased) == (0, 0, 0), f"{name}: {stats}"

    await eventually(nothing_left, timeout)


async def counts(queue: Queue, name: str = "default") -> tuple[int, int, int, int]:
    """Return how many are ready, delayed, leased and failed."""
    stats: QueueStats = await queue.stats(name)
    return stats.ready, stats.delayed, stats.leased, stats.failed


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def messages(self, level: int = logging.NOTSET) -> list[str]:
        """Return the messages of this level, or of all."""
        return [record.getMessage() for record in self.records if level in {logging.NOTSET, record.levelno}]


@contextmanager
def logged(name: str = "aqueue", level: int = logging.DEBUG) -> Iterator[Records]:
    """Collect what is logged below this logger."""
    logger = logging.getLogger(name)
    records, before = Records(), logger.level
    logger.addHandler(records)
    logger.setLevel(level)
    try:
        yield records
    finally:
        logger.removeHandler(records)
        logger.setLevel(before)
