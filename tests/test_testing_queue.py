"""What applications test their jobs with: a queue and its clock in one call, what it holds, draining it."""

import ast
import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest
from servers import redis
from servers.reach import check_reachable

import aqueue.testing
from aqueue import (
    AppScope,
    Backoff,
    Delivery,
    Depends,
    Discard,
    Handlers,
    InvalidJob,
    Keyring,
    Queue,
    Retry,
    Sensitive,
    Snooze,
    UnresolvableParameter,
    Unsupported,
    connect,
    job,
)
from aqueue.port import Standing
from aqueue.testing import (
    ManualClock,
    MemoryQueue,
    assert_not_pushed,
    assert_pushed,
    drain,
    pushed,
)


@job(name="mails.welcome", queue="mails")
class Welcome:
    email: str
    password: Sensitive[str] = "none"

    async def handle(self) -> None: ...


@job(name="images.resize")
async def resize(image: int, width: int = 640) -> None: ...


def test_every_name_of_the_kit_is_there() -> None:
    names = aqueue.testing.__all__

    assert set(names) <= set(dir(aqueue.testing))
    assert all(getattr(aqueue.testing, name).__module__.startswith("aqueue.testing.") for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        aqueue.testing.nothing  # noqa: B018 - asking is the point


def test_type_checkers_see_every_name_of_the_kit() -> None:
    tree = ast.parse(Path(aqueue.testing.__file__).read_text(encoding="utf-8"))
    imported = {
        f"{node.module}.{alias.name}": alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aqueue.testing.")
        for alias in node.names
    }

    assert sorted(name or "" for name in imported.values()) == aqueue.testing.__all__
    assert all(path.endswith(f".{name}") for path, name in imported.items())


def test_a_memory_queue_needs_neither_a_loop_nor_opening() -> None:
    queue = MemoryQueue(lease=30)

    job_id = asyncio.run(queue.push(resize.job(1)))

    assert [each.id for each in asyncio.run(pushed(queue, resize))] == [job_id]
    assert queue.lease == 30


async def test_a_memory_queue_is_moved_by_its_own_clock() -> None:
    queue = MemoryQueue()
    await queue.push(resize.job(1), delay=60)
    assert await queue.pop_now(1) == []

    queue.advance(60)

    assert len(await queue.pop_now(1)) == 1
    with pytest.raises(TypeError, match="not moved by hand"):
        MemoryQueue(clock=lambda: 1.0).advance(1)


async def test_two_memory_queues_share_nothing_and_may_be_opened_too() -> None:
    async with MemoryQueue() as one, MemoryQueue() as other:
        await one.push(resize.job(1))

        assert (await one.size(), await other.size()) == (1, 0)


async def test_pushed_lists_the_jobs_by_when_they_are_due() -> None:
    queue = MemoryQueue()
    await queue.push(resize.job(1), delay=50, max_attempts=3)
    await queue.push(resize.job(2), delay=20, queue="images")
    await queue.push(Welcome("a@b.c"))
    await queue.push(resize.job(3))

    found = await pushed(queue, resize)

    assert [each.job for each in found] == [resize.job(3), resize.job(2), resize.job(1)]
    assert [(each.queue, each.delay, each.standing) for each in found] == [
        ("default", 0, Standing.READY),
        ("images", 20, Standing.DELAYED),
        ("default", 50, Standing.DELAYED),
    ]
    assert found[2].max_attempts == 3
    assert [each.job for each in await pushed(queue, resize, queue="images")] == [resize.job(2)]


async def test_pushed_reads_what_is_signed() -> None:
    queue = MemoryQueue(keyring=Keyring(active="k", keys={"k": b"0" * 32}))
    await queue.push(resize.job(1))

    assert len(await pushed(queue, resize)) == 1


async def test_an_assertion_returns_what_it_found() -> None:
    queue = MemoryQueue()
    await queue.push(Welcome("a@b.c"), delay=30)
    await queue.push(Welcome("d@e.f"))

    assert len(await assert_pushed(queue, Welcome)) == 2
    assert len(await assert_pushed(queue, Welcome, count=2, queue="mails")) == 2
    (found,) = await assert_pushed(queue, Welcome, {"email": "a@b.c"}, delay=30)
    assert found.job == Welcome("a@b.c")
    await assert_pushed(queue, Welcome("d@e.f"), count=1, delay=0)
    await assert_pushed(queue, Welcome, lambda welcome: welcome.email.endswith(".f"), count=1)
    await assert_pushed(queue, resize, count=0)
    await assert_not_pushed(queue, resize)
    await assert_not_pushed(queue, Welcome, queue="default")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 3}, r"1, not 3, mails.welcome was pushed; it holds:\n  mails.welcome"),
        ({"queue": "default"}, r"no mails.welcome on 'default' was pushed; it holds:\n  mails.welcome"),
        ({"delay": 10}, r"no mails.welcome due in 10 s was pushed; it holds:\n.*due in 30 s"),
    ],
)
async def test_a_failing_assertion_says_what_is_there(options: dict[str, Any], words: str) -> None:
    queue = MemoryQueue()
    await queue.push(Welcome("a@b.c"), delay=30)

    with pytest.raises(AssertionError, match=words):
        await assert_pushed(queue, Welcome, **options)


