"""Results and progress over a store's notes: kept before the settlement, for a time, under the job's id."""

import asyncio

from aqueue.contract.signing import Keyring
from aqueue.delivery import Delivery
from aqueue.errors import NotesMissing, ResultFailed, ResultMissing, ResultTimeout
from aqueue.handlers import Handlers
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note
from aqueue.worker import Worker

_LONG = 600.0


async def _refuses_results(harness: Harness) -> None:
    """Where nothing can be kept, nothing is sent, and nobody waits for what can't come."""
    queue = await harness.queue()
    with raises(NotesMissing, "a result on a store without notes") as caught:
        await queue.push(Note("x"), results=_LONG)
    assert harness.capabilities.system in str(caught.error), "the refusal does not name the backend"
    with raises(NotesMissing, "asking for a result on a store without notes"):
        await queue.result("0" * 32)
    await harness.expect_counts(queue)


@rule("RESULT-1")
async def what_a_job_returned_is_found_by_its_id(harness: Harness) -> None:
    """By any queue object on the store, also by one that waits for it; without `results` nothing is kept."""
    if not harness.keeps_notes:
        await _refuses_results(harness)
        return
    queue, other = await harness.queue(), await harness.queue()
    id = await queue.push(Note("a"), results=_LONG)
    plain = await queue.push(Note("b"))
    with raises(ResultMissing, "the result of a job that is not done"):
        await other.result(id)
    with raises(ResultTimeout, "waiting for a job that nobody runs"):
        await other.result(id, timeout=0.05)

    waiting = asyncio.create_task(other.result(id, timeout=harness.patience))
    await Worker(queue, _returning({"text": ["a", 1, None]})).run_all()

    assert await waiting == {"text": ["a", 1, None]}
    assert await queue.result(id) == {"text": ["a", 1, None]}
    with raises(ResultMissing, "the result of a job whose result is not kept"):
        await queue.result(plain)


@rule("RESULT-1")
async def a_result_is_forgotten_after_its_time(harness: Harness) -> None:
    """By the store's clock."""
    if not harness.keeps_notes:
        await _refuses_results(harness)
        return
    queue = await harness.queue(lease=60)
    id = await queue.push(Note("a"), results=harness.lease)
    await queue.ack(await harness.take(queue), result=1)
    if harness.clock is not None:
        assert await queue.result(id) == 1

    await harness.pass_time(harness.lease * 1.1)

    with raises(ResultMissing, "a result that has expired"):
        await queue.result(id)


@rule("RESULT-1", "FAIL-2")
async def a_failed_job_tells_its_failure_until_it_succeeds(harness: Harness) -> None:
    """A retry says nothing yet; and a result, once there, is not replaced by a later failure."""
    if not harness.keeps_notes:
        await _refuses_results(harness)
        return
    queue = await harness.queue()
    id = await queue.push(Note("a"), results=_LONG)
    await queue.release(await harness.take(queue))
    with raises(ResultMissing, "the result of a job that will be retried"):
        await queue.result(id)
    await queue.fail(await harness.take(queue), "no such user", error=ValueError("nobody"))

    with raises(ResultFailed, "the result of a failed job") as caught:
        await queue.result(id)
    failure = caught.error
    assert (failure.reason, failure.error_type, failure.error) == ("no such user", "ValueError", "nobody")

    assert await queue.failed.retry(id)
    await queue.ack(await harness.take(queue), result="done")
    assert await queue.result(id) == "done"


@rule("RESULT-1")
async def a_result_without_a_wire_form_fails_nothing(harness: Harness) -> None:
    """The job has succeeded, and asking for the result says what is wrong with it."""
    if not harness.keeps_notes:
        await _refuses_results(harness)
        return
    queue = await harness.queue()
    id = await queue.push(Note("a"), results=_LONG)

    await Worker(queue, _returning([{1, 2}])).run_all()

    await harness.expect_counts(queue)
    with raises(ResultMissing, "a result with no wire form") as caught:
        await queue.result(id)
    assert "[0]" in str(caught.error), "the error does not say where"


@rule("RESULT-1", "SIGN-1", "SIGN-4")
async def a_result_is_sealed_as_its_job_is(harness: Harness) -> None:
    """Who holds no key, or another, reads no result; and a result is no other job's."""
    if not harness.keeps_notes:
        await _refuses_results(harness)
        return
    keys = Keyring(active="k", keys={"k": b"k" * 32})
    others = Keyring(active="k", keys={"k": b"x" * 32})
    queue, intruder = await harness.queue(keyring=keys), await harness.queue(keyring=others)
    id = await queue.push(Note("a"), results=_LONG)
    await queue.ack(await harness.take(queue), result="secret")

    assert await queue.result(id) == "secret"
    with raises(ResultMissing, "a result under another key"):
        await intruder.result(id)


@rule("RESULT-2")
async def the_last_word_of_progress_is_kept(harness: Harness) -> None:
    """Whatever was told in between; a job whose result isn't kept may say it all the same."""
    if not harness.keeps_notes:
        await _refuses_results(harness)
        return
    queue, other = await harness.queue(), await harness.queue()
    told: list[float] = []

    async def handle(note: Note, delivery: Delivery) -> None:
        for number in range(20):
            await delivery.progress(number / 20, f"{note.text} {number}")
            told.append(number)

    handlers = Handlers()
    handlers.on(Note, handle)
    id = await queue.push(Note("a"), results=_LONG)
    plain = await queue.push(Note("b"))
    assert await other.progress(id) is None

    await Worker(queue, handlers).run_all()

    progress = await other.progress(id)
    assert len(told) == 40
    assert progress is not None, "nothing was kept"
    assert (progress.fraction, progress.text, progress.state) == (0.95, "a 19", "done")
    assert await queue.progress(plain) is None


def _returning(value: object) -> Handlers:
    handlers = Handlers()

    async def handle(_: Note) -> object:
        return value

    handlers.on(Note, handle)
    return handlers
