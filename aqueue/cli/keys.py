"""`aqueue keys …`: a new signing key, which key still seals how much, and whether one can go (SIGN-3)."""

import secrets
from dataclasses import asdict
from datetime import UTC, datetime

import click

from aqueue.cli.connecting import as_json, connected, run_on
from aqueue.cli.output import print_json, print_table
from aqueue.contract.signing import written_key
from aqueue.queue import Queue

_SECRET_BYTES = 32
_UNSIGNED = "(unsigned)"


@click.group()
def keys() -> None:
    """Make signing keys, count what they seal, and find out when an old one can go."""


@keys.command()
@click.option("--id", "key_id", metavar="ID", help="What to call it: today's date, unless given.")
@as_json
def generate(*, key_id: str | None, as_json: bool) -> None:
    """Print a new key, ready to be put first into AQUEUE_SIGNING_KEYS.

    The line is the secret itself: send it where secrets are kept, and not to a terminal somebody may see.
    """
    id = key_id if key_id is not None else datetime.now(UTC).date().isoformat()
    written = written_key(id, secrets.token_bytes(_SECRET_BYTES))
    if as_json:
        print_json({"id": id, "secret": written.partition("=")[2]})
    else:
        click.echo(written)


@keys.command()
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@as_json
@connected
def inventory(queue: Queue, queues: tuple[str, ...], *, as_json: bool) -> None:
    """Say how many jobs each key seals, of each QUEUE or of all that the store has.

    Jobs are counted by the key that their seal names. Keys in use are listed whether or not they are in
    AQUEUE_SIGNING_KEYS, and those in it even with no job left.
    """
    found = run_on(queue, lambda: queue.keys.inventory(queues or None))
    if as_json:
        print_json([{"key": key, **asdict(use)} for key, use in found.items()])
        return
    print_table(
        ("KEY", "WAITING", "DELAYED", "LEASED", "FAILED"),
        [(key or _UNSIGNED, *asdict(use).values()) for key, use in found.items()],
    )


@keys.command()
@click.argument("key_id", metavar="[ID]", required=False)
@click.option("--unsigned", is_flag=True, help="Ask it of the jobs that no key seals.")
@as_json
@connected
def retire(queue: Queue, *, key_id: str | None, unsigned: bool, as_json: bool) -> None:
    """Say whether the key ID can be taken out of every configuration; change nothing.

    Status 1 while any job of any queue, waiting, delayed, leased or failed, is sealed by it, or while it is
    the active key. Everything is counted twice, so that a writer that still uses the key is noticed.
    """
    if (key_id is None) != unsigned:
        raise click.UsageError("name the key by its ID, or give --unsigned", click.get_current_context())
    run_on(queue, lambda: queue.keys.retire(key_id))
    if as_json:
        print_json({"key": key_id, "retired": True})
    elif key_id is None:
        click.echo("every job is sealed: accept_unsigned can end")
    else:
        click.echo(f"{key_id} seals nothing any more: it can be taken out of every configuration")
