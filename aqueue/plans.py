"""Chains and batches as values: which jobs belong together, before they are pushed (CHAIN-1, BATCH-1).

await queue.push(chain(fetch.job(7), step(parse.job(7), queue="heavy"), publish.job(7)))
await queue.push(batch([resize.job(n) for n in range(10_000)], then=report.job()))
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from aqueue.contract.batches import MOST_MEMBERS, Moment
from aqueue.contract.names import check_max_attempts, check_queue_name, check_seconds
from aqueue.contract.notes import check_note_seconds
from aqueue.contract.results import Keep, check_results
from aqueue.errors import InvalidQueueArgument
from aqueue.jobs import job_type

_KEPT = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job of a chain or a batch, and what it says of its own push; None is what the whole says."""

    job: object
    queue: str | None = None
    delay: float | None = None
    max_attempts: int | None = None
    results: Keep = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Jobs that are pushed one after the other, each once the one before it has succeeded (CHAIN-1)."""

    steps: tuple[Planned, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Jobs that run side by side, and what follows when they have ended (BATCH-1).

    `seconds` is how long the batch is known after the last of its jobs that ended.
    """

    members: tuple[Chain, ...]
    followers: "dict[Moment, Chain]"
    seconds: float


Follower: TypeAlias = object
"""A job, a `step(…)`, or a `chain(…)`."""


def step(
    job: object,
    *,
    queue: str | None = None,
    delay: float | timedelta | None = None,
    max_attempts: int | None = None,
    results: float | timedelta | Literal[False] | None = None,
) -> Planned:
    """Return a job of a chain or a batch with what only its own push says.

    `delay` is in seconds, or a timedelta, from the moment that the job would else be ready. Raises
    `InvalidJob` for what is no job, and `InvalidQueueArgument`.
    """
    job_type(type(job))
    return Planned(
        job=job,
        queue=None if queue is None else check_queue_name(queue),
        delay=None if delay is None else check_seconds(delay, "delay"),
        max_attempts=check_max_attempts(max_attempts),
        results=check_results(results),
    )


def chain(*steps: object) -> Chain:
    """Return jobs to push one after the other: each is stored once the one before it has succeeded.

    A step is a job, `step(job, …)` for options of its own, or a chain. Raises `InvalidJob` for anything else,
    and `InvalidQueueArgument` for no step at all.
    """
    if not steps:
        raise InvalidQueueArgument("a chain has at least one step")
    return Chain(tuple(planned for each in steps for planned in _planned(each)))


def batch(
    members: Iterable[object],
    *,
    then: Follower | None = None,
    on_failure: Follower | None = None,
    finally_: Follower | None = None,
    lasts: float | timedelta = _KEPT,
) -> Batch:
    """Return jobs to push together, and what is pushed once when all have succeeded, and so on.

    `then` follows when every member has succeeded, `on_failure` when the first one has failed finally,
    `finally_` when every member has ended. Members and followers are jobs, `step(job, …)` or chains; a chain
    is done when its last step is. A batch is known for `lasts` (30 days) after the last member that ended:
    one that comes later is counted nowhere. Raises as `chain` does.
    """
    followers: dict[Moment, Follower | None] = {"then": then, "on_failure": on_failure, "finally_": finally_}
    planned = tuple(chain(member) for member in members)
    if len(planned) > MOST_MEMBERS:
        raise InvalidQueueArgument(f"a batch has at most {MOST_MEMBERS} members, not {len(planned)}")
    seconds = check_seconds(lasts, "lasts")
    check_note_seconds(seconds)
    return Batch(
        members=planned,
        followers={moment: chain(what) for moment, what in followers.items() if what is not None},
        seconds=seconds,
    )


def _planned(what: object) -> tuple[Planned, ...]:
    if isinstance(what, Chain):
        return what.steps
    if isinstance(what, Batch):
        raise InvalidQueueArgument("a batch is no step: let the batch's then= be the chain that follows it")
    return (what if isinstance(what, Planned) else step(what),)
