"""The one door: what an error proves, who is told, how long a call may take (PUSH-4, PUSH-7, CALL-1)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from support.stores import CutOff, Unreachable, Wrapper

from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.errors import (
    AqueueError,
    ConnectionFailed,
    OutcomeUnknown,
    PublishNotConfirmed,
    PushManyError,
    QueueClosed,
    StoreError,
    StoreRefused,
    UnserializableJob,
)
from aqueue.port import Answer, Fault, Message, NotDispatched, QueueStats, Refused, Reserved, Stored, Verdict
from aqueue.queue import Queue, QueueOptions
from aqueue.testing import ManualClock, eventually
from aqueue.testing.contract.samples import Note, job_id


class Denied(Exception):
    """The made-up driver's error for a call that the store refused."""


class Stranger(Exception):
    """An error that the made-up driver doesn't know of."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def wrapper(clock: ManualClock) -> Wrapper:
    wrapper = Wrapper(MemoryBackend(Shelf(), lease=60, clock=clock))
    wrapper.faults = {**wrapper.faults, Denied: Fault.REFUSED}
    return wrapper


@pytest.fixture
async def queue(wrapper: Wrapper, clock: ManualClock) -> AsyncIterator[Queue]:
    async with Queue(wrapper, QueueOptions(call_timeout=0.2, clock=clock)) as queue:
        yield queue
        wrapper.recover()


@pytest.mark.rule("PUSH-4")
@pytest.mark.parametrize(
    ("driver_error", "ours", "words"),
    [
        (Unreachable, ConnectionFailed, "was never sent"),
        (CutOff, OutcomeUnknown, "may or may not have been applied"),
        (Denied, StoreRefused, "was refused"),
        (TimeoutError, OutcomeUnknown, "may or may not"),
    ],
)
async def test_a_drivers_error_is_translated_by_what_it_proves(
    queue: Queue, wrapper: Wrapper, driver_error: type[Exception], ours: type[StoreError], words: str
) -> None:
    wrapper.break_down("push", error=driver_error)

    with pytest.raises(ours, match=words) as caught:
        await queue.push(Note("x"), id=job_id(1))

    assert type(caught.value) is ours
    assert caught.value.job_id == job_id(1)
    assert job_id(1) in str(caught.value)
    assert driver_error.__name__ in str(caught.value)
    assert isinstance(caught.value.__cause__, driver_error), "the driver's own error is lost"
    assert wrapper.calls["push"] == 1, "a write was sent again"


@pytest.mark.rule("PUSH-4")
async def test_a_subclass_of_a_known_error_is_known(queue: Queue, wrapper: Wrapper) -> None:
    class Reset(CutOff):
        pass

    wrapper.break_down("push", error=Reset)

    with pytest.raises(OutcomeUnknown):
        await queue.push(Note("x"))


@pytest.mark.rule("PUSH-4")
async def test_the_nearest_known_class_decides(queue: Queue, wrapper: Wrapper) -> None:
    class Full(CutOff):
        pass

    wrapper.faults = {**wrapper.faults, Full: Fault.REFUSED}
    wrapper.break_down("push", error=Full)

    with pytest.raises(StoreRefused):
        await queue.push(Note("x"))


@pytest.mark.rule("PUSH-4")
@pytest.mark.parametrize(("port_error", "ours"), [(NotDispatched, ConnectionFailed), (Refused, StoreRefused)])
async def test_a_backend_may_say_itself_what_happened(
    queue: Queue, wrapper: Wrapper, port_error: type[Exception], ours: type[StoreError]
) -> None:
    class Raising(port_error):  # type: ignore[misc, valid-type]  # each of the two
        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.__cause__ = Stranger("the driver's own words")

    wrapper.break_down("push", error=Raising)

    with pytest.raises(ours) as caught:
        await queue.push(Note("x"))

    assert isinstance(caught.value.__cause__, Stranger), "the port's marker hides the driver's error"


@pytest.mark.rule("PUSH-4")
@pytest.mark.parametrize("verb", ["push", "size"])
async def test_what_is_not_the_drivers_is_passed_on_as_it_is(
    queue: Queue, wrapper: Wrapper, verb: str
) -> None:
    wrapper.break_down("push", "stats", error=Stranger)

    with pytest.raises(Stranger) as caught:
        await (queue.push(Note("x")) if verb == "push" else queue.size())

    assert caught.value.__cause__ is not caught.value


@pytest.mark.rule("PUSH-4")
@pytest.mark.parametrize("verb", ["pop", "stats", "clear", "wait"])
async def test_every_verb_is_translated(queue: Queue, wrapper: Wrapper, verb: str) -> None:
    wrapper.break_down(verb, error=Denied)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "pop": lambda: queue.pop_now(1),
        "wait": lambda: queue.pop(timeout=1),
        "stats": queue.stats,
        "clear": lambda: queue.clear("default"),
    }

    with pytest.raises(StoreRefused, match=rf"^{verb} on memory was refused"):
        await calls[verb]()


@pytest.mark.rule("PUSH-4", "FENCE-1")
@pytest.mark.parametrize("verb", ["ack", "release", "fail", "extend"])
async def test_an_outage_while_settling_is_no_lost_fence(queue: Queue, wrapper: Wrapper, verb: str) -> None:
    await queue.push(Note("x"))
    [delivery] = await queue.pop_now(1)
    settle = getattr(queue, verb)
    wrapper.break_down(verb, error=Unreachable, times=1)

    with pytest.raises(ConnectionFailed):
        await settle(delivery)

    await settle(delivery)


@pytest.mark.rule("PUSH-4", "FENCE-1")
async def test_a_lost_reply_to_an_ack_is_told_and_not_repeated(queue: Queue, wrapper: Wrapper) -> None:
    await queue.push(Note("x"))
    [delivery] = await queue.pop_now(1)
    wrapper.lose_reply("ack", times=1)

    with pytest.raises(OutcomeUnknown):
        await queue.ack(delivery)

    assert wrapper.calls["ack"] == 1
    assert await queue.stats() == QueueStats(ready=0, delayed=0, leased=0, failed=0)


@pytest.mark.rule("PUSH-4", "PUSH-10")
async def test_a_push_whose_reply_was_lost_can_be_repeated_by_its_id(queue: Queue, wrapper: Wrapper) -> None:
    wrapper.lose_reply("push", times=1)
    with pytest.raises(OutcomeUnknown) as caught:
        await queue.push(Note("x"))
    assert caught.value.job_id is not None

    assert await queue.push(Note("x"), id=caught.value.job_id) == caught.value.job_id

    assert await queue.size() == 1


@pytest.mark.rule("PUSH-4", "PUSH-6")
async def test_one_outage_tells_each_caller_its_own_id(queue: Queue, wrapper: Wrapper) -> None:
    wrapper.break_down("push", error=CutOff)

    errors = await asyncio.gather(
        *(queue.push(Note("x"), id=job_id(number)) for number in range(5)), return_exceptions=True
    )

    assert wrapper.calls["push"] == 1
    assert [getattr(error, "job_id", None) for error in errors] == [job_id(number) for number in range(5)]
    assert len({id(error) for error in errors}) == 5, "callers share one exception, and with it its traceback"


class _StoresEven(MemoryBackend):
    """Refuses every second message of a batch."""

    capabilities = replace(MemoryBackend.capabilities, immediate=False)

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:  # type: ignore[override]  # wider on purpose
        await super().push(batch[::2])
        return [Refused("full") if number % 2 else None for number in range(len(batch))]


@pytest.mark.rule("PUSH-7")
async def test_a_partial_failure_tells_what_became_of_each_job() -> None:
    async with Queue(_StoresEven(Shelf(), lease=60, clock=ManualClock())) as queue:
        with pytest.raises(PushManyError, match="2 of 5 jobs were not stored") as caught:
            await queue.push_many([Note(str(number)) for number in range(5)])

        outcomes = caught.value.outcomes
        assert [isinstance(outcome, str) for outcome in outcomes] == [True, False, True, False, True]
        assert all(isinstance(outcome, StoreRefused) for outcome in outcomes[1::2])
        assert {delivery.id for delivery in await queue.pop_now(9)} == set(outcomes[::2])


@pytest.mark.rule("PUSH-7")
async def test_an_outage_of_a_whole_batch_names_every_id(queue: Queue, wrapper: Wrapper) -> None:
    wrapper.break_down("push", error=CutOff)

    with pytest.raises(PushManyError) as caught:
        await queue.push_many([Note("a"), Note("b")])

    ids = [outcome.job_id for outcome in caught.value.outcomes if isinstance(outcome, OutcomeUnknown)]
    assert len(set(ids)) == 2


@pytest.mark.rule("PUSH-7")
async def test_a_job_too_large_for_the_store_refuses_all_with_nothing_sent(clock: ManualClock) -> None:
    wrapper = Wrapper(MemoryBackend(Shelf(), lease=60, clock=clock))
    wrapper.capabilities = replace(wrapper.capabilities, max_message_bytes=1_000)
    async with Queue(wrapper) as queue:
        with pytest.raises(UnserializableJob, match=r"takes \d+ bytes; memory stores at most 1000"):
            await queue.push_many([Note("small"), Note("x" * 1_000)])

    assert wrapper.calls["push"] == 0


@pytest.mark.rule("PUSH-7", "FAIL-1")
async def test_a_job_too_large_for_the_failed_store_is_refused_when_it_is_pushed(clock: ManualClock) -> None:
    """It could never be set aside, so it would come back for ever."""
    wrapper, failed = (Wrapper(MemoryBackend(Shelf(), lease=60, clock=clock)) for _ in range(2))
    failed.capabilities = replace(failed.capabilities, system="small", max_message_bytes=1_000)
    async with Queue(wrapper, failed=failed) as queue:
        with pytest.raises(UnserializableJob, match=r"takes \d+ bytes; small stores at most 1000"):
            await queue.push(Note("x" * 1_000))

    assert wrapper.calls["push"] == 0


@pytest.mark.rule("CALL-1")
@pytest.mark.parametrize("verb", ["push", "stats", "ack", "pop", "clear"])
async def test_a_store_that_never_answers_costs_the_call_timeout(
    queue: Queue, wrapper: Wrapper, verb: str
) -> None:
    await queue.push(Note("x"))
    [delivery] = await queue.pop_now(1)
    wrapper.hang(verb)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "push": lambda: queue.push(Note("y")),
        "stats": queue.stats,
        "ack": lambda: queue.ack(delivery),
        "pop": lambda: queue.pop_now(1),
        "clear": lambda: queue.clear("default"),
    }

    async with asyncio.timeout(5):
        with pytest.raises(OutcomeUnknown):
            await calls[verb]()

    wrapper.recover()
    async with asyncio.timeout(5):
        await queue.size()


@pytest.mark.rule("CALL-1", "POP-3")
async def test_a_declared_wait_may_take_longer_than_a_call(queue: Queue) -> None:
    async with asyncio.timeout(10):
        assert await queue.pop(timeout=0.5) is None


@pytest.mark.rule("CALL-1")
async def test_closing_ends_although_the_store_hangs(wrapper: Wrapper, clock: ManualClock) -> None:
    queue = Queue(wrapper, QueueOptions(call_timeout=0.2, clock=clock))
    await queue.open()
    wrapper.hang("push", "stats")
    stuck = [asyncio.create_task(queue.push(Note("x"))), asyncio.create_task(queue.size())]
    await eventually(lambda: wrapper.calls["push"] == 1)

    async with asyncio.timeout(5):
        await queue.aclose()
        outcomes = await asyncio.gather(*stuck, return_exceptions=True)

    assert all(isinstance(outcome, AqueueError) for outcome in outcomes)


@pytest.mark.rule("PUSH-11")
async def test_a_cancelled_caller_leaves_its_call_to_end(queue: Queue, wrapper: Wrapper) -> None:
    wrapper.hang("push")
    pushing = asyncio.create_task(queue.push(Note("x")))
    await eventually(lambda: wrapper.calls["push"] == 1)

    pushing.cancel()
    await asyncio.gather(pushing, return_exceptions=True)
    wrapper.recover()

    assert pushing.cancelled()

    async def stored() -> bool:
        return await queue.size() == 1

    await eventually(stored)


@pytest.mark.rule("POP-6", "PUSH-11")
async def test_a_sweep_whose_caller_left_is_given_back_when_it_ends(queue: Queue, wrapper: Wrapper) -> None:
    await queue.push(Note("x"))
    wrapper.hang("pop")
    popping = asyncio.create_task(queue.pop(timeout=5))
    await eventually(lambda: wrapper.calls["pop"] == 1)

    popping.cancel()
    await asyncio.sleep(0)
    wrapper.recover()
    await asyncio.gather(popping, return_exceptions=True)

    assert popping.cancelled()
    [delivery] = await queue.pop_now(1)
    assert (delivery.attempt, delivery.lost) == (1, 0)


@pytest.mark.rule("POP-6")
async def test_cancelling_twice_still_strands_nothing(queue: Queue, wrapper: Wrapper) -> None:
    await queue.push(Note("x"))
    wrapper.hang("pop")
    popping = asyncio.create_task(queue.pop(timeout=5))
    await eventually(lambda: wrapper.calls["pop"] == 1)

    for _ in range(3):
        popping.cancel()
        await asyncio.sleep(0)
    wrapper.recover()
    await asyncio.gather(popping, return_exceptions=True)

    async def waiting_again() -> bool:
        return (await queue.stats()).ready == 1

    await eventually(waiting_again)


class _BadCounters(MemoryBackend):
    """Hands jobs out with counters that no honest history has."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        return [
            Reserved(item.id, item.queue, item.payload, item.receipt, attempt, lost)
            for item, (attempt, lost) in zip(
                await super().pop(queues, limit), [(0, 0), (-3, 0), (1, -1)], strict=False
            )
        ]


