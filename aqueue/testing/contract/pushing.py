"""Pushing: what is refused before anything is sent, and what is true once `push` has returned."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from aqueue.errors import InvalidJob, InvalidQueueArgument, UnserializableJob, Unsupported
from aqueue.port import Clearable, Transactional
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Capped, Measure, NotAJob, Note, job_id

_NAN = float("nan")
_BAD_DELAYS: tuple[Any, ...] = (
    -1, -0.001, _NAN, float("inf"), float("-inf"), True, "5", None, timedelta(seconds=-1), 10**400,
)  # fmt: skip
_BAD_CAPS: tuple[Any, ...] = (-1, 1.5, True, "3", _NAN)


async def _refuses(kind: type[Exception], queue: Queue, job: object, /, **options: Any) -> None:
    what = f"push with {options or type(job).__name__}"
    with raises(kind, what):
        await queue.push(job, **options)
    with raises(kind, what):
        await queue.push_many([Note("fit"), job], **options)


@rule("PUSH-1")
async def bad_delays_are_refused_with_nothing_sent(harness: Harness) -> None:
    """A delay is 0 or a positive finite number of seconds, or a timedelta."""
    queue = await harness.queue()

    for delay in _BAD_DELAYS:
        await _refuses(InvalidQueueArgument, queue, Note("x"), delay=delay)

    await harness.expect_counts(queue)


@rule("PUSH-1")
async def bad_attempt_caps_are_refused_with_nothing_sent(harness: Harness) -> None:
    """`max_attempts` is None or a whole number from 0."""
    queue = await harness.queue()

    for cap in _BAD_CAPS:
        await _refuses(InvalidQueueArgument, queue, Note("x"), max_attempts=cap)

    await harness.expect_counts(queue)


@rule("PUSH-1")
async def a_due_time_is_aware_and_excludes_a_delay(harness: Harness) -> None:
    """`at` needs a time zone, and stands alone."""
    queue = await harness.queue()
    naive = datetime(2999, 1, 1)  # noqa: DTZ001 - a naive one is what is to be refused
    soon = datetime.now(UTC) + timedelta(seconds=60)

    for options in ({"at": naive}, {"at": "2999-01-01"}, {"at": soon, "delay": 5}):
        await _refuses(InvalidQueueArgument, queue, Note("x"), **options)

    await harness.expect_counts(queue)


@rule("PUSH-1")
async def arguments_are_checked_before_the_job_is_encoded(harness: Harness) -> None:
    """A bad delay is reported although the job is unfit as well: encoding comes after."""
    queue = await harness.queue()

    await _refuses(InvalidQueueArgument, queue, Measure(_NAN), delay=-1)
    await _refuses(InvalidQueueArgument, queue, Measure(_NAN), queue="no spaces")

    await harness.expect_counts(queue)


@rule("PUSH-1")
async def the_attempt_cap_travels_with_the_job(harness: Harness) -> None:
    """None stays None, 0 stays 0, and the push's own cap wins over the declared one."""
    queue = await harness.queue()
    caps = {await queue.push(Note("x"), max_attempts=cap): cap for cap in (None, 0, 1, 2**31 - 1)}
    caps[await queue.push(Capped(), queue="default")] = 7
    caps[await queue.push(Capped(), queue="default", max_attempts=2)] = 2

    deliveries = await harness.take_many(queue, len(caps))

    assert {delivery.id: delivery.max_attempts for delivery in deliveries} == caps


@rule("PUSH-1")
async def a_job_goes_to_the_queue_it_declares(harness: Harness) -> None:
    """The push's queue wins, then the job's own, then `default`."""
    queue = await harness.queue()
    await queue.push(Capped())
    await queue.push(Capped(), queue="elsewhere")
    await queue.push(Note("x"))

    for name in ("capped", "elsewhere", "default"):
        assert (await harness.take(queue, name)).queue == name


@rule("PUSH-1", "DELAY-1")
async def a_due_time_in_the_past_is_now(harness: Harness) -> None:
    """`at` before now does not delay; `at` in the future does."""
    queue = await harness.queue()
    past = await queue.push(Note("past"), at=datetime.now(UTC) - timedelta(days=400))
    await queue.push(Note("future"), at=datetime.now(UTC) + timedelta(minutes=10))

    assert (await harness.take(queue)).id == past
    await harness.expect_nothing(queue)
    await harness.expect_counts(queue, delayed=1, leased=1)


@rule("PUSH-1", "ARG-2")
async def what_was_never_declared_a_job_is_refused(harness: Harness) -> None:
    """Only instances of `@job` classes and functions are jobs."""
    queue = await harness.queue()

    for unfit in (NotAJob("x"), {"text": "x"}, None, "contract.note", Note):
        await _refuses(InvalidJob, queue, unfit)

    await harness.expect_counts(queue)


