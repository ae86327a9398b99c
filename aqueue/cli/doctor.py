"""`aqueue doctor`, `why` and `health`: what is wrong with a store, a job, a worker."""

import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from aqueue.cli.connecting import Place, as_json, connected, located, run_on
from aqueue.cli.output import in_one_line, json_time, print_json, printable
from aqueue.cli.probe import probe
from aqueue.contract.names import check_queue_names
from aqueue.diagnosis import Plight
from aqueue.errors import AqueueError
from aqueue.heartbeat import read_beat, trouble_of
from aqueue.port import Finding, Severity
from aqueue.port.examining import problem
from aqueue.pusher import DEFAULT_QUEUE
from aqueue.queue import Queue

_FAILED = 1


@click.command()
@click.argument("where", metavar="[URL]", required=False)
@click.option("--queue", "queues", metavar="QUEUE", multiple=True, help="May be repeated; default otherwise.")
@click.option("--probe", "is_probing", is_flag=True, help="Also push a job to aqueue-doctor, and take it.")
@as_json
@located
@click.pass_context
def doctor(
    context: click.Context,
    place: Place,
    *,
    where: str | None,
    queues: tuple[str, ...],
    is_probing: bool,
    as_json: bool,
) -> None:
    """Look for settings of the store that lose jobs or make them wait; change nothing.

    The store is the URL, or as for other commands. Some stores have settings for each --queue. Status 1 if
    there is a problem; warnings are for you to weigh. Without --probe no job is pushed or taken.
    """
    if where is not None:
        if place.given is not None:
            raise click.UsageError("give the URL once", context)
        context.params["url"] = where  # so that what it holds is kept out of errors
        place = Place(where, place.connection)
    names = check_queue_names(queues or (DEFAULT_QUEUE,))
    findings = _examined(place.queue(), names, is_probing=is_probing)
    is_well = all(each.severity is not Severity.PROBLEM for each in findings)
    if as_json:
        print_json({"ok": is_well, "findings": [each._asdict() for each in findings]})
    else:
        _print(findings)
    context.exit(0 if is_well else _FAILED)


@click.command()
@click.argument("job_id", metavar="JOB_ID")
@click.option("--queue", "queues", metavar="QUEUE", multiple=True, help="Look here; everywhere otherwise.")
@as_json
@connected
def why(queue: Queue, *, job_id: str, queues: tuple[str, ...], as_json: bool) -> None:
    """Say why the job JOB_ID is not running: what it waits for, who holds it, or how it failed.

    Status 1 if no such job is there. On RabbitMQ and SQS only a failed job can be found, in failed=.
    """
    found = run_on(queue, lambda: queue.why(job_id, queues=queues or None))
    if as_json:
        print_json({**asdict(found), "failed_at": json_time(found.failed_at)})
    else:
        place = f" on {found.queue}" if found.queue is not None else ""
        click.echo(in_one_line(f"{found.plight}{place}: {found.reason}"))
    click.get_current_context().exit(_FAILED if found.plight is Plight.UNKNOWN else 0)


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option(
    "--max-age",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="How old the last sign of life may be.",
)
@click.option("--tolerate-outages", is_flag=True, help="A worker that only waits for its store is well.")
@as_json
@click.pass_context
def health(
    context: click.Context, *, path: Path, max_age: float, tolerate_outages: bool, as_json: bool
) -> None:
    """Say whether the worker that keeps the file PATH is well: a probe for containers.

    The worker writes it with `aqueue worker --health-file PATH`. Status 1 if it gave no sign of life for too
    long, or none of its pops was answered while it had room for a job.
    """
    beat = read_beat(path)
    now = time.time()
    trouble = trouble_of(beat, now, max_age=max_age, tolerate_outages=tolerate_outages)
    if as_json:
        ages = {"age": round(now - beat.at, 3), "progress_age": round(now - beat.progress, 3)}
        print_json({"ok": trouble is None, "worker": beat.worker, "pid": beat.pid, **ages})
    elif trouble is None:
        click.echo(f"worker {beat.worker} is well")
    else:
        raise click.ClickException(trouble)
    context.exit(0 if trouble is None else _FAILED)


def _examined(queue: Queue, names: Sequence[str], *, is_probing: bool) -> list[Finding]:
    """A store that can't be opened is a finding as well: the one that matters."""

    async def examine() -> list[Finding]:
        findings = list(await queue.doctor.examine(names))
        return [*findings, await probe(queue)] if is_probing else findings

    silent = logging.getLogger("aqueue.queue")  # what it warns of is among the findings
    was, silent.disabled = silent.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return run_on(queue, examine)
    except (click.ClickException, AqueueError) as error:
        told = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return [problem("reachable", told, "nothing can be pushed or popped", "see what it says")]
    finally:
        silent.disabled = was


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(each.check) for each in findings)
    for each in findings:
        click.echo(printable(f"{each.severity:<7}  {each.check:<{width}}  {each.found}"))
        if each.severity is not Severity.OK:
            for more in filter(None, (each.meaning, each.advice and f"-> {each.advice}")):
                click.echo(printable(f"{'':<{width + 11}}{more}"))