async def test_a_failing_assertion_shows_no_secret() -> None:
    queue = MemoryQueue()
    await queue.push(Welcome("a@b.c", "hunter2"))

    failures = []
    for what, where in (
        (Welcome, {"email": "x", "password": "hunter3"}),
        (Welcome("a@b.c", "hunter3"), None),
    ):
        with pytest.raises(AssertionError) as caught:
            await assert_pushed(queue, what, where)
        failures.append(str(caught.value))
    with pytest.raises(AssertionError) as caught:
        await assert_not_pushed(queue, Welcome)
    failures.append(str(caught.value))

    assert all("[redacted]" in text and "a@b.c" in text and "hunter" not in text for text in failures), (
        failures
    )


async def test_a_mistaken_question_is_refused() -> None:
    queue = MemoryQueue()

    with pytest.raises(TypeError, match=r"mails.welcome has no field 'mail'; it has: email, password"):
        await assert_pushed(queue, Welcome, {"mail": "x"})
    with pytest.raises(TypeError, match="not both"):
        await assert_pushed(queue, Welcome("a"), {"email": "a"})
    with pytest.raises(InvalidJob):
        await assert_pushed(queue, str)


async def test_a_store_that_shows_nothing_can_not_be_asked() -> None:
    async with connect("inline://", handlers=[resize]) as queue:
        with pytest.raises(Unsupported, match="inline can't show what it holds"):
            await pushed(queue, resize)


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def any_queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queue]:
    urls: dict[str, Callable[[], str]] = {
        "memory": lambda: f"memory://{uuid4().hex}",
        "sqlite": lambda: f"sqlite:///{tmp_path}/jobs.db",
        "redis": redis.fresh_redis_url,
    }
    if request.param == "redis":
        check_reachable("redis", redis.redis_missing())
    async with connect(urls[request.param]()) as queue:
        yield queue


async def test_any_store_that_can_show_its_jobs_can_be_asked_and_drained(any_queue: Queue) -> None:
    handled: list[int] = []
    handlers = Handlers()

    @handlers.on(type(resize.job(1)))
    async def note(job: Any) -> None:
        handled.append(job.image)

    await any_queue.push(resize.job(1), queue="images")
    await any_queue.push(resize.job(2), delay=0.2)
    await assert_pushed(any_queue, resize, count=2)
    await assert_pushed(any_queue, resize, {"image": 1}, queue="images")

    drained = await drain(any_queue, handlers)

    assert (sorted(handled), drained.acked, drained.runs) == ([1, 2], 2, 2)
    await assert_not_pushed(any_queue, resize)


async def test_draining_moves_the_clock_through_retries_and_delays() -> None:
    starts: list[float] = []
    queue = MemoryQueue(clock=ManualClock(1000.0))

    @job
    class Fetch:
        async def handle(self, delivery: Delivery) -> None:
            starts.append(queue.clock())
            if delivery.attempt < 3:
                raise ConnectionError("down")

    await queue.push(Fetch(), delay=100)

    drained = await drain(queue, [Fetch], max_attempts=5, backoff=Backoff.fixed(10))

    assert starts == [1100.0, 1110.0, 1120.0]
    assert (drained.acked, drained.released, drained.failed) == (1, 2, 0)
    assert drained.seconds == pytest.approx(120.0)


async def test_draining_runs_what_jobs_push_on_whatever_queue() -> None:
    order: list[str] = []

    @job(queue="second")
    async def last() -> None:
        order.append("last")

    @job
    class First:
        async def handle(self, queue: Queue) -> None:
            order.append("first")
            await queue.push(last.job(), delay=86_400)

    queue = MemoryQueue()
    await queue.push(First())

    assert (await drain(queue, [First, last])).acked == 2
    assert order == ["first", "last"]


