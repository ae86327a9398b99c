"""`aqueue failed retry`: put failed jobs back, all or some, as they were or edited (FAIL-2, FAIL-6)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import click

from aqueue.cli.connecting import as_json, connected, run_on
from aqueue.cli.failed_tally import Tally, complain, jobs
from aqueue.cli.output import print_json, progress
from aqueue.errors import JobReconstructionError
from aqueue.failed import FailedJobs, Fate, Redriven
from aqueue.queue import Queue

_A_SECOND = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _per_second(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/([smh]))?", value.strip(), re.ASCII)
    if found is None or not float(found[1]):
        raise click.BadParameter(
            f"{value!r} is not a rate: write 10/s, or 30/m, 5/h, or a number for so many a second",
            context,
            parameter,
        )
    return float(found[1]) / _A_SECOND[found[2] or ""]


def _changes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, object]:
    changes: dict[str, object] = {}
    for written in values:
        name, separator, text = written.partition("=")
        if not separator or not name:
            raise click.BadParameter("write NAME=JSON, for instance 'email=\"a@b.c\"'", context, parameter)
        if name in changes:
            raise click.BadParameter(f"{name} is set twice", context, parameter)
        try:
            changes[name] = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):  # the text may be a secret, so it isn't quoted
            raise click.BadParameter(
                f"the value of {name} is not JSON; a text needs quotes: '{name}=\"…\"'", context, parameter
            ) from None
    return changes


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which jobs `--all` means, and how it goes about them."""

    on: str | None
    job: str | None
    group: str | None
    rate: float | None
    limit: int | None
    dry_run: bool

    @property
    def is_made(self) -> bool:
        """Whether an option was given that goes with `--all`."""
        return self != _Choice(on=None, job=None, group=None, rate=None, limit=None, dry_run=False)


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--set",
    "changes",
    metavar="NAME=JSON",
    multiple=True,
    callback=_changes,
    help="Change an argument of the one job named; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="Every failed job there is now.")
@click.option("--queue", "on", metavar="QUEUE", help="With --all: only jobs of this queue.")
@click.option("--job", metavar="NAME", help="With --all: only jobs with this wire name.")
@click.option("--group", metavar="FINGERPRINT", help="With --all: only jobs of this group.")
@click.option("--rate", metavar="N/s", callback=_per_second, help="With --all: at most so many a second.")
@click.option("--limit", type=click.IntRange(min=1), help="With --all: at most so many, the oldest.")
@click.option("--dry-run", is_flag=True, help="With --all: change nothing, and tell how many it would be.")
@as_json
@connected
def retry(
    queue: Queue,
    *,
    ids: tuple[str, ...],
    changes: dict[str, object],
    everything: bool,
    on: str | None,
    job: str | None,
    group: str | None,
    rate: float | None,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put failed jobs back on their queues, with their ids and fresh counters.

    Ends with status 1 if one of them is not there any more, or can't be read; what can be put back is.
    """
    choice = _Choice(on=on, job=job, group=group, rate=rate, limit=limit, dry_run=dry_run)
    _check_use(ids, changes, choice, everything=everything)

    async def work() -> Tally:
        if everything:
            return await _retry_all(queue.failed, choice)
        return await _retry_each(queue.failed, ids, changes)

    tally = run_on(queue, work)
    if as_json:
        told: dict[str, object] = {"dry_run": True} if dry_run else {}
        print_json({"retried": tally.done, "missing": tally.missing, "unreadable": tally.unreadable, **told})
    else:
        click.echo(f"{jobs(tally.done)} {'would be ' if dry_run else ''}put back")
    complain(tally)


def _check_use(
    ids: tuple[str, ...], changes: dict[str, object], choice: _Choice, *, everything: bool
) -> None:
    context = click.get_current_context()
    if bool(ids) == everything:
        raise click.UsageError("name the jobs by ID, or give --all", context)
    if not everything and choice.is_made:
        raise click.UsageError(
            "--queue, --job, --group, --rate, --limit and --dry-run go with --all", context
        )
    if changes and len(ids) != 1:
        raise click.UsageError("--set changes one job: name it by its ID", context)


async def _retry_each(failed: FailedJobs, ids: tuple[str, ...], changes: dict[str, object]) -> Tally:
    tally = Tally()
    with progress("retrying", len(ids)) as advance:
        for id in ids:
            try:
                tally.count(id, done=await failed.retry(id, changes=changes or None))
            except JobReconstructionError:
                tally.unreadable.append(id)
            advance(1)
    return tally


async def _retry_all(failed: FailedJobs, choice: _Choice) -> Tally:
    """What somebody else puts back meanwhile is not missing: nobody asked for it by name."""
    tally = Tally()
    expected = await failed.count(queue=choice.on, job=choice.job)
    if choice.limit is not None:
        expected = min(expected, choice.limit)
    with progress("retrying", expected) as advance:
        tally.done = await failed.retry_all(
            queue=choice.on,
            job=choice.job,
            group=choice.group,
            rate=choice.rate,
            limit=choice.limit,
            dry_run=choice.dry_run,
            watch=_counting(tally, advance),
        )
    return tally


def _counting(tally: Tally, advance: Callable[[int], None]) -> Callable[[Redriven], None]:
    def watch(one: Redriven) -> None:
        if one.fate is Fate.UNREADABLE:
            tally.unreadable.append(one.id)
        advance(1)

    return watch
