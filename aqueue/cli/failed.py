"""`aqueue failed …`: what was set aside, why, and what becomes of it (FAIL-2)."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import click

from aqueue.cli.connecting import as_json, connected, run_on
from aqueue.cli.output import (
    in_one_line,
    is_watched,
    json_time,
    local_time,
    print_json,
    print_table,
    printable,
    progress,
)
from aqueue.errors import JobReconstructionError
from aqueue.failed import FailedJob, FailedJobs
from aqueue.queue import Queue

_PAGE = 50
_SLICES = 20
_WIDEST = 60
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _age_in_seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", value.strip(), re.ASCII)
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not an age: write seconds, or 90m, 12h, 30d", context, parameter
        )
    return float(found[1]) * _UNITS[found[2]]


@click.group()
def failed() -> None:
    """Look at failed jobs, put them back, or get rid of them."""


@failed.command("list")
@click.option("--queue", "on", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--job", metavar="NAME", help="Only jobs with this wire name.")
@click.option("--after", metavar="ID", help="Start after this job: the last one of the page before.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="How many at most.")
@as_json
@connected
def list_(
    queue: Queue, *, on: str | None, job: str | None, after: str | None, limit: int, as_json: bool
) -> None:
    """List failed jobs, oldest first. Sensitive arguments are redacted."""
    found = run_on(queue, lambda: queue.failed.list(queue=on, job=job, after=after, limit=limit))
    if as_json:
        print_json([_listed(job) for job in found])
        return
    if not found:
        click.echo("no failed jobs")
        return
    print_table(
        ("ID", "FAILED AT", "QUEUE", "JOB", "ATTEMPTS", "REASON", "ERROR", "ARGS"),
        [_row(job) for job in found],
    )
    if len(found) == limit:
        click.echo(f"there may be more: --after {found[-1].id}", err=True)


@failed.command()
@click.argument("id")
@as_json
@connected
def show(queue: Queue, *, id: str, as_json: bool) -> None:
    """Show everything about one failed job, its traceback included. Sensitive arguments are redacted."""
    job = run_on(queue, lambda: queue.failed.get(id))
    if job is None:
        raise click.ClickException(f"there is no failed job {id}")
    if as_json:
        print_json({**_listed(job), "traceback": job.traceback})
        return
    for name, value in _described(job):
        click.echo(f"{name:<10}{in_one_line(value)}")
    if job.traceback:
        click.echo(f"\n{printable(job.traceback.rstrip())}")


@failed.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every failed job there is now.")
@click.option("--queue", "on", metavar="QUEUE", help="With --all: only jobs of this queue.")
@click.option("--job", metavar="NAME", help="With --all: only jobs with this wire name.")
@as_json
@connected
def retry(
    queue: Queue, *, ids: tuple[str, ...], everything: bool, on: str | None, job: str | None, as_json: bool
) -> None:
    """Put failed jobs back on their queues, with their ids and fresh counters.

    Ends with status 1 if one of them is not there any more, or can't be read; what can be put back is.
    """
    if bool(ids) == everything:
        raise click.UsageError("name the jobs by ID, or give --all", click.get_current_context())
    if not everything and (on is not None or job is not None):
        raise click.UsageError("--queue and --job go with --all", click.get_current_context())

    async def work() -> Tally:
        return await (_retry_all(queue.failed, on, job) if everything else _retry_each(queue.failed, ids))

    tally = run_on(queue, work)
    if as_json:
        print_json({"retried": tally.done, "missing": tally.missing, "unreadable": tally.unreadable})
    else:
        click.echo(f"{_jobs(tally.done)} put back")
    _complain(tally)


@failed.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@as_json
@connected
def discard(queue: Queue, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete failed jobs for good. Ends with status 1 if one of them is not there any more."""

    async def work() -> Tally:
        tally = Tally()
        with progress("discarding", len(ids)) as advance:
            for id in ids:
                tally.count(id, done=await queue.failed.discard(id))
                advance(1)
        return tally

    tally = run_on(queue, work)
    if as_json:
        print_json({"discarded": tally.done, "missing": tally.missing})
    else:
        click.echo(f"{_jobs(tally.done)} discarded")
    _complain(tally)


@failed.command()
@click.option(
    "--older-than",
    callback=_age_in_seconds,
    required=True,
    metavar="AGE",
    help="Seconds, or 90m, 12h, 30d; 0 is every job.",
)
@as_json
@connected
def purge(queue: Queue, *, older_than: float, as_json: bool) -> None:
    """Delete for good every failed job that was set aside longer ago than AGE."""
    purged = run_on(queue, lambda: _purge(queue.failed, older_than))
    if as_json:
        print_json({"purged": purged})
    else:
        click.echo(f"{_jobs(purged)} purged")


