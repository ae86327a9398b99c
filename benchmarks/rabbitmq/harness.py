"""What every contender on RabbitMQ is put through, the same for all.

    python -m benchmarks.rabbitmq.taskiq_bench rates --port 5672 --jobs 20000 --queue-type quorum
    python -m benchmarks.rabbitmq.taskiq_bench idle --port 5672 --queue-type quorum

Pushes are persistent and confirmed, acknowledgements come after the handler, and producer and worker are two
clients of one broker in one process. A worker's shutdown is nobody's speed, so the process ends without one.
"""

import argparse
import asyncio
import json
import os
import random
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import uvloop

from benchmarks.peers import harness
from benchmarks.peers.harness import CONCURRENCY, PAYLOAD, TASKS, Handled, Tally

__all__ = ["CONCURRENCY", "PAYLOAD", "TASKS", "Contender", "main"]

_IN_TURN = 500


class Contender(harness.Contender):
    """A library at its best settings that lose nothing the broker has confirmed."""

    def __init__(self, port: int, queue_type: str, handled: Handled) -> None:
        super().__init__("127.0.0.1", port, handled)
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/"
        self.queue_type = queue_type

    @abstractmethod
    async def push(self) -> None:
        """Push one job with `PAYLOAD`; return once the broker has confirmed it."""


async def idle(contender: Contender, tally: Tally, options: argparse.Namespace) -> dict[str, Any]:
    """Time the way to the handler of an idle worker, then one task that pushes in turn."""
    tally.expect(100)
    await contender.push_all(100)
    work = asyncio.ensure_future(contender.work())
    await tally.wait(work)
    await asyncio.sleep(2.0)
    from_call, from_return = [], []
    for _ in range(options.samples):
        await asyncio.sleep(random.uniform(0.01, 0.03))
        tally.expect(1)
        called = time.perf_counter()
        await contender.push()
        returned = time.perf_counter()
        await tally.wait(work)
        from_call.append((tally.last - called) * 1e3)
        from_return.append((tally.last - returned) * 1e3)
    work.cancel()
    await asyncio.wait({work}, timeout=5)
    in_turn = harness.Stopwatch()
    for _ in range(_IN_TURN):
        await contender.push()
    return {
        "start_after_return_ms": _percentiles(from_return),
        "start_after_call_ms": _percentiles(from_call),
        "in_turn_per_second": in_turn.read(_IN_TURN)["jobs_per_second"],
    }


def main(contender: Callable[[int, str, Handled], Contender]) -> None:
    """Run the phase that the command line asks for, print its figures, and end the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("phase", choices=["rates", "idle"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--queue-type", choices=["quorum", "classic"], required=True)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=200)
    options = parser.parse_args()

    async def run() -> None:
        tally = Tally()
        made = contender(options.port, options.queue_type, tally.note)
        await made.open()
        phase = harness.rates if options.phase == "rates" else idle
        figures = await phase(made, tally, options)
        print(json.dumps({"settings": made.settings, **figures}), flush=True)
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _percentiles(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
    }
