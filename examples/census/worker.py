"""A worker process. It may be killed at any moment, so nothing here has to be tidy to be safe."""

import asyncio
import logging
import sys

from aqueue import AppScope, JobReleased, Worker
from examples.census.jobs import QUEUE, MeasureFile
from examples.census.ledger import Ledger
from examples.census.settings import Settings


async def work(settings: Settings) -> None:
    """Handle files until the driver closes our standard input, which it also does by dying."""
    ledger = settings.ledger()

    async def note_retry(event: JobReleased) -> None:
        if event.counted:
            await asyncio.to_thread(
                ledger.note, event.args["census"], "retried", f"{event.id} {event.attempt}"
            )

    async with settings.connect() as queue:
        worker = Worker(
            queue,
            [MeasureFile],
            queues=[QUEUE],
            concurrency=settings.concurrency,
            scope=AppScope({Ledger: ledger}),
        )
        worker.listen(JobReleased, note_retry)
        _stop_with_driver(worker)
        await worker.run()


def _stop_with_driver(worker: Worker) -> None:
    """Stop when standard input ends; what is being measured is still measured."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(sys.stdin)
        worker.stop()

    loop.add_reader(sys.stdin, stop)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    # The settings come on standard input because their URL may hold a password, and command lines are public.
    asyncio.run(work(Settings.load(sys.stdin.readline())))


if __name__ == "__main__":
    main()
