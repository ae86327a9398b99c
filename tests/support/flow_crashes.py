"""Processes that die at each call to their store: `python -m support.flow_crashes SCENARIO DIRECTORY`.

Each scenario is done by a process that dies before its first call to the store, or after it, then at the
second call, and so on until it gets through. Another goes on with what is left, once all leases are over.
What ran is in a file, a line for each attempt; the report, as JSON, says what is wrong.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast

from aqueue import Delivery, Queue, Worker, batch, chain, job, step
from aqueue.connection import open_backend
from aqueue.plans import Batch, Chain
from aqueue.port import StoreOptions
from aqueue.queue import QueueOptions
from support.stores import WholeBackend, Wrapper

T = TypeVar("T")

DIED = 7
ID = f"{1:032x}"
_QUEUES = ("default", "other", "bad")
_LEDGER = Path("ledger")


def _note(line: str) -> None:
    with _LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


@job(name="crashes.run", results=600)
class Run:
    name: str

    async def handle(self, delivery: Delivery) -> str:
        _note(f"{self.name} {delivery.attempt}")
        return self.name


@job(name="crashes.bad", queue="bad", max_attempts=1)
class Bad:
    async def handle(self) -> None:
        raise ValueError("not today")


class DyingStore(Wrapper):
    """Ends the process before its n-th call, or after it."""

    def __init__(self, inner: WholeBackend, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self._left = at
        self._after = after

    async def _around(self, verb: str, call: Callable[[], Awaitable[T]], ids: list[str]) -> T:
        if verb == "wait":
            return await super()._around(verb, call, ids)
        self._left -= 1
        if self._left == 0 and not self._after:
            os._exit(DIED)
        answer = await super()._around(verb, call, ids)
        if self._left == 0:
            os._exit(DIED)
        return answer


_BATCH = [Run("a"), Run("b"), chain(Run("c"), step(Run("d"), queue="other"))]
_THEN, _FINALLY = Run("then"), step(Run("finally"), queue="other")
PLANS: dict[str, tuple[Chain | Batch, set[str]]] = {
    "chain": (chain(Run("a"), step(Run("b"), queue="other"), Run("c")), {"a", "b", "c"}),
    "batch": (batch(_BATCH, then=_THEN, finally_=_FINALLY), {"a", "b", "c", "d", "then", "finally"}),
    "failing": (
        batch(
            [*_BATCH, Bad()],
            then=_THEN,
            on_failure=step(Run("failure"), queue="other"),
            finally_=_FINALLY,
        ),
        {"a", "b", "c", "d", "failure", "finally"},
    ),
}
SCENARIOS = sorted([*PLANS, "push"])


async def die_working(url: str, at: int, *, after: bool) -> None:
    """Run all there is."""
    async with _queue(url, lambda inner: DyingStore(inner, at, after=after)) as queue:
        await _work(queue)


async def die_pushing(url: str, at: int, *, after: bool) -> None:
    """Push a batch."""
    async with _queue(url, lambda inner: DyingStore(inner, at, after=after)) as queue:
        await queue.push(PLANS["batch"][0], id=ID)


async def go_on(url: str, scenario: str) -> list[str]:
    """Do what is left once all leases are over, and say what is wrong then."""
    async with _queue(url, lambda inner: inner, ahead=10_000) as queue:
        early = _runs("then") if scenario == "push" else []
        if scenario == "push":
            await _work(queue)
            early = _runs("then")
            await queue.push(PLANS["batch"][0], id=ID)
        await _work(queue)
        left = [name for name in _QUEUES if await queue.size(name)]
        failed = await queue.failed.count()
    _, expected = PLANS["batch" if scenario == "push" else scenario]
    problems = [f"{name} never ran" for name in sorted(expected) if not _runs(name)]
    problems += [f"{name} was stored twice" for name in sorted(expected) if _runs(name).count(1) > 1]
    if failed != (scenario == "failing") or left:
        problems.append(f"{failed} failed, and there are jobs on {left}")
    if early and not {"a", "b", "c", "d"} <= {line.split()[0] for line in _lines()}:
        problems.append("it was followed before all of it was there")
    if {line.split()[0] for line in _lines()} - expected:
        problems.append("something ran that should not")
    return problems


def try_out(scenario: str) -> dict[str, object]:
    """Let a process die at each of its calls in turn; return how many there are, and what went wrong."""
    calls, problems = 0, list[str]()
    for after in (False, True):
        at = 0
        is_through = False
        while not is_through:
            at += 1
            url = f"sqlite:///{Path.cwd()}/{scenario}-{at}-{after}.db"
            _LEDGER.unlink(missing_ok=True)
            if scenario != "push":
                asyncio.run(_push(url, PLANS[scenario][0]))
            child = os.fork()
            if child == 0:
                asyncio.run((die_pushing if scenario == "push" else die_working)(url, at, after=after))
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            is_through = status == 0
            found = asyncio.run(go_on(url, scenario))
            found += [] if status in {0, DIED} else [f"the process ended with {status}"]
            problems += [f"call {at}, {'after' if after else 'before'}: {problem}" for problem in found]
        calls = max(calls, at)
    return {"calls": calls, "problems": problems}


async def _push(url: str, plan: Chain | Batch) -> None:
    async with _queue(url, lambda inner: inner) as queue:
        await queue.push(plan)


async def _work(queue: Queue) -> None:
    worker = Worker(queue, [Run, Bad], queues=_QUEUES, concurrency=1)
    while await worker.run_all():
        pass


def _queue(url: str, around: Callable[[WholeBackend], WholeBackend], *, ahead: float = 0.0) -> Queue:
    def clock() -> float:
        return time.time() + ahead

    backend = cast("WholeBackend", open_backend(url, StoreOptions(lease=60.0, clock=clock)))
    return Queue(around(backend), QueueOptions(clock=clock))


def _lines() -> list[str]:
    return _LEDGER.read_text().splitlines() if _LEDGER.exists() else []


def _runs(name: str) -> list[int]:
    """Return the attempts in which this job ran."""
    return [int(line.split()[1]) for line in _lines() if line.split()[0] == name]


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    sys.stdout.write(json.dumps(try_out(sys.argv[1])))
