"""What a queue holds, as a test looks at it: over `Browsable`, so on any store that can show its jobs."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

import msgspec

from aqueue.contract.envelope import REDACTED, Envelope, Malformed, redacted_by_metadata
from aqueue.contract.names import check_queue_name
from aqueue.errors import Unsupported
from aqueue.jobs import FunctionJob, JobType, job_type
from aqueue.port import Browsable, Held, Standing
from aqueue.queue import Queue

T = TypeVar("T")

Where: TypeAlias = Mapping[str, object] | Callable[[Any], bool]
"""Which jobs are meant: by the values of some of their fields, or by a function of the job."""

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Pushed(Generic[T]):
    """A job that a queue holds: waiting, due in `delay` seconds, or held by a worker."""

    job: T = field(repr=False)
    id: str
    queue: str
    standing: Standing
    delay: float
    max_attempts: int | None
    shown: str = field(repr=False)

    def __str__(self) -> str:
        return self.shown


@overload
async def pushed(
    store: Queue, what: type[T], where: Where | None = None, /, *, queue: str | None = None
) -> list[Pushed[T]]: ...
@overload
async def pushed(
    store: Queue, what: FunctionJob[..., Any], where: Where | None = None, /, *, queue: str | None = None
) -> list[Pushed[Any]]: ...
async def pushed(
    store: Queue, what: object, where: Where | None = None, /, *, queue: str | None = None
) -> list[Pushed[Any]]:
    """Return the jobs of this class that the store holds, by when they are due, then as they were pushed.

    `where` narrows them by field values or by a function of the job, `queue` to one queue. A job that is
    done, or was set aside, is not held any more. Raises `Unsupported` where the store can't show what it
    holds, `InvalidJob` for what is no job, and `TypeError` for a field that the job has not.
    """
    declared = job_type(what)
    names = {declared.name, *declared.aliases}
    fits = _fitting(declared, where)
    found: list[tuple[float, float, Pushed[Any]]] = []
    async for held, envelope in held_jobs(store, queue):
        if envelope is not None and envelope.name in names:
            job = declared.restore(bytes(envelope.args))
            if fits(job):
                found.append((held.delay, envelope.pushed_at, _pushed(job, held, envelope)))
    return [each for _, _, each in sorted(found, key=lambda item: item[:2])]


async def held_jobs(store: Queue, queue: str | None) -> AsyncIterator[tuple[Held, Envelope | None]]:
    """Yield what the store holds on this queue, or on all; without an envelope where nobody can read it."""
    backend = store._store.backend  # the kit looks behind the door that users go through
    if not isinstance(backend, Browsable):
        raise Unsupported(f"{store.capabilities.system} can't show what it holds, so a test can't look at it")
    read = store._popper._open_envelope
    names = [check_queue_name(queue)] if queue is not None else sorted(await backend.queues())
    for name in names:
        page = partial(backend.browse, name, limit=_PAGE)
        after: str | None = None
        while held := await store._store.run("browse", partial(page, after=after)):
            for each in held:
                try:
                    yield each, read(each.payload)
                except Malformed:
                    yield each, None
            after = held[-1].id


def shown(held: Held, envelope: Envelope | None) -> str:
    """Return one line about a job, fit for a log: its `Sensitive` arguments are redacted (WORK-5)."""
    state = f"due in {held.delay:g} s" if held.standing is Standing.DELAYED else str(held.standing)
    what = "an unreadable job" if envelope is None else f"{envelope.name} {_redacted(envelope)}"
    return f"{what} on {held.queue!r}, {state}"


def shown_where(declared: JobType, where: Where | None) -> str:
    """Return what was looked for in words, without the values of `Sensitive` fields."""
    if where is None:
        return ""
    if callable(where):
        return f" that fits {getattr(where, '__qualname__', 'the given function')}"
    hidden = declared.codec.sensitive.split(",")
    values = {name: REDACTED if name in hidden else value for name, value in where.items()}
    return f" with {values}"


def _pushed(job: object, held: Held, envelope: Envelope) -> Pushed[Any]:
    return Pushed(
        job, held.id, held.queue, held.standing, held.delay, envelope.max_attempts, shown(held, envelope)
    )


def _fitting(declared: JobType, where: Where | None) -> Callable[[object], bool]:
    if where is None:
        return lambda _: True
    if callable(where):
        return where
    wanted = dict(where)
    fields: Sequence[str] = [spec.name for spec in declared.codec.fields]
    for name in wanted:
        if name not in fields:
            raise TypeError(
                f"job {declared.name} has no field {name!r}; it has: {', '.join(fields) or 'none'}"
            )
    return lambda job: all(getattr(job, name) == value for name, value in wanted.items())


def _redacted(envelope: Envelope) -> dict[str, Any]:
    try:
        args = cast("dict[str, Any]", msgspec.json.decode(envelope.args))
        return redacted_by_metadata(args, envelope.metadata)
    except Exception:  # noqa: BLE001 - better nothing than a secret
        return {"*": REDACTED}
