"""`aqueue failed …`: what was set aside, why, and what becomes of it (FAIL-2)."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from aqueue.cli.connecting import as_json, connected, run_on
from aqueue.cli.failed_retry import retry
from aqueue.cli.failed_tally import Tally, complain, jobs
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
from aqueue.errors import FailedStoreMissing
from aqueue.failed import FailedGroup, FailedJob, FailedJobs
from aqueue.queue import Queue

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


failed.add_command(retry)


@failed.command("list")
@click.option("--queue", "on", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--job", metavar="NAME", help="Only jobs with this wire name.")
@click.option("--group", metavar="FINGERPRINT", help="Only jobs of this group; see 'failed groups'.")
@click.option("--after", metavar="ID", help="Start after this job: the last one of the page before.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="How many at most.")
@as_json
@connected
def list_(
    queue: Queue,
    *,
    on: str | None,
    job: str | None,
    group: str | None,
    after: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List failed jobs, oldest first. Sensitive arguments are redacted."""
    found = run_on(queue, lambda: queue.failed.list(queue=on, job=job, group=group, after=after, limit=limit))
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
@click.option("--queue", "on", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--job", metavar="NAME", help="Only jobs with this wire name.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many groups at most."
)
@as_json
@connected
def groups(queue: Queue, *, on: str | None, job: str | None, limit: int, as_json: bool) -> None:
    """Count failed jobs by what went wrong, the most frequent first. Reads them all once."""
    found = run_on(queue, lambda: queue.failed.groups(queue=on, job=job))
    if as_json:
        print_json([_grouped(group) for group in found[:limit]])
        return
    if not found:
        click.echo("no failed jobs")
        return
    print_table(
        ("GROUP", "COUNT", "FIRST", "LAST", "JOB", "ERROR", "WHERE", "EXAMPLE"),
        [_group_row(group) for group in found[:limit]],
    )
    if len(found) > limit:
        click.echo(f"and {len(found) - limit} more: --limit {len(found)}", err=True)


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
        click.echo(f"{jobs(tally.done)} discarded")
    complain(tally)


@failed.command()
@click.option(
    "--older-than",
    callback=_age_in_seconds,
    required=True,
    metavar="AGE",
    help="Seconds, or 90m, 12h, 30d; 0 is every job.",
)
@click.option("--queue", "on", metavar="QUEUE", help="Only jobs of this queue.")
@as_json
@connected
def purge(queue: Queue, *, older_than: float, on: str | None, as_json: bool) -> None:
    """Delete for good every failed job that was set aside longer ago than AGE."""
    purged = run_on(queue, lambda: _purge(queue.failed, older_than, on))
    if as_json:
        print_json({"purged": purged})
    else:
        click.echo(f"{jobs(purged)} purged")


async def _purge(failed: FailedJobs, age: float, on: str | None) -> int:
    ages = list(_steps_down(await _oldest_age(failed, on), age)) if is_watched() else [age]
    purged = 0
    with progress("purging", len(ages)) as advance:
        for step in ages:
            purged += await failed.purge(older_than=step, queue=on)
            advance(1)
    return purged


async def _oldest_age(failed: FailedJobs, on: str | None) -> float:
    try:
        oldest = await failed.list(queue=on, limit=1)
    except FailedStoreMissing:  # a dead-letter queue, which can be purged and not looked at
        return 0.0
    return (datetime.now(UTC) - oldest[0].failed_at).total_seconds() if oldest else 0.0


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
        "group": job.group,
    }


def _row(job: FailedJob) -> tuple[object, ...]:
    return (
        job.id,
        local_time(job.failed_at),
        job.queue,
        in_one_line(job.name, _WIDEST),
        job.attempts,
        in_one_line(job.reason, _WIDEST),
        in_one_line(_error(job.error_type, job.error), _WIDEST),
        in_one_line(_args(job), _WIDEST),
    )


def _described(job: FailedJob) -> list[tuple[str, str]]:
    return [
        ("id", job.id),
        ("job", job.name),
        ("queue", job.queue),
        ("args", _args(job)),
        ("reason", job.reason),
        ("error", _error(job.error_type, job.error)),
        ("group", job.group),
        ("attempts", str(job.attempts)),
        ("lost", str(job.lost)),
        ("pushed", local_time(job.pushed_at)),
        ("failed", local_time(job.failed_at)),
        ("worker", job.worker or "-"),
    ]


def _grouped(group: FailedGroup) -> dict[str, object]:
    return {
        "group": group.fingerprint,
        "name": group.name,
        "error_type": group.error_type,
        "error": group.error,
        "frame": group.frame,
        "count": group.count,
        "first_at": json_time(group.first_at),
        "last_at": json_time(group.last_at),
        "example": group.example,
    }


def _group_row(group: FailedGroup) -> tuple[object, ...]:
    return (
        group.fingerprint or "(others)",
        group.count,
        local_time(group.first_at),
        local_time(group.last_at),
        in_one_line(group.name, _WIDEST) or "-",
        in_one_line(_error(group.error_type, group.error), _WIDEST),
        in_one_line(group.frame, _WIDEST) or "-",
        group.example,
    )


def _args(job: FailedJob) -> str:
    args = job.redacted_args
    return "(unreadable)" if args is None else json.dumps(args, ensure_ascii=False)


def _error(error_type: str, error: str) -> str:
    return ": ".join(part for part in (error_type, error) if part) or "-"
