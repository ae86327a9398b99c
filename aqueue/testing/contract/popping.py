"""Popping: which job comes, when a pop waits, and what a cancelled one leaves behind."""

import asyncio
import time
from typing import Any

from aqueue.errors import InvalidQueueArgument
from aqueue.port import Message
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id
from aqueue.testing.eventually import eventually

_SHORT = 0.2
"""Seconds a pop waits in vain: long enough to see it wait, short enough to do it on every store."""


@rule("POP-1")
async def a_pop_that_finds_nothing_returns_none(harness: Harness) -> None:
    """It looks for as long as it was told to, and no error is made of it."""
    queue = await harness.queue()
    started = time.monotonic()

    async with harness.promptly():
        assert await queue.pop(timeout=_SHORT) is None
    async with harness.promptly():
        assert await queue.pop_many(5, timeout=_SHORT, queues=["a", "b"]) == []

    assert time.monotonic() - started >= 2 * _SHORT * 0.9, "it gave up before its time"


@rule("POP-1")
async def bad_timeouts_and_limits_are_refused(harness: Harness) -> None:
    """A timeout is 0 or positive and finite, a limit a whole number from 1."""
    queue = await harness.queue()
    await queue.push(Note("x"))
    timeouts: tuple[Any, ...] = (-1, -0.1, float("nan"), float("inf"), "1", None, True)
    limits: tuple[Any, ...] = (0, -1, 1.0, "1", True, None)

    for timeout in timeouts:
        await _refuses(queue, timeout=timeout, limit=1)
    for limit in limits:
        await _refuses(queue, timeout=1, limit=limit)

    await harness.expect_counts(queue, ready=1)


async def _refuses(queue: Queue, *, timeout: Any, limit: Any) -> None:
    with raises(InvalidQueueArgument, f"pop_many({limit!r}, timeout={timeout!r})"):
        await queue.pop_many(limit, timeout=timeout)


@rule("POP-1", "POP-3")
async def a_pop_without_a_deadline_waits_for_a_job(harness: Harness) -> None:
    """`timeout=0` waits until something arrives, pushed here or through another connection."""
    queue, other = await harness.queue(), await harness.queue()

    for pusher in (queue, other):
        popping = asyncio.create_task(queue.pop(timeout=0))
        async with harness.promptly():
            assert await queue.pop(timeout=0.05, queues=["elsewhere"]) is None
            assert not popping.done()
            id = await pusher.push(Note("at last"))
            delivery = await popping
        assert delivery is not None
        assert delivery.id == id
        await queue.ack(delivery)


@rule("POP-1")
async def pop_many_returns_what_there_is(harness: Harness) -> None:
    """At least one, at most the limit, and it does not wait for more."""
    queue = await harness.queue()
    ids = [await queue.push(Note(str(number))) for number in range(5)]

    async with harness.promptly():
        first = await queue.pop_many(2, timeout=0)
        assert 1 <= len(first) <= 2
        rest = await harness.take_many(queue, 5 - len(first))

    assert {delivery.id for delivery in first + rest} == set(ids)
    assert await queue.pop_now(5) == []


@rule("POP-1")
async def a_large_limit_takes_a_large_backlog(harness: Harness) -> None:
    """Whatever the store's own batch is, the caller's limit may be larger."""
    queue = await harness.queue()
    await queue.push_many(Note("x") for _ in range(30))

    batch = await queue.pop_many(1_000_000, timeout=harness.patience)
    rest = await harness.take_many(queue, 30 - len(batch))

    assert len({delivery.id for delivery in batch + rest}) == 30


@rule("POP-2", "POP-4")
async def the_first_queue_in_the_list_wins(harness: Harness) -> None:
    """Whatever was pushed first, the list's order decides, and each sweep looks at all of it."""
    queue = await harness.queue()
    for name in ("low", "middle", "high"):
        await queue.push_many([Note(name), Note(name)], queue=name)

    order = [(await harness.take(queue, "high", "middle", "low")).queue for _ in range(3)]
    order.append((await harness.take(queue, "low", "middle")).queue)
    order += [(await harness.take(queue, "high", "middle", "low")).queue for _ in range(2)]

    assert order == ["high", "high", "middle", "low", "middle", "low"]