@pytest.mark.rule("MAL-1")
async def test_counters_out_of_range_are_malformed() -> None:
    async with Queue(_BadCounters(Shelf(), lease=60, clock=ManualClock())) as queue:
        await queue.push_many([Note("a"), Note("b"), Note("c")])

        with pytest.raises(AqueueError, match="moved to the failed store"):
            await queue.pop_now(3)

        assert [(job.reason, job.attempts >= 0) for job in await queue.failed.list()] == [
            ("malformed", True)
        ] * 3
        assert await queue.size() == 0


class _SaysNothing(MemoryBackend):
    """Can't tell whether a settlement was applied."""

    async def ack(self, batch: Sequence[Reserved]) -> Sequence[Answer]:
        return [Verdict.UNKNOWN] * len(batch)


@pytest.mark.rule("FENCE-1")
async def test_a_settlement_the_store_cant_tell_of_is_unknown() -> None:
    async with Queue(_SaysNothing(Shelf(), lease=60, clock=ManualClock())) as queue:
        id = await queue.push(Note("x"))
        [delivery] = await queue.pop_now(1)

        with pytest.raises(OutcomeUnknown) as caught:
            await queue.ack(delivery)

        assert caught.value.job_id == id


@pytest.mark.rule("FACE-1")
async def test_opening_that_fails_leaves_the_queue_closed(clock: ManualClock) -> None:
    class Shut(MemoryBackend):
        closed = 0

        async def open(self) -> None:
            raise NotDispatched("no server there")

        async def aclose(self) -> None:
            self.closed += 1

    backend = Shut(Shelf(), lease=60, clock=clock)
    queue = Queue(backend)

    with pytest.raises(ConnectionFailed):
        await queue.open()

    assert backend.closed == 1
    with pytest.raises(QueueClosed):
        await queue.size()


