"""Group commit: what gathers, how far, in which order, and what a cancellation can't touch (PUSH-6)."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from aqueue.coalesce import Coalescer
from aqueue.errors import OutcomeUnknown
from aqueue.testing import eventually


class Line:
    """A store that answers one batch at a time, when it is told to; it keeps what it was sent."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.answer: Callable[[str], int | Exception] = len
        self._gate = asyncio.Event()
        if is_open:
            self._gate.set()

    def open(self) -> None:
        self._gate.set()

    async def send(self, items: Sequence[str]) -> Sequence[int | Exception]:
        self.batches.append(list(items))
        await self._gate.wait()
        await asyncio.sleep(0)
        return [self.answer(item) for item in items]


def coalescer(line: Line, *, max_items: int = 500, max_weight: int = 10_000) -> Coalescer[str, int]:
    return Coalescer[str, int](line.send, max_items=max_items, max_weight=max_weight, weigh=len)


@pytest.mark.rule("PUSH-6")
async def test_an_idle_coalescer_sends_at_once_and_alone() -> None:
    line = Line()
    gather = coalescer(line)

    assert await gather.submit("one") == 3
    assert await gather.submit("four") == 4

    assert line.batches == [["one"], ["four"]]


@pytest.mark.rule("PUSH-6")
async def test_what_comes_during_a_round_trip_goes_in_the_next() -> None:
    line = Line(is_open=False)
    gather = coalescer(line)
    first = gather.submit("first")
    await eventually(lambda: line.batches == [["first"]])
    later = [gather.submit(f"later {number}") for number in range(5)]

    line.open()
    await asyncio.gather(first, *later)

    assert line.batches == [["first"], [f"later {number}" for number in range(5)]]


@pytest.mark.rule("PUSH-6")
async def test_a_thousand_callers_need_few_round_trips_and_keep_their_order() -> None:
    line = Line()
    gather = coalescer(line, max_weight=10**9)
    items = [str(number) for number in range(1000)]

    results = await asyncio.gather(*(gather.submit(item) for item in items))

    assert results == [len(item) for item in items]
    assert [item for batch in line.batches for item in batch] == items
    assert len(line.batches) == 2
    assert max(map(len, line.batches)) == 500


@pytest.mark.rule("PUSH-6")
async def test_a_batch_is_bounded_in_items() -> None:
    line = Line()
    gather = coalescer(line, max_items=3)

    await asyncio.gather(*(gather.submit("x") for _ in range(8)))

    assert [len(batch) for batch in line.batches] == [3, 3, 2]


@pytest.mark.rule("PUSH-6")
async def test_a_batch_is_bounded_in_weight_and_takes_what_is_too_heavy_alone() -> None:
    line = Line()
    gather = coalescer(line, max_weight=10)
    items = ["a" * 6, "b" * 4, "c", "d" * 50, "e" * 9, "f" * 2]

    await asyncio.gather(*(gather.submit(item) for item in items))

    assert line.batches == [[items[0], items[1]], [items[2]], [items[3]], [items[4]], [items[5]]]


@pytest.mark.rule("PUSH-6")
async def test_a_caller_cancelled_before_dispatch_withdraws_its_item() -> None:
    line = Line(is_open=False)
    gather = coalescer(line)
    first = gather.submit("first")
    await eventually(lambda: line.batches == [["first"]])
    waiting = [gather.submit(name) for name in ("stays", "goes", "stays too")]

    waiting[1].cancel()
    line.open()
    await asyncio.gather(first, waiting[0], waiting[2])

    assert line.batches == [["first"], ["stays", "stays too"]]


@pytest.mark.rule("PUSH-6")
async def test_withdrawing_everything_sends_nothing() -> None:
    line = Line()
    gather = coalescer(line)

    for future in [gather.submit("a"), gather.submit("b")]:
        future.cancel()
    await gather.drain()

    assert line.batches == []
    assert await gather.submit("c") == 1


@pytest.mark.rule("PUSH-6", "PUSH-11")
async def test_a_caller_cancelled_after_dispatch_changes_nothing_for_the_others() -> None:
    line = Line(is_open=False)
    gather = coalescer(line)
    futures = [gather.submit(name) for name in ("a", "bb", "ccc")]
    await eventually(lambda: line.batches == [["a", "bb", "ccc"]])

    futures[1].cancel()
    line.open()

    assert await futures[0] == 1
    assert await futures[2] == 3
    assert await gather.submit("dddd") == 4


