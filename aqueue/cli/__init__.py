"""The command line, `aqueue …` or `python -m aqueue …` (CLI-1). Signals are handled here only (STOP-2)."""

import click

from aqueue.cli.command_line import CommandLine
from aqueue.cli.doctor import doctor, health, why
from aqueue.cli.failed import failed
from aqueue.cli.keys import keys
from aqueue.cli.queues import clear, migrate, size, stats
from aqueue.cli.schedules import schedules
from aqueue.cli.worker import worker

__all__ = ["main"]


@click.group(
    name="aqueue",
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands that read or change a store find it by --url, --connection, or the variable AQUEUE_URL.",
)
@click.version_option(package_name="aqueue-jobs", prog_name="aqueue", message="%(prog)s %(version)s")
def main() -> None:
    """Run workers, look after queues, failed jobs and signing keys, and find out what is wrong."""


for _command in (worker, size, stats, clear, migrate, failed, schedules, keys, doctor, why, health):
    main.add_command(_command)
