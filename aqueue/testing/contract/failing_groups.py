"""Failures of one kind: counted together, listed together, put back together."""

from datetime import timedelta

from aqueue.errors import FailedStoreMissing, InvalidQueueArgument
from aqueue.queue import Queue
from aqueue.testing.contract.failing import fail_jobs
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Measure, Note

_SLACK = timedelta(milliseconds=1)


async def _fail(
    harness: Harness, queue: Queue, job: object, error: Exception, *, name: str = "default"
) -> str:
    """Push a job and let it fail with this error, raised in one and the same place; return its id."""
    id = await queue.push(job, queue=name)
    delivery = await harness.take(queue, name)
    with raises(Exception, "raising") as caught:
        _throw(error)
    await queue.fail(delivery, error=caught.error)
    return id


def _throw(error: Exception) -> None:
    raise error


@rule("FAIL-4")
async def failures_of_one_kind_are_counted_together(harness: Harness) -> None:
    """By job, error and words, whatever numbers, ids and names are among them; the most frequent first."""
    queue = await harness.queue()
    missing = [
        await _fail(harness, queue, Note("x"), ValueError(f"no user {n} called 'Ann {n}'"))
        for n in (1, 22, 333)
    ]
    await _fail(harness, queue, Note("x"), KeyError("no user 1 called 'Ann 1'"))
    await _fail(harness, queue, Measure(1.5), ValueError("no user 1 called 'Ann 1'"))
    await _fail(harness, queue, Note("x"), ValueError("no user 1 called 'Ann 1'"), name="another")

    groups = await queue.failed.groups()

    assert [(group.name, group.error_type, group.count) for group in groups] == [
        ("contract.note", "ValueError", 4),
        ("contract.note", "KeyError", 1),
        ("contract.measure", "ValueError", 1),
    ]
    assert groups[0].error == "no user <n> called <text>"
    assert groups[0].frame == "contract/failing_groups.py in _throw"
    assert len({group.fingerprint for group in groups}) == 3
    assert [group.count for group in await queue.failed.groups(queue="another")] == [1]
    assert [group.count for group in await queue.failed.groups(job="contract.measure")] == [1]
    [mine, *_] = await queue.failed.groups(queue="default")
    assert (mine.count, mine.example) == (3, missing[-1])
    failed = await queue.failed.list()
    times = [job.failed_at for job in failed if job.id in missing]
    assert abs(mine.first_at - times[0]) < _SLACK, "the group doesn't begin with its first failure"
    assert abs(mine.last_at - times[-1]) < _SLACK, "the group doesn't end with its last failure"


@rule("FAIL-4", "FAIL-6")
async def a_group_is_listed_and_goes_back_by_itself(harness: Harness) -> None:
    """Its fingerprint chooses its jobs, page by page, in a listing and in a re-drive."""
    queue = await harness.queue()
    ids: list[str] = []
    for number in range(6):
        ids.append(await _fail(harness, queue, Note("x"), ValueError(f"number {number}")))
        await _fail(harness, queue, Note("x"), LookupError(f"number {number}"))
    group = (await queue.failed.list())[0].group

    first = await queue.failed.list(group=group, limit=4)
    rest = await queue.failed.list(group=group, limit=4, after=first[-1].id)

    assert [job.id for job in (*first, *rest)] == ids
    assert {job.group for job in (*first, *rest)} == {group}
    assert await queue.failed.list(group="0" * 16) == []
    assert await queue.failed.retry_all(group="0" * 16) == 0
    assert await queue.failed.retry_all(group=group, dry_run=True) == 6
    assert await queue.failed.retry_all(group=group, limit=2) == 2
    assert await queue.failed.retry_all(group=group) == 4
    assert {delivery.id for delivery in await harness.take_many(queue, 6)} == set(ids)
    assert {job.error_type for job in await queue.failed.list()} == {"LookupError"}
    await harness.expect_nothing(queue)


@rule("FAIL-4")
async def only_so_many_groups_are_told_apart(harness: Harness) -> None:
    """What fits in none of them is counted in one last group without a fingerprint."""
    queue = await harness.queue()
    for kind in (ValueError, KeyError, LookupError, OSError, KeyError):
        await _fail(harness, queue, Note("x"), kind("no"))

    groups = await queue.failed.groups(limit=2)

    counts = [(group.error_type, group.count) for group in groups]
    assert counts == [("KeyError", 2), ("ValueError", 1), ("", 2)]
    assert groups[-1].fingerprint == ""
    for limit in (0, -1, 1.5):
        with raises(InvalidQueueArgument, f"groups(limit={limit})"):
            await queue.failed.groups(limit=limit)  # type: ignore[arg-type]  # what is refused


@rule("FAIL-4", "FAIL-3")
async def odd_texts_have_a_group_too(harness: Harness) -> None:
    """Whatever a failure says, and a failure that says nothing."""
    queue = await harness.queue()
    for text in ("", "\x00", "\ud800", "'" * 5000, "a" * 300_000, "\n\r\t", "🦆 1", "🦆 2"):
        await _fail(harness, queue, Note("x"), ValueError(text))
    await fail_jobs(harness, queue, 2)

    groups = await queue.failed.groups()

    assert sum(group.count for group in groups) == 10
    assert max(len(group.error) for group in groups) <= 300
    assert sorted(group.count for group in groups if group.error in ("🦆 <n>", "error")) == [1, 2, 2]
    assert all(group.fingerprint for group in groups)


@rule("FAIL-4")
async def a_store_that_cannot_list_has_no_groups(harness: Harness) -> None:
    """Counting by kind means looking at each; a store that can't says what it needs."""
    queue = await harness.queue(own_failed=True)
    if harness.keeps_failed:
        assert await queue.failed.groups() == []
        return
    with raises(FailedStoreMissing, "grouping failed jobs that can't be listed") as caught:
        await queue.failed.groups()
    assert "failed=" in str(caught.error)