@pytest.mark.rule("PUSH-6")
async def test_each_caller_gets_its_own_answer() -> None:
    line = Line()
    line.answer = lambda item: ValueError(item) if item.startswith("bad") else len(item)
    gather = coalescer(line)

    results = await asyncio.gather(
        *(gather.submit(item) for item in ("a", "bad 1", "bb", "bad 2")), return_exceptions=True
    )

    assert [repr(result) for result in results] == ["1", "ValueError('bad 1')", "2", "ValueError('bad 2')"]


@pytest.mark.rule("PUSH-6")
async def test_what_the_round_trip_raises_reaches_each_caller_of_that_batch_alone() -> None:
    line = Line()

    def explode(_: str) -> int:
        raise ConnectionError("cut")

    line.answer = explode
    gather = coalescer(line, max_items=2)
    lost = [gather.submit("a"), gather.submit("b")]
    results = await asyncio.gather(*lost, return_exceptions=True)
    line.answer = len

    assert [type(result) for result in results] == [ConnectionError, ConnectionError]
    assert await gather.submit("c") == 1


@pytest.mark.rule("PUSH-6")
async def test_too_few_answers_leave_nobody_waiting() -> None:
    async def send(items: Sequence[str]) -> Sequence[int | Exception]:
        return [1]

    gather = Coalescer[str, int](send, max_items=10, max_weight=100, weigh=len)
    futures = [gather.submit("a"), gather.submit("b"), gather.submit("c")]

    async with asyncio.timeout(5):
        results = await asyncio.gather(*futures, return_exceptions=True)

    assert isinstance(results[2], Exception), "a caller was told it was cancelled, which nobody did"


@pytest.mark.rule("PUSH-6")
async def test_draining_waits_for_all_that_was_asked() -> None:
    line = Line()
    gather = coalescer(line, max_items=1)
    futures = [gather.submit("x") for _ in range(5)]

    await gather.drain()

    assert all(future.done() for future in futures)
    await gather.drain()


@pytest.mark.rule("PUSH-6", "PUSH-11")
async def test_the_task_of_a_cancelled_caller_is_not_the_task_that_sends() -> None:
    line = Line(is_open=False)
    gather = coalescer(line)

    async def push() -> int:
        return await gather.submit("mine")

    caller = asyncio.create_task(push())
    await eventually(lambda: line.batches == [["mine"]])
    other = gather.submit("other")
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    line.open()

    assert await other == 5
    assert line.batches == [["mine"], ["other"]]


def test_a_loop_that_ends_leaves_nobody_hanging() -> None:
    async def abandon() -> None:
        line = Line(is_open=False)
        coalescer(line).submit("x")
        await eventually(lambda: bool(line.batches))

    asyncio.run(abandon())


@pytest.mark.rule("PUSH-6")
async def test_a_receiver_is_told_in_its_turn_like_any_future() -> None:
    line = Line()
    line.answer = lambda item: ValueError(item) if item == "bad" else len(item)
    gather = coalescer(line)
    told: list[int | Exception] = []

    gather.send("one", told.append)
    future = gather.submit("four")
    gather.send("bad", told.append)
    await gather.drain()

    assert line.batches == [["one", "four", "bad"]]
    assert future.result() == 4
    assert [repr(result) for result in told] == ["3", "ValueError('bad')"]


@pytest.mark.rule("PUSH-6")
async def test_without_weights_a_batch_is_bounded_in_items_alone() -> None:
    line = Line()
    gather = Coalescer[str, int](line.send, max_items=3, withdraws=False)
    told: list[int | Exception] = []

    for _ in range(7):
        gather.send("x" * 10_000, told.append)
    await gather.drain()

    assert [len(batch) for batch in line.batches] == [3, 3, 1]
    assert told == [10_000] * 7


def test_a_loop_that_ends_tells_receivers_that_nothing_is_known() -> None:
    told: list[int | Exception] = []

    async def abandon() -> None:
        line = Line(is_open=False)
        coalescer(line).send("x", told.append)
        await eventually(lambda: bool(line.batches))

    asyncio.run(abandon())

    assert [type(result) for result in told] == [OutcomeUnknown]
