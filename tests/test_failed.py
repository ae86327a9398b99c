"""Failed jobs beyond what every store must do: pace, edits by class, encryption, bounds and memory."""

import asyncio
import gc
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from support.dead_letters import dead_letter_store

import aqueue
from aqueue import (
    ConnectionFailed,
    FailedStoreMissing,
    InvalidQueueArgument,
    Keyring,
    Queue,
    Sensitive,
    connect,
    job,
)
from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.failed.pages import PAGE
from aqueue.failed.redriving import Pace
from aqueue.port import FailedRecord, NotDispatched, Position, Releasing, StoreOptions
from aqueue.queue import QueueOptions
from aqueue.testing import eventually

SECRET = b"a secret of thirty-two bytes or so.."


@job(name="failed.note")
class Note:
    text: str


def backend(shelf: Shelf, kind: type[MemoryBackend] = MemoryBackend) -> MemoryBackend:
    return kind(shelf, lease=60.0, clock=time.time)


async def fail(queue: Queue, *jobs: object, queue_name: str = "default") -> list[str]:
    ids = []
    for each in jobs:
        await queue.push(each, queue=queue_name)
        delivery = await queue.pop(timeout=5, queues=[queue_name])
        assert delivery is not None
        await queue.fail(delivery)
        ids.append(delivery.id)
    return ids


# -- pace -----------------------------------------------------------------------------------------------


@pytest.mark.rule("FAIL-6")
async def test_a_pace_is_never_exceeded() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    pace = Pace(100.0)
    begun: list[float] = []

    for _ in range(4):
        await pace.turn(pace.together)
        begun.append(loop.time() - started)

    assert pace.together == 10
    assert all(at >= number * 0.1 - 0.002 for number, at in enumerate(begun)), begun


@pytest.mark.rule("FAIL-6")
@pytest.mark.parametrize(
    ("rate", "together", "page"), [(None, 50, PAGE), (0.01, 1, 1), (1, 1, 10), (15, 1, 150), (1e6, 50, PAGE)]
)
def test_a_slow_pace_reads_little_ahead(rate: float | None, together: int, page: int) -> None:
    pace = Pace(rate)

    assert (pace.together, pace.page) == (together, page)


@pytest.mark.rule("FAIL-6")
async def test_a_paced_redrive_takes_its_time() -> None:
    async with connect("memory://") as queue:
        await fail(queue, *(Note(str(number)) for number in range(12)))
        started = time.monotonic()

        assert await queue.failed.retry_all(rate=50) == 12

        assert (
            time.monotonic() - started >= 0.19
        )  # five at once, then five, then two, a tenth of a second apart


# -- edits ----------------------------------------------------------------------------------------------


@pytest.mark.rule("FAIL-5")
async def test_the_class_can_be_named_where_several_declare_the_job() -> None:
    def declare() -> tuple[type, type]:
        @job(name="failed.twice")
        class Old:
            size: int

        @job(name="failed.twice")
        class New:
            size: int
            unit: str = "px"

        return Old, New

    old, new = declare()
    async with connect("memory://") as queue:
        [id] = await fail(queue, old(7))

        with pytest.raises(InvalidQueueArgument, match="say which one with job="):
            await queue.failed.retry(id, changes={"size": 8})
        with pytest.raises(InvalidQueueArgument, match="no argument 'unit'"):
            await queue.failed.retry(id, changes={"unit": "em"}, job=old)
        assert await queue.failed.retry(id, changes={"unit": "em"}, job=new)

        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        assert delivery.args == {"size": 7, "unit": "em"}


@pytest.mark.rule("FAIL-5", "ARG-4")
async def test_an_alias_and_a_function_are_known_by_their_names() -> None:
    @job(name="failed.old-name")
    class Old:
        width: int

    @job(name="failed.resize", aliases=["failed.old-name-of-resize"])
    async def resize(image: int, *, width: int = 640) -> None: ...

    async with connect("memory://") as queue:
        [first] = await fail(queue, resize.job(1))
        [second] = await fail(queue, Old(3))

        with pytest.raises(InvalidQueueArgument, match="another job"):
            await queue.failed.retry(second, changes={"width": 1}, job=resize)
        assert await queue.failed.retry(first, changes={"width": 99}, job=resize)

        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        assert delivery.args == {"image": 1, "width": 99}


