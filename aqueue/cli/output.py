"""What the commands print: tables and local times for people, JSON for programs, progress on a terminal."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import click


def print_json(value: object) -> None:
    """Print one JSON document on stdout: on one line, and in ASCII, so that any pipe carries it."""
    click.echo(json.dumps(value))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers on stdout, in aligned columns; numbers to the right."""
    cells = [[in_one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    is_number = [bool(rows) and isinstance(cell, int | float) for cell in (rows[0] if rows else headers)]
    for line in (headers, *cells):
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        click.echo("  ".join(aligned).rstrip())


def local_time(moment: datetime | None) -> str:
    """Return the moment in this machine's time zone, in ISO 8601; "-" for none."""
    return moment.astimezone().isoformat(timespec="seconds") if moment is not None else "-"


def json_time(moment: datetime | None) -> str | None:
    """Return the moment in ISO 8601 with its offset."""
    return moment.isoformat() if moment is not None else None


def in_one_line(text: str, most: int | None = None) -> str:
    """Return the text as one printable line, cut to `most` characters.

    A job's error is somebody's data: control characters in it must not reach the terminal.
    """
    line = printable(" ".join(text.split()))
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def printable(text: str) -> str:
    """Return the text with everything a terminal might obey escaped, line ends and tabs apart."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def is_watched() -> bool:
    """Whether somebody sees progress: stderr is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if that is a terminal; yield what advances it by so many steps."""
    if not is_watched():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
