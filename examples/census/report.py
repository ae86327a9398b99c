"""The table at the end, and where to look further."""

import re
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from aqueue import FailedJob

from .jobs import QUEUE
from .run import Result
from .settings import Settings

_MOST_REASONS = 12
_WHERE_IN_FILE = re.compile(r" \([^()]*line \d+\)$")


def report(result: Result, settings: Settings, root: Path) -> Iterator[str]:
    """Give the lines of the report."""
    last, totals = result.last, result.last.totals
    yield ""
    yield from _table(
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
        yield from _table(("count", "example", "why"), *_reasons(result.failed, root))
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
        example = str((jobs[0].args or {}).get("path", "?"))
        yield f"{len(jobs)}", example.removeprefix(f"{root}/"), reason[:100]
    rest = ordered[_MOST_REASONS:]
    if rest:
        yield f"{sum(len(jobs) for _, jobs in rest)}", "", f"for {len(rest)} other reasons"


def _commands(failed: Sequence[FailedJob], settings: Settings) -> Iterator[str]:
    url, failed_url = settings.url, settings.failed_url or settings.url
    yield f"{_aqueue(url)} stats {QUEUE}"
    yield f"{_aqueue(failed_url)} failed list --queue {QUEUE}"
    if failed:
        yield f"{_aqueue(failed_url)} failed show {failed[0].id}"


def _aqueue(url: str) -> str:
    """Return how the reader calls the command line on this queue, from where they are, without a password."""
    installed = Path(sys.executable).parent / "aqueue"
    program = _from_here(installed) if installed.exists() else shutil.which("aqueue") or "aqueue"
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        return f"AQUEUE_URL=… {program}"
    return f"{shlex.quote(program)} --url {shlex.quote(f'sqlite:///{_from_here(Path(rest[1:]))}')}"


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _table(*rows: tuple[str, str, str]) -> Iterator[str]:
    """Align three columns; numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for first, second, third in rows:
        yield f"  {first:<{widths[0]}}  {second:>{widths[1]}}  {third}".rstrip()