@rule("POP-2")
async def a_batch_is_filled_in_list_order(harness: Harness) -> None:
    """A higher queue's jobs come before a lower one's, in one batch as well as over several."""
    queue = await harness.queue()
    for name in ("low", "high"):
        await queue.push_many([Note(name) for _ in range(4)], queue=name)

    taken = await harness.take_many(queue, 6, "high", "low")

    assert [delivery.queue for delivery in taken] == ["high"] * 4 + ["low"] * 2
    await harness.expect_counts(queue, "low", ready=2, leased=2)


@rule("POP-2")
async def a_waiting_job_is_found_before_any_wait(harness: Harness) -> None:
    """Also on the last of many queues, and also by a pop that would wait for ever."""
    queue = await harness.queue()
    names = [f"queue-{number}" for number in range(20)]
    id = await queue.push(Note("x"), queue=names[-1])

    async with harness.promptly():
        delivery = await queue.pop(timeout=0, queues=names)

    assert delivery is not None
    assert (delivery.id, delivery.queue) == (id, names[-1])


@rule("POP-3", "POP-4")
async def a_job_on_any_watched_queue_ends_the_wait(harness: Harness) -> None:
    """A pop that waits on several queues takes what arrives on any of them."""
    queue, pusher = await harness.queue(), await harness.queue()

    for name in ("low", "high"):
        popping = asyncio.create_task(queue.pop(timeout=harness.patience, queues=["high", "low"]))
        await _begin_waiting()
        id = await pusher.push(Note("x"), queue=name)
        async with harness.promptly():
            delivery = await popping
        assert delivery is not None
        assert (delivery.id, delivery.queue) == (id, name)


@rule("POP-3", "DELAY-1")
async def a_job_that_becomes_due_ends_the_wait(harness: Harness) -> None:
    """Nobody has to push or poke: a waiting pop finds a delayed job once it is due, and not before."""
    queue = await harness.queue()
    delay = 0.3
    started = time.monotonic()
    id = await queue.push(Note("x"), delay=delay)

    delivery = await harness.take(queue)

    assert delivery.id == id
    assert time.monotonic() - started >= delay * 0.99, "a delay is a floor"


@rule("POP-3", "REL-1")
async def a_released_job_ends_the_wait(harness: Harness) -> None:
    """What comes back is an arrival like any other."""
    queue, other = await harness.queue(), await harness.queue()
    id = await queue.push(Note("x"))
    held = await harness.take(queue)
    popping = asyncio.create_task(other.pop(timeout=harness.patience))
    await _begin_waiting()

    await queue.release(held)

    async with harness.promptly():
        delivery = await popping
    assert delivery is not None
    assert delivery.id == id


@rule("POP-3")
async def every_waiting_pop_gets_its_job(harness: Harness) -> None:
    """Ten pops wait on two connections; ten jobs wake them all."""
    queue, other = await harness.queue(), await harness.queue()
    poppers = [asyncio.create_task(one.pop(timeout=harness.patience)) for one in [queue, other] * 5]
    await _begin_waiting()

    ids = await queue.push_many(Note("x") for _ in range(10))

    async with harness.promptly():
        deliveries = await asyncio.gather(*poppers)
    assert sorted(delivery.id for delivery in deliveries if delivery is not None) == sorted(ids)


async def _begin_waiting() -> None:
    """Give pops that were just started time to find nothing and wait; their outcome does not depend on it."""
    await asyncio.sleep(0.02)


@rule("POP-6")
async def a_cancelled_pop_strands_nothing(harness: Harness) -> None:
    """Whenever it is cancelled, the job is there for the next pop at once, no attempt counted."""
    queue = await harness.queue()
    id = await queue.push(Note("x"))

    for step in range(30):
        popping = asyncio.create_task(queue.pop(timeout=harness.patience))
        await _let_run(step)
        popping.cancel()
        [outcome] = await asyncio.gather(popping, return_exceptions=True)
        if outcome is not None and not isinstance(outcome, BaseException):
            await queue.release(outcome, counted=False)  # it had ended before it was cancelled

        delivery = await harness.take(queue)
        assert delivery.id == id, f"cancelled after step {step}"
        harness.expect_attempt(delivery, 1, given_back=None)
        await queue.release(delivery, counted=False)