@pytest.mark.rule("FAIL-5", "ARG-3")
async def test_what_an_edit_says_of_a_sensitive_argument_leads_nowhere() -> None:
    @job(name="failed.secret")
    class Secret:
        codes: Sensitive[list[int]]
        plain: list[int]

    async with connect("memory://") as queue:
        [id] = await fail(queue, Secret([1], [2]))

        with pytest.raises(InvalidQueueArgument, match=r"argument plain\[1\]: expected int") as plain:
            await queue.failed.retry(id, changes={"plain": [1, "two"]})
        with pytest.raises(InvalidQueueArgument, match="argument codes") as hidden:
            await queue.failed.retry(id, changes={"codes": [1, "two"]})
        with pytest.raises(InvalidQueueArgument, match="argument codes") as odd:
            await queue.failed.retry(id, changes={"codes": [1, object()]})

        assert "[1]" in str(plain.value)
        assert "[1]" not in str(hidden.value) + str(odd.value)


@pytest.mark.rule("FAIL-5", "SIGN-4")
async def test_an_edited_job_is_encrypted_again() -> None:
    pytest.importorskip("cryptography")
    keys = Keyring(active="k", keys={"k": SECRET}, encrypt=True)
    async with connect("memory://", keyring=keys) as queue:
        [id] = await fail(queue, Note("hello"))
        [shown] = await queue.failed.list()
        assert shown.args == {"text": "hello"}
        assert b"hello" not in shown.payload

        assert await queue.failed.retry(id, changes={"text": "edited"})

        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        assert delivery.args == {"text": "edited"}
        assert b"edited" not in delivery.reserved.payload


@pytest.mark.rule("FAIL-5")
async def test_an_edit_that_makes_a_job_too_large_is_refused() -> None:
    shelf = Shelf()
    small = backend(shelf)
    small.capabilities = aqueue.Capabilities(system="small", immediate=True, max_message_bytes=400)
    async with Queue(small) as queue:
        [id] = await fail(queue, Note("x"))

        with pytest.raises(InvalidQueueArgument, match="stores at most 400"):
            await queue.failed.retry(id, changes={"text": "x" * 500})

        assert await queue.failed.count() == 1


# -- bounds ---------------------------------------------------------------------------------------------


@pytest.mark.rule("FAIL-1")
@pytest.mark.parametrize("keep", [10, timedelta(days=1)])
async def test_a_bound_on_what_nobody_keeps_is_refused_at_once(keep: Any) -> None:
    store = dead_letter_store(Shelf(), StoreOptions(lease=60.0, clock=time.time))

    with pytest.raises(FailedStoreMissing, match="keep_failed="):
        Queue(store, QueueOptions(keep_failed=keep))

    Queue(store, QueueOptions(keep_failed=keep), failed=backend(Shelf()))


@pytest.mark.rule("FAIL-2")
async def test_retention_catches_up_with_a_burst() -> None:
    shelf = Shelf()
    async with Queue(backend(shelf)) as before:
        await fail(before, *(Note("x") for _ in range(3 * PAGE)))

    async with Queue(backend(shelf), QueueOptions(keep_failed=5)) as queue:
        await fail(queue, Note("last"))

        async def within_bound() -> None:
            assert await queue.failed.count() <= 6

        await eventually(within_bound)


@pytest.mark.rule("FAIL-4")
async def test_grouping_holds_one_page_at_a_time() -> None:
    shelf = Shelf()
    alive: list[int] = []
    pages: list[weakref.ref[Any]] = []

    class Watched(MemoryBackend):
        async def failed_page(
            self, *, queue: str | None, job: str | None, after: Position | None, limit: int
        ) -> Sequence[FailedRecord]:
            gc.collect()
            alive.append(sum(ref() is not None for ref in pages))
            page = _Page(await super().failed_page(queue=queue, job=job, after=after, limit=limit))
            pages.append(weakref.ref(page))
            return page

    async with Queue(backend(shelf, Watched)) as queue:
        await fail(queue, *(Note("x") for _ in range(5 * PAGE)))

        [group] = await queue.failed.groups()

        assert group.count == 5 * PAGE
        assert len(alive) == 6
        assert max(alive) <= 1


