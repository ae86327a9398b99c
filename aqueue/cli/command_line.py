"""How the program as a whole behaves: every mistake is one line and a status, never a traceback (CLI-1)."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from aqueue.cli.last_resort import LastResort
from aqueue.cli.output import in_one_line
from aqueue.errors import AqueueError

_FAILED = 1
_MISUSED = 2
_INTERRUPTED = 130

# Only newer clicks raise it; no error is an instance of an empty tuple.
_HELP_ASKED: tuple[type[click.UsageError], ...] = tuple(
    kind for kind in (getattr(click.exceptions, "NoArgsIsHelpError", None),) if kind is not None
)


class BrokenTarget(click.ClickException):
    """The user's own code raised: the one case where a traceback, theirs, is what they need."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


class CommandLine(click.Group):
    """Ends with status 2 for a wrong use and 1 for an error of aqueue, each told in one line on stderr."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command the arguments name and exit; without `args`, as this process's own program."""
        if args is None:
            extra.setdefault("obj", LastResort())
            _print_any_text(sys.stdout, sys.stderr)
        if not standalone_mode:
            return super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        sys.exit(self._status(args, prog_name or self.name, complete_var, windows_expand_args, extra))

    def _status(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        windows_expand_args: bool,
        extra: dict[str, Any],
    ) -> int:
        try:
            status: int | None = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except _HELP_ASKED as asked:
            click.echo(asked.format_message(), err=True)
            return _MISUSED
        except click.Abort:
            return _tell("interrupted", _INTERRUPTED)
        except click.UsageError as error:
            return _tell(f"{error.format_message()}{_where_to_look(error.ctx)}", _MISUSED)
        except click.ClickException as error:
            if isinstance(error, BrokenTarget):
                click.echo(error.traceback, err=True, nl=False)
            return _tell(error.format_message(), error.exit_code)
        except (AqueueError, OSError) as error:
            return _tell(str(error) or type(error).__name__, _FAILED)
        return status or 0


def _tell(message: str, status: int) -> int:
    click.echo(f"aqueue: {in_one_line(message)}", err=True)
    return status


def _where_to_look(context: click.Context | None) -> str:
    return f" (see {context.command_path} --help)" if context is not None else ""


def _print_any_text(*streams: TextIO) -> None:
    """A job's error in a script the terminal can't show must not become an error of ours."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