@dataclass(slots=True)
class Tally:
    """What became of each job that was asked for."""

    done: int = 0
    missing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def count(self, id: str, *, done: bool) -> None:
        """Note a job that was dealt with, or that was not there."""
        if done:
            self.done += 1
        else:
            self.missing.append(id)


async def _retry_each(failed: FailedJobs, ids: tuple[str, ...]) -> Tally:
    tally = Tally()
    with progress("retrying", len(ids)) as advance:
        for id in ids:
            await _retry(failed, id, tally)
            advance(1)
    return tally


async def _retry_all(failed: FailedJobs, on: str | None, job: str | None) -> Tally:
    """Page by page, so that progress shows; bounded by today's count, so that jobs that fail again wait."""
    left = await failed.count(queue=on, job=job)
    tally = Tally()
    after: str | None = None
    with progress("retrying", left) as advance:
        while left > 0:
            page = await failed.list(queue=on, job=job, after=after, limit=min(_PAGE, left))
            if not page:
                break
            await _retry_side_by_side(failed, page, tally)
            advance(len(page))
            left -= len(page)
            after = page[-1].id
    tally.missing.clear()  # somebody else put those back meanwhile; nobody asked for them by name
    return tally


async def _retry_side_by_side(failed: FailedJobs, page: Sequence[FailedJob], tally: Tally) -> None:
    """At once, since such calls may share a round trip or a commit; raise the first trouble at the end."""
    ends = await asyncio.gather(*(_retry(failed, one.id, tally) for one in page), return_exceptions=True)
    for trouble in ends:
        if trouble is not None:
            raise trouble


async def _retry(failed: FailedJobs, id: str, tally: Tally) -> None:
    try:
        tally.count(id, done=await failed.retry(id))
    except JobReconstructionError:
        tally.unreadable.append(id)


async def _purge(failed: FailedJobs, age: float) -> int:
    oldest = await failed.list(limit=1)
    if not oldest:
        return 0
    ages = [age]
    if is_watched():
        oldest_age = (datetime.now(UTC) - oldest[0].failed_at).total_seconds()
        ages = list(_steps_down(oldest_age, age))
    purged = 0
    with progress("purging", len(ages)) as advance:
        for step in ages:
            purged += await failed.purge(older_than=step)
            advance(1)
    return purged


def _steps_down(oldest: float, age: float) -> Iterator[float]:
    """Ages from the oldest down to the one asked for: a purge has no progress to show, several have."""
    for step in range(_SLICES - 1, 0, -1):
        if oldest > age:
            yield age + (oldest - age) * step / _SLICES
    yield age


def _listed(job: FailedJob) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "args": job.redacted_args,
        "attempts": job.attempts,
        "lost": job.lost,
        "reason": job.reason,
        "error_type": job.error_type,
        "error": job.error,
        "pushed_at": json_time(job.pushed_at),
        "failed_at": json_time(job.failed_at),
        "worker": job.worker,
    }


def _row(job: FailedJob) -> tuple[object, ...]:
    return (
        job.id,
        local_time(job.failed_at),
        job.queue,
        in_one_line(job.name, _WIDEST),
        job.attempts,
        in_one_line(job.reason, _WIDEST),
        in_one_line(_error(job), _WIDEST),
        in_one_line(_args(job), _WIDEST),
    )


def _described(job: FailedJob) -> list[tuple[str, str]]:
    return [
        ("id", job.id),
        ("job", job.name),
        ("queue", job.queue),
        ("args", _args(job)),
        ("reason", job.reason),
        ("error", _error(job)),
        ("attempts", str(job.attempts)),
        ("lost", str(job.lost)),
        ("pushed", local_time(job.pushed_at)),
        ("failed", local_time(job.failed_at)),
        ("worker", job.worker or "-"),
    ]


def _args(job: FailedJob) -> str:
    args = job.redacted_args
    return "(unreadable)" if args is None else json.dumps(args, ensure_ascii=False)


def _error(job: FailedJob) -> str:
    return ": ".join(part for part in (job.error_type, job.error) if part) or "-"


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _complain(tally: Tally) -> None:
    complaints = []
    if tally.missing:
        complaints.append(f"no such failed job: {', '.join(tally.missing)}")
    if tally.unreadable:
        complaints.append(f"unreadable, so left where it is: {', '.join(tally.unreadable)}")
    if complaints:
        raise click.ClickException("; ".join(complaints))
