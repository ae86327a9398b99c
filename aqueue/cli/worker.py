"""`aqueue worker`: run a worker in this process until a signal stops it."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from aqueue.cli.command_line import BrokenTarget
from aqueue.cli.connecting import as_json
from aqueue.cli.last_resort import LastResort
from aqueue.cli.logs import LEVELS, configure_logging
from aqueue.cli.output import print_json
from aqueue.cli.service import Ending, Service
from aqueue.cli.target import load_target, users_traceback
from aqueue.errors import AqueueError

_log = logging.getLogger("aqueue.cli")


@click.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "--loop",
    type=click.Choice(["auto", "asyncio", "uvloop"]),
    default="auto",
    show_default=True,
    help="The event loop; auto is uvloop where it is installed.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    envvar="AQUEUE_LOG_LEVEL",
    show_envvar=True,
    help="What to log to stderr: info and above, unless given.",
)
@click.option(
    "--health-file",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Write signs of life to this file, for `aqueue health`.",
)
@as_json
@click.pass_context
def worker(
    context: click.Context,
    *,
    target: str,
    loop: str,
    log_level: str | None,
    health_file: Path | None,
    as_json: bool,
) -> None:
    """Run the worker that TARGET, module:attribute, names or makes.

    TARGET is an aqueue.Worker, or something to call without arguments, sync or async, that returns one or an
    async context manager around one. Its queue is opened and closed here. The first SIGTERM or Ctrl-C
    stops it, with the worker's grace for what runs; the second gives everything back at once, and the status
    is 1. With --json each log line is a JSON object, and one on stdout tells at the end how it went.
    """
    factory = _loop_factory(loop)
    found = load_target(target)
    configure_logging(log_level, as_json=as_json)
    # Given by a process of our own only: anybody else's is not ours to end, nor are its signal handlers.
    given = context.find_object(LastResort)
    last_resort = given or LastResort()
    service = Service(found, target, last_resort, partial(_tell, as_json=as_json), health_file=health_file)
    if given is not None:
        last_resort.watch()
    with _heard_by(service, restore=given is None):
        _run(service, target, factory)
    context.exit(service.ending.status)


def _run(service: Service, target: str, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(service.run())
    except (AqueueError, OSError, click.ClickException):
        raise
    except Exception as error:
        message = f"{target!r} ended with {type(error).__name__}: {error}"
        raise BrokenTarget(message, users_traceback(error)) from error


@contextmanager
def _heard_by(service: Service, *, restore: bool) -> Iterator[None]:
    previous = {number: signal.signal(number, service.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items() if restore else ():
            signal.signal(number, handler)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio" or (name == "auto" and find_spec("uvloop") is None):
        return None
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        raise click.ClickException("--loop uvloop needs uvloop: pip install uvloop") from None
    return factory


def _tell(ending: Ending, *, as_json: bool) -> None:
    name = ending.worker.name if ending.worker is not None else None
    by = ", ".join(number.name for number in ending.signals) or "itself"
    _log.info("worker %s stopped by %s after %.1f s", name or "(not started)", by, ending.seconds)
    if as_json:
        print_json(
            {
                "worker": name,
                "signals": [number.name for number in ending.signals],
                "seconds": round(ending.seconds, 3),
                "status": ending.status,
            }
        )
