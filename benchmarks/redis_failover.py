"""How much acknowledged work a Redis failover loses: `python -m benchmarks.redis_failover [ROUNDS]`.

A master, its replica and a sentinel of their own, on free loopback ports. Twenty tasks push without a pause;
half-way the master is killed with SIGKILL, or frozen first so that its replica falls behind (`--lag`). Once
the replica has taken over, the acknowledged pushes that it doesn't hold are counted.

Redis replicates after it has answered, so some loss is in its nature; this tells how much it was here.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from aqueue import ConnectionFailed, OutcomeUnknown, Queue, StoreRefused, connect, job
from aqueue.testing import eventually

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from servers.redis import SentinelGroup  # the tests' own starter of servers

_TASKS = 20
_BEFORE = 2.0


@job(name="benchmarks.failover")
class Numbered:
    number: int


async def push_until(queue: Queue, end: asyncio.Event, acknowledged: list[str]) -> None:
    """Push without a pause, and note each id that the store acknowledged."""
    while not end.is_set():
        try:
            acknowledged.append(await queue.push(Numbered(len(acknowledged))))
        except (ConnectionFailed, OutcomeUnknown, StoreRefused):
            await asyncio.sleep(0.01)


async def held(queue: Queue) -> set[str]:
    """Take everything there is and return the ids."""
    ids: set[str] = set()
    while batch := await queue.pop_many(500, timeout=1):
        ids.update(delivery.id for delivery in batch)
    return ids


async def one_round(*, lag: float) -> dict[str, float]:
    """Kill a master under load; count what its successor doesn't know."""
    group = await asyncio.to_thread(SentinelGroup().start)
    try:
        old, end, acknowledged = group.master(), asyncio.Event(), list[str]()
        replica = next(server for server in group.servers if server is not old)
        async with connect(group.url) as queue:
            pushing = [asyncio.create_task(push_until(queue, end, acknowledged)) for _ in range(_TASKS)]
            await asyncio.sleep(_BEFORE)
            os.kill(replica.process.pid, signal.SIGSTOP)
            await asyncio.sleep(lag)
            old.process.kill()
            os.kill(replica.process.pid, signal.SIGCONT)
            before, killed = len(acknowledged), time.monotonic()
            await eventually(lambda: group.master() is not old, timeout=60)
            await eventually(lambda: len(acknowledged) > before, timeout=60)
            away = time.monotonic() - killed
            end.set()
            await asyncio.gather(*pushing)
            lost = set(acknowledged) - await held(queue)
        return {
            "acknowledged": len(acknowledged),
            "lost": len(lost),
            "seconds without a master": round(away, 2),
        }
    finally:
        await asyncio.to_thread(group.stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument(
        "--lag", type=float, default=0.0, help="seconds the replica is frozen before the kill"
    )
    asked = parser.parse_args()
    for _ in range(asked.rounds):
        print(json.dumps(asyncio.run(one_round(lag=asked.lag))), flush=True)


if __name__ == "__main__":
    main()
