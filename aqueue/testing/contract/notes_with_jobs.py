"""Notes with jobs: both are in the store, or neither is."""

import asyncio

from aqueue.notes import Change, Decision, Leave, Note
from aqueue.testing.contract.harness import DEFAULT, Harness
from aqueue.testing.contract.note_samples import KEY, message, refuses_notes, says
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import job_id


@rule("NOTE-2")
async def jobs_come_with_their_note_or_not_at_all(harness: Harness) -> None:
    """Whoever loses the race for the note has pushed nothing; the winner's jobs come as pushed ones do."""
    queue, other = await harness.queue(), await harness.queue()
    if await refuses_notes(harness, queue):
        return
    won = await asyncio.gather(
        *(
            each.notes.write(DEFAULT, KEY, b"x", expected="", messages=[message(10 * n), message(10 * n + 1)])
            for n, each in enumerate((queue, other) * 5, start=1)
        )
    )

    assert won.count(True) == 1
    await harness.expect_counts(queue, ready=2)
    first = 10 * (won.index(True) + 1)
    harness.expect_order(await harness.take_many(queue, 2), [job_id(first), job_id(first + 1)])
    token = (await queue.notes.read(DEFAULT, KEY)).token
    assert await queue.notes.write(DEFAULT, KEY, None, expected=token, messages=[message(1)])
    assert (await harness.take(queue)).id == job_id(1), "a removal pushes its jobs too"


@rule("NOTE-2", "DELAY-1")
async def jobs_of_a_note_keep_their_delay(harness: Harness) -> None:
    """They wait as long as a push would let them wait."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    delayed = [message(1, delay=harness.lease / 2), message(2, delay=3600), message(3)]

    assert await queue.notes.write(DEFAULT, KEY, b"x", expected="", messages=delayed)

    assert (await harness.take(queue)).id == job_id(3)
    await harness.pass_time(harness.lease * 0.6)
    assert (await harness.take(queue)).id == job_id(1)
    await harness.expect_nothing(queue)


@rule("NOTE-2", "PUSH-10")
async def a_job_that_the_queue_holds_is_not_stored_again(harness: Harness) -> None:
    """The note is written all the same, and so are the other jobs."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return
    assert await queue.notes.write(DEFAULT, KEY, b"1", expected="", messages=[message(1)])
    token = (await queue.notes.read(DEFAULT, KEY)).token

    again = [message(1), message(2), message(2)]
    assert await queue.notes.write(DEFAULT, KEY, b"2", expected=token, messages=again)

    assert await says(queue) == b"2"
    taken = await harness.take_many(queue, 2)
    assert {delivery.id for delivery in taken} == {job_id(1), job_id(2)}
    await harness.expect_nothing(queue)


@rule("NOTE-2", "POP-3")
async def jobs_of_a_note_wake_who_waits(harness: Harness) -> None:
    """A pop that waits on any connection gets them, as it gets what is pushed."""
    queue, other = await harness.queue(), await harness.queue()
    if await refuses_notes(harness, queue):
        return
    async with harness.promptly(), asyncio.TaskGroup() as group:
        waiting = [group.create_task(each.pop()) for each in (queue, other)]
        assert await queue.pop(timeout=0.1, queues=["elsewhere"]) is None
        for number, _ in enumerate(waiting):
            key = f"check:{number}"
            assert await queue.notes.write(DEFAULT, key, b"x", expected="", messages=[message(number)])

    taken = [delivery.id for task in waiting if (delivery := task.result()) is not None]
    assert sorted(taken) == [job_id(0), job_id(1)]


@rule("NOTE-2", "PUSH-11")
async def a_cancelled_change_is_made_whole_or_not_at_all(harness: Harness) -> None:
    """Wherever it is cut, the note counts exactly the jobs that are in the queue."""
    queue = await harness.queue()
    if await refuses_notes(harness, queue):
        return

    def one_more_job(note: Note) -> Decision[int]:
        number = int(note.value or b"0") + 1
        return Change(value=b"%d" % number, messages=(message(number),), result=number)

    for turns in range(30):
        changing = asyncio.ensure_future(queue.notes.change(DEFAULT, KEY, one_more_job))
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        changing.cancel()
        await asyncio.wait({changing})
    final = await queue.notes.change(DEFAULT, KEY, one_more_job)

    await harness.expect_counts(queue, ready=final)
    assert await queue.notes.change(DEFAULT, KEY, lambda note: Leave(note.value)) == b"%d" % final