class _Page(list[FailedRecord]):
    """A page that can be watched."""

    __slots__ = ("__weakref__",)


@pytest.mark.rule("FAIL-1", "PUSH-11")
async def test_failing_into_another_store_goes_on_when_its_caller_is_cancelled() -> None:
    """Memory never suspends, but the other store does: what was begun is not cut short."""
    reached = asyncio.Event()
    go_on = asyncio.Event()

    class Slow(MemoryBackend):
        capabilities = aqueue.Capabilities(system="slow")

        async def keep(self, batch: Sequence[FailedRecord]) -> None:
            reached.set()
            await go_on.wait()
            await super().keep(batch)

    async with Queue(backend(Shelf()), failed=backend(Shelf(), Slow)) as queue:
        await queue.push(Note("x"))
        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        failing = asyncio.create_task(queue.fail(delivery))
        await reached.wait()
        failing.cancel()
        await asyncio.wait({failing})
        go_on.set()

        async def failed() -> None:
            assert await queue.failed.count() == 1
            assert (await queue.stats()).leased == 0

        await eventually(failed)


# -- a dead-letter queue --------------------------------------------------------------------------------


@pytest.mark.rule("FAIL-6")
@pytest.mark.parametrize("verb", ["push", "ack"])
async def test_dead_letters_that_could_not_go_back_are_there_for_the_next_run(verb: str) -> None:
    shelf, options = Shelf(), StoreOptions(lease=60.0, clock=time.time)
    store = dead_letter_store(shelf, options)
    async with Queue(store) as queue:
        ids = await fail(queue, *(Note(str(number)) for number in range(5)))
        working = getattr(store, verb)

        async def away(batch: Sequence[Any]) -> Any:
            raise NotDispatched

        setattr(store, verb, away)
        with pytest.raises(ConnectionFailed):
            await queue.failed.retry_all(queue="default")
        setattr(store, verb, working)

        assert await queue.failed.count(queue="default") == 5
        letters = await store.take_dead("default", 5)
        assert [letter.record.id for letter in letters] == ids, "they came back in another order"
        await store.release([Releasing(letter.reserved, counted=False) for letter in letters])
        assert await queue.failed.retry_all(queue="default") == 5
        assert await queue.failed.count(queue="default") == 0


@pytest.mark.rule("FAIL-6")
async def test_many_unreadable_dead_letters_keep_their_order() -> None:
    shelf, options = Shelf(), StoreOptions(lease=60.0, clock=time.time)
    async with Queue(dead_letter_store(shelf, options)) as unsealed:
        ids = await fail(unsealed, *(Note(str(number)) for number in range(120)))
    store = dead_letter_store(shelf, options)
    keys = Keyring(active="k", keys={"k": SECRET})

    async with Queue(store, QueueOptions(keyring=keys)) as queue:
        assert await queue.failed.retry_all(queue="default") == 0
        assert await queue.failed.count(queue="default") == 120

    letters = await store.take_dead("default", 120)
    assert [letter.record.id for letter in letters] == ids


# -- what is refused ------------------------------------------------------------------------------------


@pytest.mark.rule("FAIL-2", "NAME-1")
async def test_names_are_checked_before_anything_else() -> None:
    async with connect("memory://") as queue:
        calls: tuple[Callable[[], Any], ...] = (
            lambda: queue.failed.list(queue="no name"),
            lambda: queue.failed.groups(queue="no name"),
            lambda: queue.failed.count(queue="no name"),
            lambda: queue.failed.purge(queue="no name"),
            lambda: queue.failed.retry_all(queue="no name"),
        )
        for call in calls:
            with pytest.raises(InvalidQueueArgument, match="queue name"):
                await call()
