"""Chains and batches over a store's notes: what follows is stored once, with what calls for it."""

import asyncio

from aqueue.delivery import Delivery
from aqueue.errors import AqueueError, NotesMissing
from aqueue.handlers import Handlers
from aqueue.plans import batch, chain, step
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, job_id
from aqueue.worker import Worker


async def _refuses_flows(harness: Harness) -> None:
    """Where nothing can be counted, nothing is sent."""
    queue = await harness.queue()
    for plan in (chain(Note("a"), Note("b")), batch([Note("a")], then=Note("b"))):
        with raises(NotesMissing, "a chain or a batch on a store without notes") as caught:
            await queue.push(plan)
        assert harness.capabilities.system in str(caught.error), "the refusal does not name the backend"
    await harness.expect_counts(queue)


@rule("CHAIN-1")
async def each_step_follows_the_one_before_it(harness: Harness) -> None:
    """Once that has succeeded, on its own queue."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue = await harness.queue()
    await queue.push(chain(Note("a"), step(Note("b"), queue="second"), Note("c")))
    await harness.expect_counts(queue, ready=1)
    await harness.expect_counts(queue, "second")

    await queue.ack(await harness.take(queue))
    await harness.expect_counts(queue)
    held = await harness.take(queue, "second")
    assert held.job(Note) == Note("b")
    await queue.ack(held)

    held = await harness.take(queue)
    assert held.job(Note) == Note("c")
    await queue.ack(held)
    await harness.expect_counts(queue)
    await harness.expect_counts(queue, "second")


@rule("CHAIN-1", "LEASE-2")
async def a_step_that_runs_again_is_followed_once(harness: Harness) -> None:
    """Its worker did all but the ack, and died; even when the step that follows is long done."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue, dying = await harness.queue(), await harness.queue()
    await queue.push(chain(Note("a"), step(Note("b"), queue="second")))
    held = await harness.take(dying)
    await dying.endings.done(held, None)
    await queue.ack(await harness.take(queue, "second"))

    await harness.lose(dying)
    await queue.ack(await harness.take(queue))

    await harness.expect_counts(queue)
    await harness.expect_counts(queue, "second")


@rule("CHAIN-1", "FAIL-2")
async def a_failed_step_ends_its_chain_until_it_is_put_back(harness: Harness) -> None:
    """Retries change nothing; and once put back by hand, it goes on."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue = await harness.queue()
    id = await queue.push(chain(Note("a"), Note("b")))
    await queue.release(await harness.take(queue))
    await queue.fail(await harness.take(queue))
    await harness.expect_counts(queue)

    assert await queue.failed.retry(id)
    await queue.ack(await harness.take(queue))

    assert (await harness.take(queue)).job(Note) == Note("b")


@rule("BATCH-1")
async def what_follows_a_batch_comes_once_all_have_succeeded(harness: Harness) -> None:
    """Over two workers, and however many end at once."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    one, other = await harness.queue(), await harness.queue()
    ran: list[str] = []
    workers = [Worker(queue, _noting(ran), queues=["default"]) for queue in (one, other)]
    id = await one.push(
        batch(
            [Note(str(number)) for number in range(20)],
            then=step(Note("then"), queue="after"),
            finally_=step(Note("finally"), queue="elsewhere"),
            on_failure=step(Note("never"), queue="elsewhere"),
        )
    )

    await asyncio.gather(*(worker.run_all() for worker in workers))

    assert sorted(ran, key=int) == [str(number) for number in range(20)]
    counts = await other.batch(id)
    assert counts is not None, "the batch is not known"
    assert (counts.total, counts.done, counts.failed, counts.pending) == (20, 20, 0, 0)
    await harness.expect_counts(one, "after", ready=1)
    await harness.expect_counts(one, "elsewhere", ready=1)
    assert (await harness.take(one, "elsewhere")).job(Note) == Note("finally")


@rule("BATCH-1", "LEASE-2")
async def a_member_counts_once_however_often_it_runs(harness: Harness) -> None:
    """A redelivered member is not two, so nothing follows too early."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue, dying = await harness.queue(), await harness.queue()
    id = await queue.push(batch([Note("a"), step(Note("b"), queue="b")], then=step(Note("c"), queue="c")))
    held = await harness.take(dying)
    await dying.endings.done(held, None)
    await harness.lose(dying)

    await queue.ack(await harness.take(queue))
    await _expect_batch(queue, id, done=1)
    await harness.expect_counts(queue, "c")

    await queue.ack(await harness.take(queue, "b"))
    await _expect_batch(queue, id, done=2)
    await harness.expect_counts(queue, "c", ready=1)


@rule("BATCH-1", "FAIL-2")
async def a_failed_member_counts_as_done_once_it_has_succeeded(harness: Harness) -> None:
    """The first failure is told once, and so is that all have ended."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue = await harness.queue()
    members = [Note("a"), Note("b"), step(Note("c"), queue="c")]
    after = {name: step(Note(name), queue=name) for name in ("then", "failure", "finally")}
    id = await queue.push(
        batch(members, then=after["then"], on_failure=after["failure"], finally_=after["finally"])
    )
    failed = [await harness.take(queue), await harness.take(queue)]
    for held in failed:
        await queue.fail(held)
    await harness.expect_counts(queue, "failure", ready=1)
    await harness.expect_counts(queue, "finally")

    await queue.ack(await harness.take(queue, "c"))
    await _expect_batch(queue, id, done=1, failed=2)
    await harness.expect_counts(queue, "finally", ready=1)
    await harness.expect_counts(queue, "then")

    for held in failed:
        assert await queue.failed.retry(held.id)
        await queue.ack(await harness.take(queue))
    await _expect_batch(queue, id, done=3)
    await harness.expect_counts(queue, "then", ready=1)
    await harness.expect_counts(queue, "failure", ready=1)
    await harness.expect_counts(queue, "finally", ready=1)


@rule("BATCH-1", "PUSH-10")
async def a_batch_pushed_again_under_its_id_is_one_batch(harness: Harness) -> None:
    """What is there is not stored twice, and what has ended does not run again."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue = await harness.queue()
    plan = batch([Note("a"), step(Note("b"), queue="b")], then=step(Note("c"), queue="c"))
    id = await queue.push(plan, id=job_id(1))
    assert await queue.push(plan, id=job_id(1)) == id
    await harness.expect_counts(queue, ready=1)
    await queue.ack(await harness.take(queue))

    assert await queue.push(plan, id=job_id(1)) == id

    await harness.expect_counts(queue)
    await harness.expect_counts(queue, "b", ready=1)
    with raises(AqueueError, "another batch under the same id"):
        await queue.push(batch([Note("a")], then=step(Note("c"), queue="c")), id=job_id(1))


@rule("BATCH-1")
async def an_empty_batch_is_done_at_once(harness: Harness) -> None:
    """Nobody waits for the last of none."""
    if not harness.keeps_notes:
        await _refuses_flows(harness)
        return
    queue = await harness.queue()

    await queue.push(batch([], then=Note("then"), on_failure=Note("never")))

    assert (await harness.take(queue)).job(Note) == Note("then")
    await harness.expect_counts(queue, leased=1)


async def _expect_batch(queue: Queue, id: str, *, done: int, failed: int = 0) -> None:
    counts = await queue.batch(id)
    assert counts is not None, "the batch is not known"
    assert (counts.done, counts.failed) == (done, failed), f"{counts}, not {done} and {failed}"


def _noting(ran: list[str]) -> Handlers:
    handlers = Handlers()

    async def handle(note: Note, _: Delivery) -> None:
        ran.append(note.text)

    handlers.on(Note, handle)
    return handlers