@rule("POP-6")
async def a_pop_cancelled_while_its_queue_closes_strands_nothing(harness: Harness) -> None:
    """A process that stops gives back what its last pop took."""
    other = await harness.queue()
    id = await other.push(Note("x"))

    for step in range(10):
        queue = await harness.queue()
        popping = asyncio.create_task(queue.pop(timeout=harness.patience))
        await _let_run(step)
        popping.cancel()
        await queue.aclose()
        [outcome] = await asyncio.gather(popping, return_exceptions=True)
        if outcome is not None and not isinstance(outcome, BaseException):
            await other.release(outcome, counted=False)

        delivery = await harness.take(other)
        assert delivery.id == id, f"cancelled after step {step}"
        harness.expect_attempt(delivery, 1, given_back=None)
        await other.release(delivery, counted=False)


@rule("POP-6")
async def a_storm_of_cancelled_pops_loses_no_job(harness: Harness) -> None:
    """Many poppers are cancelled at their own moments while others go on; each job is taken once."""
    queue = await harness.queue()
    ids = await queue.push_many(Note("x") for _ in range(40))
    taken: list[str] = []

    async def pop_some() -> None:
        while batch := await queue.pop_many(3, timeout=_SHORT):
            taken.extend(delivery.id for delivery in batch)
            await asyncio.gather(*(queue.ack(delivery) for delivery in batch))

    poppers = [asyncio.create_task(pop_some()) for _ in range(12)]
    for step, popper in enumerate(poppers[:8]):
        await _let_run(step)
        popper.cancel()
    await asyncio.gather(*poppers, return_exceptions=True)

    assert sorted(taken) == sorted(ids)


async def _let_run(step: int) -> None:
    """Let other tasks run a little further with each step: first by turns of the loop, then by time."""
    for _ in range(step):
        await asyncio.sleep(0)
    if step > 10:
        await asyncio.sleep((step - 10) * 0.0003)


@rule("POP-7")
async def an_idle_pop_asks_about_once_a_second(harness: Harness) -> None:
    """A pop that waits sends the store at most about one sweep a second."""
    counting = _CountingSweeps(await harness.backend())
    queue = await harness.queue(backend=counting)
    seconds = 1.2

    assert await queue.pop(timeout=seconds, queues=["a", "b", "c"]) is None

    assert counting.sweeps <= seconds / harness.capabilities.longest_wait + 3


class _CountingSweeps:
    """The store itself, counting how often it is asked for jobs."""

    def __init__(self, backend: Any) -> None:
        self.sweeps = 0
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def open(self) -> None:
        """Open already: the harness opened the store, and closes it."""

    async def aclose(self) -> None:
        """See `open`."""

    async def pop(self, queues: Any, limit: int) -> Any:
        self.sweeps += 1
        return await self._backend.pop(queues, limit)


@rule("POP-2")
async def the_port_sweeps_at_once_and_never_waits(harness: Harness) -> None:
    """A backend's `pop` answers with what is due, perhaps nothing, and never more than its limit."""
    backend = await harness.backend()
    async with harness.promptly():
        assert list(await backend.pop(["a", "b"], 10)) == []
    await backend.push([Message(job_id(n), "b", envelope(job_id(n))) for n in range(1, 4)])

    found: list[str] = []

    async def all_found() -> bool:
        batch = await backend.pop(["a", "b"], 2)
        assert len(batch) <= 2
        found.extend(item.id for item in batch)
        return len(found) == 3

    await eventually(all_found, harness.patience)
    assert sorted(found) == [job_id(1), job_id(2), job_id(3)]
    assert list(await backend.pop(["a", "b"], 2)) == []


@rule("POP-3")
async def the_ports_wait_ends_by_itself(harness: Harness) -> None:
    """A backend's `wait` returns when its time is over, and at once where something is ready."""
    backend = await harness.backend()

    async with harness.promptly():
        await backend.wait(["a", "b"], 0.05)
        await backend.push([Message(job_id(1), "b", envelope(job_id(1)))])
        await backend.wait(["a", "b"], harness.patience * 10)
