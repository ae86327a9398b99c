"""A scheduler in a process of its own: `python -m support.tick_process URL DIRECTORY NAME SKEW`.

It fires every second, by a clock that is SKEW seconds off, and handles what it finds of the jobs, each a line
in a file of its own, until the file `stop` is there.
"""

import asyncio
import sys
import time
from pathlib import Path

from aqueue import Schedule, Scheduler, connect, job
from aqueue.delivery import Delivery
from aqueue.handlers import Handlers
from aqueue.worker import Worker


@job(name="ticks.tick")
class Tick:
    """Nothing but its occurrence."""


def schedule() -> Schedule:
    """Return the schedule that all processes run."""
    return Schedule("tick", "@every 1s", job=Tick())


async def main(url: str, directory: str, name: str, skew: float) -> None:
    """Run the scheduler inside a worker."""
    handlers = Handlers()
    ledger = Path(directory) / f"ran-{name}"

    @handlers.on(Tick)
    async def handle(_: Tick, delivery: Delivery) -> None:
        assert delivery.occurrence is not None
        with ledger.open("a") as lines:
            lines.write(f"{int(delivery.occurrence.due_at.timestamp())}\n")

    async with connect(url, clock=lambda: time.time() + skew, lease=15, call_timeout=30) as queue:
        worker = Worker(queue, handlers, scheduler=Scheduler(queue, [schedule()]))
        working = asyncio.create_task(worker.run())
        while not worker.health().running and not working.done():
            await asyncio.sleep(0)
        (Path(directory) / f"ready-{name}").touch()
        while not (Path(directory) / "stop").exists():
            await asyncio.sleep(0.05)
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
