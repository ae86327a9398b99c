"""Six processes on one directory, killed at random: `python -m support.file_kills DIRECTORY KILLS`.

Three push and three work, each in a process of its own that is forked anew as soon as it was killed. What
they did is in the ledger, each line on its way before and after the call that it tells of.
"""

import asyncio
import os
import random
import secrets
import signal
import sys
import time
from pathlib import Path

from aqueue import Queue, StaleDelivery, connect, job
from support.ledger import Ledger

LEASE = 1.0
_PROCESSES = 6
_BETWEEN_KILLS = 0.04


@job(name="kills.number")
class Number:
    number: int


async def push(url: str, ledger: Ledger, stop: Path) -> None:
    """Push one job after another, some together, and say so once the store has them."""
    async with connect(url, lease=LEASE) as queue:
        while not stop.exists():
            for id in await queue.push_many([Number(1), Number(2)]):
                ledger.write("pushed", id)
            id = secrets.token_hex(16)
            await asyncio.gather(*(queue.push(Number(3), id=id) for _ in range(2)))
            ledger.write("pushed", id)
            await asyncio.sleep(0.02)


async def work(url: str, ledger: Ledger, stop: Path) -> None:
    """Take jobs, and end each in one of the ways there are."""
    dice = random.Random()
    async with connect(url, lease=LEASE) as queue:
        while not stop.exists() or await is_any_left(queue):
            for delivery in await queue.pop_many(dice.randrange(1, 8), timeout=0.2):
                ledger.write("taken", delivery.id, delivery.attempt)
                try:
                    match dice.randrange(8):
                        case 0:
                            await queue.release(delivery, counted=dice.random() < 0.5)
                        case 1:
                            await queue.fail(delivery)
                            ledger.write("failed", delivery.id, delivery.attempt)
                        case 2:
                            await queue.extend(delivery)
                            await queue.ack(delivery)
                            ledger.write("acked", delivery.id, delivery.attempt)
                        case _:
                            await queue.ack(delivery)
                            ledger.write("acked", delivery.id, delivery.attempt)
                except StaleDelivery:
                    ledger.write("stale", delivery.id, delivery.attempt)


async def is_any_left(queue: Queue) -> bool:
    """Say whether there is a job, be it in the hands of one who was killed and whose lease isn't over."""
    stats = await queue.stats()
    return stats.ready + stats.delayed + stats.leased > 0


def start(number: int, url: str, ledger: Ledger, stop: Path) -> int:
    """Fork one of the six."""
    child = os.fork()
    if child == 0:
        asyncio.run((push if number % 2 else work)(url, ledger, stop))
        os._exit(0)
    return child


def main(directory: str, kills: str) -> None:
    """Kill one of the six, again and again; then let them come to an end."""
    place = Path(directory)
    url, ledger = f"file://{place}/jobs?fsync=none", Ledger(place / "ledger", durable=False)
    stop, dice = place / "stop", random.Random()
    children = [start(number, url, ledger, stop) for number in range(_PROCESSES)]
    for _ in range(int(kills)):
        time.sleep(dice.uniform(0, 2 * _BETWEEN_KILLS))
        number = dice.randrange(_PROCESSES)
        os.kill(children[number], signal.SIGKILL)
        os.waitpid(children[number], 0)
        ledger.write("killed")
        children[number] = start(number, url, ledger, stop)
    stop.touch()
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
