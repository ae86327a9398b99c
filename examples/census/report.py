"""The table at the end, and where to look further."""

import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import shorten

from aqueue import FailedJob
from examples.census.jobs import QUEUE
from examples.census.run import Result
from examples.census.settings import Settings

_MOST_REASONS = 12
_WHERE_IN_FILE = re.compile(r" \([^()]*line \d+\)$")


def report(result: Result, settings: Settings, root: Path) -> Iterator[str]:
    """Give the lines of the report."""
    last, totals = result.last, result.last.totals
    yield ""
    yield from _table(
        "<><",
        ("files", f"{last.found:,}", f"in {root}"),
        ("measured", f"{totals.files:,}", ""),
        ("lines", f"{totals.lines:,}", ""),
        ("tokens", f"{totals.tokens:,}", ""),
        ("syntax nodes", f"{totals.nodes:,}", ""),
        ("throughput", f"{last.rate:,.1f}", f"files/s, over {last.seconds:.1f} s"),
        ("pushes", f"{last.pushed:,}", f"in {result.push_seconds:.2f} s"),
        ("retries", f"{totals.retried:,}", ""),
        ("recovered", f"{totals.recovered:,}", "taken over from a worker that was killed"),
        (
            "failed",
            f"{len(result.failed):,}",
            "" if result.failed else "no file here is broken",
        ),
    )
    if result.failed:
        yield ""
        yield from _table("><<", ("failed", "for example", "why"), *_reasons(result.failed, root))
    if result.missing:
        yield ""
        yield f"{len(result.missing)} files are MISSING, neither measured nor failed, for instance:"
        yield from (f"  {path}" for path in result.missing[:10])
    yield ""
    yield "Look further:"
    yield from (f"  {command}" for command in _commands(result.failed, settings))


def _reasons(failed: Sequence[FailedJob], root: Path) -> Iterator[tuple[str, str, str]]:
    """Give, for each reason, how many failed so, one of the files, and the error; most frequent first."""
    by_reason: dict[str, list[FailedJob]] = defaultdict(list)
    for job in failed:
        by_reason[f"{job.error_type}: {_WHERE_IN_FILE.sub('', job.error)}"].append(job)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    for reason, jobs in ordered[:_MOST_REASONS]:
        example = min(str((job.args or {}).get("path")) for job in jobs)
        yield f"{len(jobs)}", example.removeprefix(f"{root}/"), shorten(reason, 90, placeholder=" …")
    rest = ordered[_MOST_REASONS:]
    if rest:
        yield f"{sum(len(jobs) for _, jobs in rest)}", "", f"for {len(rest)} other reasons"


def _commands(failed: Sequence[FailedJob], settings: Settings) -> Iterator[str]:
    aqueue = _from_here(Path(sys.executable).parent / "aqueue")
    store = _option(settings.url)
    failed_store = _option(settings.failed_url or settings.url)
    yield f"{aqueue} stats {QUEUE}{store}"
    yield f"{aqueue} failed list --queue {QUEUE}{failed_store}"
    if failed:
        yield f"{aqueue} failed show {failed[0].id}{failed_store}"


def _option(url: str) -> str:
    """Return the option that names the store, as seen from here and without a password."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        url = f"sqlite:///{_from_here(Path(rest[1:]))}"
    elif "@" in rest:
        url = f"{scheme}://…@{rest.rpartition('@')[2]}"
    return f" --url {shlex.quote(url)}"


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _table(sides: str, *rows: tuple[str, ...]) -> Iterator[str]:
    """Align columns, each to the side that `sides` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
