"""A worker in a process of its own: `python -m support.process_worker LEDGER MODE URL [name=value …]`.

MODE is `drain` (wait for the file `go` beside the ledger, then handle everything that is due) or `run` (until
SIGTERM). Names are `lease`, `concurrency`, `grace` and `max_lost`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from aqueue import AppScope, Delivery, Worker, connect, job
from support.ledger import Ledger


@job(name="processes.count")
class Count:
    """Writes down that it ran, and takes some time between start and end."""

    number: int
    seconds: float = 0.0

    async def handle(self, ledger: Ledger, delivery: Delivery) -> None:
        ledger.write("start", delivery.id, delivery.attempt)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        ledger.write("done", delivery.id, delivery.attempt)


@job(name="processes.poison")
class Poison:
    """Ends the process that runs it, as a segmentation fault or the kernel's OOM killer would."""

    async def handle(self, ledger: Ledger, delivery: Delivery) -> None:
        ledger.write("start", delivery.id, delivery.attempt)
        os.kill(os.getpid(), signal.SIGKILL)


async def main(ledger_path: str, mode: str, url: str, *settings: str) -> None:
    """Work as the arguments say."""
    told = dict(setting.split("=") for setting in settings)
    ledger = Ledger(Path(ledger_path), durable=mode == "run")
    async with connect(url, lease=float(told.get("lease", "60"))) as queue:
        worker = Worker(
            queue,
            [Count, Poison],
            concurrency=int(told.get("concurrency", "10")),
            grace=float(told.get("grace", "30")),
            max_lost=int(told.get("max_lost", "5")),
            scope=AppScope({Ledger: ledger}),
        )
        ledger.write("ready")
        if mode == "run":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            await worker.run()
            return
        go = Path(ledger_path).with_name("go")
        while not go.exists():
            await asyncio.sleep(0.001)
        await worker.run_all()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
