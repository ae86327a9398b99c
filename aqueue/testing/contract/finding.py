"""What is told of one job, and of the store: as it is, and nothing changed by it (WHY-1, DOCTOR-1)."""

from typing import Protocol, TypeGuard

from aqueue.diagnosis import Plight, Why
from aqueue.errors import Unsupported
from aqueue.port import Backend, Examinable, Findable, Severity
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, job_id
from aqueue.testing.eventually import eventually


class _Store(Findable, Backend, Protocol):
    """A store that can find a job."""


def _can_find(backend: Backend) -> TypeGuard[_Store]:
    return isinstance(backend, Findable)


@rule("WHY-1")
async def a_job_that_waits_is_told_how_many_are_before_it(harness: Harness) -> None:
    """Counted on its own queue; or else the store says clearly that it can't look."""
    backend, queue = await harness.backend(), await harness.queue()
    ids = [await queue.push(Note(str(number))) for number in range(3)]
    await queue.push(Note("other"), queue="other")
    if not _can_find(backend):
        with raises(Unsupported, "asking about a job on a store that can't be looked through"):
            await queue.why(ids[0])
        return

    told = [await queue.why(id) for id in ids]

    assert [each.plight for each in told] == [Plight.WAITING] * 3
    assert [each.queue for each in told] == ["default"] * 3
    assert [each.ahead for each in told] == [0, 1, 2]
    assert all(each.attempt == 1 and each.lost == 0 and (each.waited or 0) >= 0 for each in told)
    assert (await queue.why(ids[1], queues=["other"])).plight is Plight.UNKNOWN


@rule("WHY-1")
async def a_job_is_told_from_its_push_to_its_end(harness: Harness) -> None:
    """Delayed, held by a worker, put back with an attempt more, done; and none of it by taking it."""
    queue = await harness.queue()
    if not _can_find(await harness.backend()):
        return
    late = await _told(queue, await queue.push(Note("late"), delay=3_600))
    assert late.plight is Plight.DELAYED
    assert 3_000 < (late.due_in or 0) <= 3_600
    id = await queue.push(Note("first"))
    delivery = await harness.take(queue)

    held = await _told(queue, id)
    assert held.plight is Plight.LEASED
    assert 0 < (held.held_for or 0) <= harness.lease
    await queue.release(delivery, delay=3_600)
    back = await _told(queue, id)
    assert (back.plight, back.attempt) == (Plight.DELAYED, 2)

    assert (await queue.why(job_id(1))).plight is Plight.UNKNOWN
    await harness.expect_counts(queue, ready=0, delayed=2)


@rule("WHY-1")
async def a_job_whose_worker_was_lost_is_told_so_until_a_pop_takes_it_back(harness: Harness) -> None:
    """The lease ran out and nobody has popped the queue since: that is what keeps it."""
    queue = await harness.queue()
    if not _can_find(await harness.backend()):
        return
    id = await queue.push(Note("lost"))
    delivery = await harness.take(queue)
    await harness.lose(queue)

    async def it_is_lost() -> None:
        told = await queue.why(id)
        assert told.plight is Plight.LOST
        assert (told.held_for or 0) <= 0

    await eventually(it_is_lost, harness.patience)
    again = await harness.take(queue)
    assert again.id == delivery.id
    told = await queue.why(id)
    assert (told.plight, told.attempt, told.lost) == (Plight.LEASED, 2, 1)


@rule("WHY-1")
async def a_failed_job_is_told_with_its_reason(harness: Harness) -> None:
    """From its failed store, whichever that is; also where the store can't look for any other job."""
    queue = await harness.queue()
    id = await queue.push(Note("failing"))
    await queue.fail(await harness.take(queue), "because")

    told = await queue.why(id)

    assert (told.plight, told.failed_reason, told.queue) == (Plight.FAILED, "because", "default")
    assert told.failed_at is not None


@rule("DOCTOR-1")
async def a_store_says_how_it_is_set_up_and_changes_nothing(harness: Harness) -> None:
    """Every finding that is not well says what it means and every problem what to do; no job is touched."""
    queue = await harness.queue()
    if isinstance(await harness.backend(), Examinable):
        assert [each for each in await queue.doctor.examine() if each.check != "settings"]
    id = await queue.push(Note("untouched"))

    findings = await queue.doctor.examine(["default", "never-used"])

    assert findings
    for each in findings:
        assert each.check, "a finding has no name"
        assert each.found, f"{each.check} was found to be nothing"
        assert each.meaning or each.severity is Severity.OK, f"{each.check} doesn't say what it means"
        assert each.advice or each.severity is not Severity.PROBLEM, f"{each.check} doesn't say what to do"
    taken = await harness.take(queue)
    assert (taken.id, taken.attempt) == (id, 1)
    await queue.ack(taken)


async def _told(queue: Queue, id: str) -> Why:
    told = await queue.why(id)
    assert told.reason, "nothing was said"
    assert told.id == id
    return told
