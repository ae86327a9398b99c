"""`aqueue size`, `stats`, `clear` and `migrate`: what waits where, and the end of it."""

import click
import msgspec

from aqueue.cli.connecting import Place, as_json, connected, located, run_on
from aqueue.cli.output import print_json, print_table, progress
from aqueue.connection import migration_sql
from aqueue.contract.names import check_queue_names
from aqueue.port import QueueStats
from aqueue.pusher import DEFAULT_QUEUE
from aqueue.queue import Queue

_names = click.argument("queues", metavar="[QUEUE]...", nargs=-1)


@click.command()
@_names
@as_json
@connected
def size(queue: Queue, queues: tuple[str, ...], *, as_json: bool) -> None:
    """Say how many jobs wait on each QUEUE: ready, delayed, and those whose lease ran out.

    Without a name this is the queue "default".
    """
    found = _stats_of(queue, queues)
    sizes = {name: stats.ready + stats.delayed for name, stats in found.items()}
    if as_json:
        print_json(sizes)
    else:
        print_table(("QUEUE", "SIZE"), list(sizes.items()))


@click.command()
@_names
@as_json
@connected
def stats(queue: Queue, queues: tuple[str, ...], *, as_json: bool) -> None:
    """Say how many jobs of each QUEUE stand where, and how long the oldest ready one has waited.

    Without a name this is the queue "default".
    """
    found = _stats_of(queue, queues)
    if as_json:
        print_json({name: msgspec.to_builtins(stats) for name, stats in found.items()})
        return
    print_table(
        ("QUEUE", "READY", "DELAYED", "LEASED", "FAILED", "OLDEST"),
        [
            (name, stats.ready, stats.delayed, stats.leased, stats.failed, _age(stats.oldest_age))
            for name, stats in found.items()
        ],
    )


@click.command()
@click.option("--queue", "queues", metavar="QUEUE", multiple=True, required=True, help="May be repeated.")
@click.option("--force", is_flag=True, help="Yes, discard them: no copy is kept.")
@as_json
@connected
def clear(queue: Queue, queues: tuple[str, ...], *, force: bool, as_json: bool) -> None:
    """Discard every job of each QUEUE that no worker holds, delayed ones too.

    The store's ability to do so, then the whole list of names, are checked before anything is discarded.
    """
    queue.check_clearable()
    names = check_queue_names(queues)
    if not force:
        raise click.ClickException(
            "clear discards jobs for good and keeps no copy: add --force if that is meant"
        )

    async def clear_each() -> dict[str, int]:
        with progress("clearing", len(names)) as advance:
            cleared = {}
            for name in names:
                cleared[name] = await queue.clear(name)
                advance(1)
        return cleared

    cleared = run_on(queue, clear_each)
    if as_json:
        print_json(cleared)
    else:
        print_table(("QUEUE", "CLEARED"), list(cleared.items()))


@click.command()
@click.option("--sql", is_flag=True, help="Print the steps as SQL, to apply by hand, and take none.")
@click.option(
    "--after",
    metavar="VERSION",
    type=click.IntRange(min=0),
    help="With --sql: only the steps after this one, the highest version in the table aqueue_schema.",
)
@as_json
@located
def migrate(place: Place, *, sql: bool, after: int | None, as_json: bool) -> None:
    """Create or upgrade what the store needs: once per deploy, and safe to repeat.

    PostgreSQL and MySQL can have it done by hand: --sql prints how, and connects to nothing. For any other
    store it ends with status 1.
    """
    if sql:
        _print_sql(migration_sql(place.url(), after=after or 0), as_json=as_json)
        return
    if after is not None:
        raise click.UsageError("--after goes with --sql", click.get_current_context())
    queue = place.queue()
    run_on(queue, queue.migrate)
    if as_json:
        print_json({"migrated": True})
    else:
        click.echo(f"the {queue.capabilities.system} store is up to date")


def _print_sql(sql: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"sql": sql})
    else:
        click.echo(sql, nl=False)


def _stats_of(queue: Queue, names: tuple[str, ...]) -> dict[str, QueueStats]:
    checked = check_queue_names(names or (DEFAULT_QUEUE,))

    async def collect() -> dict[str, QueueStats]:
        return {name: await queue.stats(name) for name in checked}

    return run_on(queue, collect)


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
