"""What every contender is put through, the same for all; it needs uvloop and the standard library.

    python -m benchmarks.peers.arq_bench rates --port 6379 --jobs 20000     push, then drain
    python -m benchmarks.peers.arq_bench idle --port 6379                   count commands, time the wake-up

A worker's shutdown is nobody's speed, so the process ends without one.
"""

import argparse
import asyncio
import json
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from statistics import quantiles
from typing import Any, ClassVar

import uvloop

from benchmarks.peers.watching import Watched, calls_of

TASKS = 100
CONCURRENCY = 100
PAYLOAD = "x" * 200
COUNTED = 2_000

Handled = Callable[[], None]
"""What a contender's no-op job calls, once for each job, as its only statement."""


class Tally:
    """Counts handled jobs. `last` is when the latest handler started, by `perf_counter`."""

    def __init__(self) -> None:
        self.last = 0.0
        self._left = 0
        self._reached = asyncio.Event()

    def expect(self, jobs: int) -> None:
        """Count anew, up to this many."""
        self._left = jobs
        self._reached.clear()

    def note(self) -> None:
        """Be told that a handler runs."""
        self.last = time.perf_counter()
        self._left -= 1
        if self._left == 0:
            self._reached.set()

    async def wait(self, work: "asyncio.Task[None]") -> None:
        """Wait for the last of them; raise what ended the worker before."""
        reached = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait({reached, work}, return_when=asyncio.FIRST_COMPLETED)
        if not reached.done():
            work.result()
            raise RuntimeError(f"the worker ended with {self._left} jobs to go")


class Contender(ABC):
    """A library at its best settings. Producer and worker are two clients of one server in one process."""

    settings: ClassVar[str]
    """What differs from the library's defaults, in words for the report."""

    def __init__(self, host: str, port: int, handled: Handled) -> None:
        self.host = host
        self.port = port
        self.url = f"redis://{host}:{port}/0"
        self.handled = handled

    @abstractmethod
    async def open(self) -> None:
        """Connect the producer, and create what a worker would find."""

    @abstractmethod
    async def push(self) -> None:
        """Push one job with `PAYLOAD`; return once the server has it."""

    @abstractmethod
    async def work(self) -> None:
        """Run a worker at `CONCURRENCY` until cancelled."""

    async def push_all(self, jobs: int) -> None:
        """Push from `TASKS` tasks at once, each in turn."""
        left = iter(range(jobs))

        async def push_some() -> None:
            for _ in left:
                await self.push()

        await asyncio.gather(*(push_some() for _ in range(TASKS)))

    async def check_settled(self) -> None:  # noqa: B027 - not everybody can tell
        """Raise where handled jobs are still held a while after; called once the clock has stopped."""


async def rates(contender: Contender, tally: Tally, options: argparse.Namespace) -> dict[str, Any]:
    """Push `--jobs` jobs, then let a worker take them: from its start to the start of the last handler."""
    jobs: int = options.jobs
    pushing = Stopwatch()
    await contender.push_all(jobs)
    pushed = pushing.read(jobs)
    tally.expect(jobs)
    draining = Stopwatch()
    work = asyncio.ensure_future(contender.work())
    await tally.wait(work)
    drained = draining.read(jobs, until=tally.last)
    await contender.check_settled()
    return {"push": pushed, "drain": drained}


async def idle(contender: Contender, tally: Tally, options: argparse.Namespace) -> dict[str, Any]:
    """Count what a push costs the server, what an idle worker asks of it, and time the way to a handler."""
    calls = await calls_of(contender.host, contender.port)
    async with Watched(contender.host, contender.port) as pushing:
        await contender.push_all(COUNTED)
    calls = await calls_of(contender.host, contender.port) - calls
    tally.expect(COUNTED)
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
    await asyncio.sleep(1.0)
    async with Watched(contender.host, contender.port) as resting:
        await asyncio.sleep(options.rest)
    return {
        "commands_per_push": pushing.total / COUNTED,
        "commands_pushing": dict(pushing.commands),
        "calls_per_push": calls.total() / COUNTED,
        "idle_commands_per_second": resting.total / options.rest,
        "commands_idle": dict(resting.commands),
        "start_after_return_ms": _percentiles(from_return),
        "start_after_call_ms": _percentiles(from_call),
    }


class Stopwatch:
    """Wall time, and this process's share of a processor, since it was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._cpu = time.process_time()

    def read(self, jobs: int, *, until: float | None = None) -> dict[str, float]:
        """Return the figures of so many jobs, up to now or to an earlier moment."""
        seconds = (until or time.perf_counter()) - self._started
        cpu = time.process_time() - self._cpu
        return {"jobs_per_second": jobs / seconds, "seconds": seconds, "cpu_us_per_job": cpu / jobs * 1e6}


def main(contender: Callable[[str, int, Handled], Contender]) -> None:
    """Run the phase that the command line asks for, print its figures, and end the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("phase", choices=["rates", "idle"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rest", type=float, default=10.0, help="seconds to watch an idle worker")
    options = parser.parse_args()

    async def run() -> None:
        tally = Tally()
        made = contender(options.host, options.port, tally.note)
        await made.open()
        figures = await (rates if options.phase == "rates" else idle)(made, tally, options)
        print(json.dumps({"settings": made.settings, **figures}), flush=True)
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _percentiles(samples: list[float]) -> dict[str, float]:
    cuts = quantiles(samples, n=100)
    return {"p50": cuts[49], "p99": cuts[98]}
