"""`assert_pushed` and `assert_not_pushed`: what a test holds a queue to, in words that hide secrets."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from aqueue.contract.names import check_seconds
from aqueue.jobs import FunctionJob, JobType, job_type
from aqueue.queue import Queue
from aqueue.testing.contents import Pushed, Where, held_jobs, pushed, shown, shown_where

_MOST_SHOWN = 10


async def assert_pushed(
    store: Queue,
    what: object,
    where: Where | None = None,
    /,
    *,
    queue: str | None = None,
    count: int | None = None,
    delay: float | timedelta | None = None,
    within: float = 1.0,
) -> list[Pushed[Any]]:
    """Hold the store to holding such a job, or exactly `count` of them, and return them.

    `what` is a job class, a function job, or a job, which must be held as it is. `where` narrows it by the
    values of some fields, or by a function of the job; `queue` to one queue. `delay` says in how many
    seconds, or what timedelta, they are due, to within `within` seconds, as a store's clock runs on. Raises
    `AssertionError` with what is there instead, `Sensitive` values redacted, and as `pushed` does.
    """
    __tracebackhide__ = True
    declared, found = await _found(store, what, where, queue)
    if delay is not None:
        due = check_seconds(delay, "delay")
        found = [each for each in found if abs(each.delay - due) <= within]
    if (found and count is None) or len(found) == count:
        return found
    number = "no" if count is None else f"{len(found)}, not {count},"
    due_text = "" if delay is None else f" due in {check_seconds(delay, 'delay'):g} s"
    words = f"{number} {_words(declared, what, where, queue)}{due_text}"
    raise AssertionError(f"{words} was pushed; {await _instead(store)}")


async def assert_not_pushed(
    store: Queue, what: object, where: Where | None = None, /, *, queue: str | None = None
) -> None:
    """Hold the store to holding no such job; see `assert_pushed`."""
    __tracebackhide__ = True
    declared, found = await _found(store, what, where, queue)
    if found:
        words = _words(declared, what, where, queue)
        raise AssertionError(f"{len(found)} {words} was pushed:{_listed([str(each) for each in found])}")


async def _found(
    store: Queue, what: object, where: Where | None, queue: str | None
) -> tuple[JobType, list[Pushed[Any]]]:
    declared = job_type(what)
    if isinstance(what, type | FunctionJob):
        return declared, await pushed(store, declared.payload, where, queue=queue)
    if where is not None:
        raise TypeError("give a job class and what to look for, or a job as it is, not both")
    return declared, await pushed(store, declared.payload, lambda job: bool(job == what), queue=queue)


def _words(declared: JobType, what: object, where: Where | None, queue: str | None) -> str:
    if not isinstance(what, type | FunctionJob):
        where = {spec.name: getattr(what, spec.name) for spec in declared.codec.fields}
    place = "" if queue is None else f" on {queue!r}"
    return f"{declared.name}{shown_where(declared, where)}{place}"


async def _instead(store: Queue) -> str:
    """Say what the store holds on all of its queues: a wrong queue is a common mistake."""
    lines = [shown(held, envelope) async for held, envelope in held_jobs(store, None)]
    return f"it holds:{_listed(lines)}" if lines else "it holds nothing"


def _listed(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return "".join(f"\n  {line}" for line in [*lines[:_MOST_SHOWN], *more])
