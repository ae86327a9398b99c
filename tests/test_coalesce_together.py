"""Items that must not be parted: whatever else travels, they go in one batch, or are withdrawn as one."""

import asyncio
from collections.abc import Sequence

import pytest

from aqueue.coalesce import Coalescer
from aqueue.testing import eventually

pytestmark = pytest.mark.rule("TOPIC-1", "PUSH-6")


class Line:
    """A store that answers one batch at a time, once it is open; it keeps what it was sent."""

    def __init__(self, *, max_items: int = 4, max_weight: int = 1000) -> None:
        self.batches: list[list[str]] = []
        self._gate = asyncio.Event()
        self.gather = Coalescer[str, int](self._send, max_items=max_items, max_weight=max_weight, weigh=len)

    def open(self) -> None:
        self._gate.set()

    async def _send(self, items: Sequence[str]) -> Sequence[int | Exception]:
        self.batches.append(list(items))
        await self._gate.wait()
        return [len(item) for item in items]


async def test_a_group_that_would_not_fit_waits_for_the_next_batch() -> None:
    line = Line()
    singles = [line.gather.submit(item) for item in ("a", "b")]
    group = line.gather.submit_together(["c", "dd", "e"])
    last = line.gather.submit("f")

    line.open()

    assert await asyncio.gather(*singles, *group, last) == [1, 1, 1, 2, 1, 1]
    assert line.batches == [["a", "b"], ["c", "dd", "e", "f"]]


async def test_groups_share_a_batch_where_they_fit() -> None:
    line = Line()
    futures = [*line.gather.submit_together(["a", "b"]), *line.gather.submit_together(["c", "d"])]

    line.open()
    await asyncio.gather(*futures)

    assert line.batches == [["a", "b", "c", "d"]]


async def test_a_group_is_bounded_by_weight_like_the_rest_but_goes_alone_if_it_must() -> None:
    line = Line(max_weight=5)
    futures = [line.gather.submit("aaaa"), *line.gather.submit_together(["bbb", "ccc"])]
    futures += [*line.gather.submit_together(["d", "e"]), line.gather.submit("f")]

    line.open()
    await asyncio.gather(*futures)

    assert line.batches == [["aaaa"], ["bbb", "ccc"], ["d", "e", "f"]]


async def test_a_group_is_withdrawn_whole_before_it_is_sent() -> None:
    line = Line()
    first = line.gather.submit("first")
    await eventually(lambda: line.batches == [["first"]])
    group, last = line.gather.submit_together(["a", "b"]), line.gather.submit("last")

    for future in group:
        future.cancel()
    line.open()
    await asyncio.gather(first, last)
    await line.gather.drain()

    assert line.batches == [["first"], ["last"]]


async def test_a_group_that_was_sent_stays_sent_and_harms_nobody() -> None:
    line = Line()
    group = line.gather.submit_together(["a", "b"])
    await eventually(lambda: line.batches == [["a", "b"]])

    for future in group:
        future.cancel()
    line.open()

    assert await line.gather.submit("next") == 4
    assert line.batches == [["a", "b"], ["next"]]
