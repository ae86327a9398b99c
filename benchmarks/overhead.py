"""What aqueue itself costs a job: push, pop, scope, span and ack over the memory store, and nothing else.

    python -m benchmarks.overhead
    python -m benchmarks.overhead --profile                  which functions the time goes to
    python -m benchmarks.overhead --against ../older         two checkouts in turn, in one run

100 tasks push no-op jobs with a 200-byte argument, then a worker at concurrency 100 drains them. A *plain*
job needs nothing; an *injected* one asks its scope for a value of the application. Of OpenTelemetry there is
the API and no SDK, so every span is a no-op. A busy machine only ever adds time: read the least of many short
rounds, and compare with the calibration of the same run, a bare Python call.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
import timeit
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias, TypeVar

from aqueue import AppScope, Worker, connect, job

TASKS = 100
CONCURRENCY = 100
PAYLOAD = "x" * 200
HERE = Path(__file__).resolve().parents[1]

T = TypeVar("T")

Figures: TypeAlias = dict[str, list[float]]
"""Microseconds a job, by part of its life, one for each round."""


class Counter:
    """What the application gives its handlers; counting is all that they do."""

    def __init__(self) -> None:
        self._left = 0
        self.reached: asyncio.Future[None]

    def expect(self, jobs: int) -> None:
        """Count anew, down from this many; `reached` is done when all are counted."""
        self._left = jobs
        self.reached = asyncio.get_running_loop().create_future()

    def count(self) -> None:
        """Count one."""
        self._left -= 1
        if not self._left:
            self.reached.set_result(None)


counter = Counter()


@job(name="plain")
class Plain:
    """A job that needs nothing but itself."""

    data: str

    async def handle(self) -> None:
        """Be counted."""
        counter.count()


@job(name="injected")
class Injected:
    """A job that needs a value from its scope."""

    data: str

    async def handle(self, given: Counter) -> None:
        """Be counted."""
        given.count()


KINDS: dict[str, Callable[[str], object]] = {"plain": Plain, "injected": Injected}


class Bench:
    """A queue that holds nothing, and a worker on it that waits."""

    def __init__(self, kind: str, jobs: int) -> None:
        self._make = KINDS[kind]
        self._jobs = jobs

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the queue and run the worker."""
        async with connect("memory://") as self._queue:
            scope = AppScope(values={Counter: counter})
            worker = Worker(self._queue, [Plain, Injected], scope=scope, concurrency=CONCURRENCY)
            working = asyncio.create_task(worker.run())
            yield
            worker.stop()
            await working

    async def push(self) -> None:
        """Push all jobs from many tasks; no store suspends them, so the worker wakes only afterwards."""
        counter.expect(self._jobs)
        left = iter(range(self._jobs))

        async def push_some() -> None:
            for _ in left:
                await self._queue.push(self._make(PAYLOAD))

        await asyncio.gather(*(push_some() for _ in range(TASKS)))

    async def drain(self) -> None:
        """Wait until the worker has handled and settled them."""
        await counter.reached
        while (await self._queue.stats()).leased:  # noqa: ASYNC110 - a turn of the loop is all it takes
            await asyncio.sleep(0)


async def rounds(kind: str, jobs: int, count: int) -> Figures:
    """Push and drain again and again, the first time only to warm up."""
    figures: Figures = {"push": [], "drain": [], "total": []}
    bench = Bench(kind, jobs)
    async with bench.opened():
        for number in range(count + 1):
            started = time.perf_counter()
            await bench.push()
            pushed = time.perf_counter()
            await bench.drain()
            ended = time.perf_counter()
            if number:
                for part, seconds in (
                    ("push", pushed - started), ("drain", ended - pushed), ("total", ended - started)
                ):  # fmt: skip
                    figures[part].append(seconds / jobs * 1e6)
    return figures


async def profiles(kind: str, jobs: int) -> None:
    """Print the functions that take most, in microseconds a job as the profiler slows them down."""
    bench = Bench(kind, jobs)
    async with bench.opened():
        await bench.push()
        await bench.drain()
        for part, work in (("push", bench.push), ("drain", bench.drain)):
            profiler = cProfile.Profile()
            profiler.enable()
            await work()
            profiler.disable()
            print(f"\n{kind}, {part}: µs a job in the function itself, and with what it calls; calls a job\n")
            _print_profile(profiler, jobs)


def main() -> None:
    """Do what the command line asks for."""
    options = _options()
    if options.profile:
        for kind in options.kinds:
            _run(options, profiles(kind, options.jobs))
    elif options.raw:
        measured = {kind: _run(options, rounds(kind, options.jobs, options.rounds)) for kind in options.kinds}
        print(json.dumps(measured))
    else:
        _compare([HERE, *options.against], options.turns)


def _options() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--jobs", type=int, default=2_000, help="in each round")
    parser.add_argument("--rounds", type=int, default=10, help="in each process, and one to warm up")
    parser.add_argument("--turns", type=int, default=3, help="processes for each checkout, in turn")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    parser.add_argument("--against", type=Path, nargs="+", default=[], help="other checkouts of aqueue")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--raw", action="store_true", help="measure in this process and print JSON")
    return parser.parse_args()


def _run(options: argparse.Namespace, work: Coroutine[Any, Any, T]) -> T:
    factory = None
    if options.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def _compare(places: Sequence[Path], turns: int) -> None:
    """Measure each checkout in processes of its own, in turn, and print a table."""
    taken: dict[tuple[str, str, Path], list[float]] = {}
    calls = [_bare_call()]
    for _ in range(turns):
        for place in places:
            for kind, figures in _measure(place).items():
                for part, values in figures.items():
                    taken.setdefault((kind, part, place), []).extend(values)
        calls.append(_bare_call())
    print(f"a bare call takes {min(calls):.0f} to {max(calls):.0f} ns; the load is {os.getloadavg()[0]:.1f}")
    print(f"{'µs a job':24} {'least':>8} {'median':>8}")
    for (kind, part, place), values in sorted(taken.items(), key=lambda item: item[0][0]):
        where = "" if place == HERE else f"  in {place}"
        print(f"{kind:16}{part:8} {min(values):8.1f} {median(values):8.1f}{where}")


def _measure(place: Path) -> dict[str, Figures]:
    command = [sys.executable, __file__, "--raw", *sys.argv[1:]]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Figures] = json.loads(done.stdout)
    return measured


def _bare_call() -> float:
    return min(timeit.repeat("f(1)", "def f(x): return x", number=100_000, repeat=5)) * 1e4


def _print_profile(profiler: cProfile.Profile, jobs: int) -> None:
    functions: Any = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # the stubs leave it out
    rows = sorted(functions.items(), key=lambda row: -row[1][2])
    for (file, line, name), (_, calls, own, whole, _) in rows[:30]:
        where = f"{Path(file).name}:{line} {name}" if line else name
        print(f"{own / jobs * 1e6:8.2f} {whole / jobs * 1e6:8.2f} {calls / jobs:8.2f}  {where}")


if __name__ == "__main__":
    main()