@rule("PUSH-2")
async def a_delay_beyond_the_stores_longest_is_refused(harness: Harness) -> None:
    """The longest delay is accepted, anything over it refused before it is sent."""
    queue = await harness.queue()
    longest = harness.capabilities.longest_delay

    await queue.push(Note("latest"), delay=longest if longest is not None else 10 * 365 * 86_400)
    if longest is not None:
        await _refuses(InvalidQueueArgument, queue, Note("too late"), delay=longest + 1)

    await harness.expect_counts(queue, delayed=1)


@rule("PUSH-3")
async def a_job_is_in_the_store_once_push_returns(harness: Harness) -> None:
    """Another connection sees it at once."""
    pushing, popping = await harness.queue(), await harness.queue()

    id = await pushing.push(Note("hello"))
    await harness.expect_counts(popping, ready=1)

    delivery = await harness.take(popping)
    assert delivery.id == id
    assert delivery.job(Note) == Note("hello")


@rule("PUSH-3")
async def a_job_outlives_the_connection_that_pushed_it(harness: Harness) -> None:
    """Closing right after the push loses nothing, delayed jobs included."""
    pushing, popping = await harness.queue(), await harness.queue()

    ids = [await pushing.push(Note("now")), await pushing.push(Note("later"), queue="later", delay=600)]
    ids += await pushing.push_many([Note("one"), Note("two")])
    await pushing.aclose()

    taken = await harness.take_many(popping, 3)
    assert {delivery.id for delivery in taken} == {ids[0], *ids[2:]}
    await harness.expect_counts(popping, "later", delayed=1)


@rule("PUSH-6")
async def concurrent_pushes_are_each_stored_once(harness: Harness) -> None:
    """What travels together arrives whole: every id once, under its own job."""
    queue = await harness.queue()
    texts = [f"job {number}" for number in range(150)]

    ids = await asyncio.gather(*(queue.push(Note(text)) for text in texts))

    taken = await harness.take_many(queue, len(texts))
    assert {delivery.id: delivery.args["text"] for delivery in taken} == dict(zip(ids, texts, strict=True))
    await harness.expect_nothing(queue)


@rule("PUSH-6")
async def the_order_of_submission_is_kept(harness: Harness) -> None:
    """One queue hands its jobs out in the order they were pushed, together or in turn."""
    queue = await harness.queue()
    ids = list(await asyncio.gather(*(queue.push(Note("together")) for _ in range(40))))
    ids += [await queue.push(Note("in turn")) for _ in range(5)]
    ids += await queue.push_many([Note("at once") for _ in range(40)])

    taken = await harness.take_many(queue, len(ids))

    harness.expect_order(taken, ids)


@rule("PUSH-6", "PUSH-11")
async def a_cancelled_push_harms_no_other(harness: Harness) -> None:
    """Whenever a caller is cancelled, its job is stored once or not at all, and every other one is stored."""
    queue = await harness.queue()
    pushes = [asyncio.create_task(queue.push(Note(str(number)))) for number in range(60)]
    for number, push in enumerate(pushes):
        if number % 3 == 0:
            push.cancel()
        if number % 7 == 0:
            await asyncio.sleep(0)

    outcomes = await asyncio.gather(*pushes, return_exceptions=True)

    stored = {outcome for outcome in outcomes if isinstance(outcome, str)}
    unexpected = [o for o in outcomes if not isinstance(o, str | asyncio.CancelledError)]
    assert not unexpected, f"cancelling some pushes broke others: {unexpected[0]!r}"
    last = await queue.push(Note("the connection still works"))
    taken = [delivery.id for delivery in await harness.take_many(queue, await queue.size())]
    assert len(taken) == len(set(taken)), "a job was stored twice"
    assert stored | {last} <= set(taken), "a job of a caller that was not cancelled is missing"


@rule("PUSH-7")
async def push_many_answers_in_order(harness: Harness) -> None:
    """One id per position; an empty batch is nothing to do."""
    queue = await harness.queue()
    texts = [f"job {number}" for number in range(25)]

    ids = await queue.push_many([Note(text) for text in texts])

    assert await queue.push_many([]) == []
    taken = await harness.take_many(queue, len(texts))
    assert {delivery.id: delivery.args["text"] for delivery in taken} == dict(zip(ids, texts, strict=True))


@rule("PUSH-7")
async def push_many_takes_more_than_one_batch(harness: Harness) -> None:
    """A list longer than the store's own batch is cut, not refused."""
    queue = await harness.queue()
    count = min(harness.capabilities.max_batch, 600) + 1

    ids = await queue.push_many(Note("one of many") for _ in range(count))

    assert len(set(ids)) == count
    await harness.expect_counts(queue, ready=count)


@rule("PUSH-7", "ARG-3")
async def one_unfit_job_refuses_the_whole_batch(harness: Harness) -> None:
    """All jobs are checked before any is sent."""
    queue = await harness.queue()

    for unfit in (Measure(_NAN), Note("\ud800")):
        with raises(UnserializableJob, "an unfit job among fit ones"):
            await queue.push_many([Note("a"), unfit, Note("b")])

    await harness.expect_counts(queue)