async def test_draining_named_queues_leaves_the_others() -> None:
    queue = MemoryQueue()
    await queue.push(resize.job(1), queue="one")
    await queue.push(resize.job(2), queue="other")

    await drain(queue, [resize], queues=["one"])

    await assert_pushed(queue, resize, count=1, queue="other")


async def test_draining_within_a_time_leaves_what_is_due_later() -> None:
    queue = MemoryQueue()
    await queue.push_many([resize.job(1), resize.job(2)], delay=3600)
    await queue.push(resize.job(3), delay=3601)

    assert (await drain(queue, [resize], within=3600)).acked == 2

    await assert_pushed(queue, resize, {"image": 3}, count=1, delay=1)


async def test_draining_takes_back_what_a_dead_worker_held() -> None:
    queue = MemoryQueue()
    await queue.push(resize.job(1))
    assert await queue.pop_now(1)

    drained = await drain(queue, [resize])

    assert drained.acked == 1
    assert drained.seconds == pytest.approx(60.0)


async def test_an_error_that_fails_a_job_for_good_is_raised_once_all_is_drained() -> None:
    ran: list[int] = []

    @job
    async def fragile(number: int) -> None:
        ran.append(number)
        if number:
            raise ValueError(f"bad {number}")

    queue = MemoryQueue()
    await queue.push(fragile.job(1))
    await queue.push(fragile.job(0))
    with pytest.raises(ValueError, match="bad 1"):
        await drain(queue, [fragile])
    assert ran == [1, 0]

    await queue.push_many([fragile.job(2), fragile.job(3)])
    with pytest.raises(ExceptionGroup, match="2 jobs failed") as caught:
        await drain(queue, [fragile])
    assert [str(error) for error in caught.value.exceptions] == ["bad 2", "bad 3"]

    await queue.push(fragile.job(4))
    drained = await drain(queue, [fragile], raises=False)
    assert (drained.failed, [str(error) for error in drained.errors]) == (1, ["bad 4"])
    assert await queue.failed.count() == 4


async def test_a_job_that_chose_its_end_is_no_error() -> None:
    @job
    async def choosy() -> None:
        raise Discard("not wanted")

    queue = MemoryQueue()
    await queue.push(choosy.job())

    assert (await drain(queue, [choosy])).failed == 1


@pytest.mark.parametrize("word", [Snooze(5), Retry(5)])
async def test_draining_ends_and_says_what_is_stuck(word: Exception) -> None:
    @job(name="never.done", max_attempts=1_000_000)
    async def never(secret: Sensitive[str]) -> None:
        raise word

    queue = MemoryQueue()
    await queue.push(never.job("hunter2"))

    with pytest.raises(AssertionError, match=r"20 deliveries were handled, of at most 20") as caught:
        await drain(queue, [never], at_most=20)
    assert "never.done {'secret': '[redacted]'} on 'default', due in 5 s" in str(caught.value)


async def test_draining_at_most_as_many_as_there_are_is_no_error() -> None:
    queue = MemoryQueue()
    await queue.push_many([resize.job(1), resize.job(2)])

    assert (await drain(queue, [resize], at_most=2)).acked == 2


async def test_what_can_not_be_handled_is_said_before_anything_runs() -> None:
    class Missing: ...

    @job
    class Needs:
        async def handle(self, missing: Missing) -> None: ...

    with pytest.raises(UnresolvableParameter):
        await drain(MemoryQueue(), [Needs])


class Mailer(Protocol):
    def send(self, to: str) -> None: ...


def get_mailer() -> Mailer:
    raise AssertionError("a test sends no mail")


async def test_a_dependency_is_overridden_while_a_test_runs() -> None:
    sent: list[str] = []

    class Outbox:
        def send(self, to: str) -> None:
            sent.append(to)

    @job
    async def greet(to: str, *, mailer: Mailer = Depends(get_mailer)) -> None:
        mailer.send(to)

    scope, queue = AppScope(), MemoryQueue()
    await queue.push(greet.job("a@b.c"))

    with scope.override(get_mailer, Outbox):
        await drain(queue, [greet], scope=scope)

    assert sent == ["a@b.c"]
    await queue.push(greet.job("d@e.f"))
    with pytest.raises(AssertionError, match="sends no mail"):
        await drain(queue, [greet], scope=scope)