@pytest.mark.rule("FACE-1")
async def test_a_failed_store_that_wont_open_closes_the_first(clock: ManualClock) -> None:
    class Counting(MemoryBackend):
        is_open = False

        async def open(self) -> None:
            self.is_open = True

        async def aclose(self) -> None:
            self.is_open = False

    class Shut(MemoryBackend):
        async def open(self) -> None:
            raise NotDispatched("no server there")

    first = Counting(Shelf(), lease=60, clock=clock)
    queue = Queue(first, failed=Shut(Shelf(), lease=60, clock=clock))

    with pytest.raises(ConnectionFailed):
        await queue.open()

    assert not first.is_open


class _Unconfirming(MemoryBackend):
    """A broker that acknowledges every other publish, and answers the rest with something else."""

    async def push(self, batch: Sequence[Message]) -> Sequence[Stored]:  # type: ignore[override]  # errors too
        await super().push(batch[::2])
        return [
            None if number % 2 == 0 else PublishNotConfirmed("nack", job_id=message.id)
            for number, message in enumerate(batch)
        ]


@pytest.mark.rule("PUSH-5", "PUSH-7")
async def test_an_answer_that_is_no_acknowledgement_reaches_its_own_pusher() -> None:
    async with Queue(_Unconfirming(Shelf(), lease=60, clock=ManualClock())) as queue:
        with pytest.raises(PushManyError) as caught:
            await queue.push_many([Note("stored"), Note("refused")])

        stored, refused = caught.value.outcomes
        assert isinstance(stored, str)
        assert isinstance(refused, PublishNotConfirmed)
        assert refused.job_id != stored
        assert await queue.size() == 1