@rule("PUSH-8")
async def a_foreign_transaction_is_refused_with_nothing_sent(harness: Harness) -> None:
    """`connection=` is for stores that share the caller's database, and for connections to it."""
    queue = await harness.queue()
    kind = InvalidQueueArgument if isinstance(await harness.backend(), Transactional) else Unsupported

    await _refuses(kind, queue, Note("x"), connection=object())

    await harness.expect_counts(queue)


@rule("PUSH-9")
async def ids_are_random_and_equal_jobs_stay_distinct(harness: Harness) -> None:
    """32 lower-case hexadecimal characters, never the same twice."""
    queue = await harness.queue()

    ids = [await queue.push(Note("same")) for _ in range(5)] + await queue.push_many([Note("same")] * 5)

    assert len(set(ids)) == 10
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    assert {delivery.id for delivery in await harness.take_many(queue, 10)} == set(ids)


@rule("PUSH-9")
async def the_id_stays_through_every_turn(harness: Harness) -> None:
    """Release, give-back, a lost lease, failing and retrying change the delivery, never the id."""
    holder, queue = await harness.queue(), await harness.queue()
    id = await queue.push(Note("x"))

    await queue.release(await harness.take(queue))
    await queue.release(await harness.take(queue), counted=False)
    assert (await harness.take(holder)).id == id
    await harness.lose(holder)
    await queue.fail(await harness.take(queue))
    assert await queue.failed.retry(id)

    assert (await harness.take(queue)).id == id


@rule("PUSH-10")
async def an_id_the_queue_still_holds_stores_nothing_new(harness: Harness) -> None:
    """Waiting, delayed or leased: pushing the same id again returns it and changes nothing."""
    queue = await harness.queue()
    if not harness.capabilities.idempotent_push:
        await _refuses_ids(queue)
        return
    waiting, delayed, leased = job_id(1), job_id(2), job_id(3)
    await queue.push(Note("first"), id=leased)
    held = await harness.take(queue)
    await queue.push(Note("first"), id=waiting)
    await queue.push(Note("first"), id=delayed, delay=600)

    for id in (waiting, delayed, leased):
        assert await queue.push(Note("second"), id=id) == id

    await harness.expect_counts(queue, ready=1, delayed=1, leased=1)
    assert (await harness.take(queue)).args == {"text": "first"}
    await queue.ack(held)


async def _refuses_ids(queue: Queue) -> None:
    with raises(Unsupported, "id= on a store that can't tell a repeated id"):
        await queue.push(Note("x"), id=job_id(1))


@rule("PUSH-10")
async def an_id_is_free_again_once_its_job_has_ended(harness: Harness) -> None:
    """Acked, failed or cleared: the queue holds it no more. Another queue never did."""
    queue = await harness.queue()
    if not harness.capabilities.idempotent_push:
        await _refuses_ids(queue)
        return
    id = job_id(1)

    async def push_and_take() -> None:
        assert await queue.push(Note("x"), id=id) == id
        assert await queue.push(Note("x"), id=id, queue="another") == id
        await queue.ack(await harness.take(queue, "another"))

    await push_and_take()
    await queue.ack(await harness.take(queue))
    await push_and_take()
    await queue.fail(await harness.take(queue))
    await push_and_take()
    if isinstance(await harness.backend(), Clearable):
        assert await queue.clear("default") == 1
        await push_and_take()

    await harness.expect_counts(queue, ready=1)


@rule("PUSH-10")
async def one_id_pushed_at_once_is_stored_once(harness: Harness) -> None:
    """Concurrent pushes of one id, on one connection and on two, agree on one job."""
    queue, other = await harness.queue(), await harness.queue()
    if not harness.capabilities.idempotent_push:
        await _refuses_ids(queue)
        return
    id = job_id(1)

    ids = await asyncio.gather(*(pusher.push(Note("x"), id=id) for pusher in [queue, other] * 10))

    assert set(ids) == {id}
    await harness.expect_counts(queue, ready=1)


@rule("PUSH-10")
async def a_chosen_id_must_be_a_valid_id(harness: Harness) -> None:
    """Anything but 32 lower-case hexadecimal characters is refused."""
    queue = await harness.queue()
    if not harness.capabilities.idempotent_push:
        await _refuses_ids(queue)
        return
    bad: tuple[Any, ...] = ("", "abc", "A" * 32, "0" * 31, "0" * 33, "0" * 31 + "\n", "g" * 32, 7, b"0" * 32)

    for id in bad:
        with raises(InvalidQueueArgument, f"the id {id!r}"):
            await queue.push(Note("x"), id=id)

    await harness.expect_counts(queue)


@rule("PUSH-11")
async def cancelled_pushes_leave_the_connection_usable(harness: Harness) -> None:
    """However early or late each caller is cancelled, the next call on the queue works."""
    queue = await harness.queue()
    for turns in range(12):
        push = asyncio.create_task(queue.push(Note("maybe")))
        for _ in range(turns):
            await asyncio.sleep(0)
        push.cancel()
        await asyncio.gather(push, return_exceptions=True)

        async with harness.promptly():
            id = await queue.push(Note("surely"), queue="surely")
            assert (await harness.take(queue, "surely")).id == id
