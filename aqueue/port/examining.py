"""What a store can tell about itself: settings that lose jobs or make them wait, found before they do."""

import time
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable


class Severity(StrEnum):
    """How bad it is: as it should be, worth knowing and perhaps chosen, or about to cost jobs."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One thing that was looked at: what it is called there, what was found, what that means, what to do.

    `advice` is "" where there is nothing to do.
    """

    check: str
    severity: Severity
    found: str
    meaning: str = ""
    advice: str = ""


class Examination(NamedTuple):
    """Everything that was found; `ahead` is how many seconds the store's clock is ahead of this machine's.

    It is None for a store that has no clock of its own, and 0.0 as far as the network leaves that open.
    """

    findings: Sequence[Finding]
    ahead: float | None = None


@runtime_checkable
class Examinable(Protocol):
    """A store that can be asked how it is set up."""

    async def examine(self, queues: Sequence[str]) -> Examination:
        """Look at settings and state, as far as this user may; change nothing, take and push no job.

        The queues are those to look at where a store has settings for each. What can't be seen is a finding
        as well. Raises the driver's errors where the store can't be asked at all.
        """


async def clock_ahead(ask: Callable[[], Awaitable[float]]) -> float:
    """Return by how many seconds at least another clock is ahead of this machine's; negative for behind."""
    before = time.time()
    theirs = await ask()
    after = time.time()
    if theirs > after:
        return theirs - after
    return min(0.0, theirs - before)


def ok(check: str, found: str, meaning: str = "") -> Finding:
    """Return that this is as it should be."""
    return Finding(check, Severity.OK, found, meaning)


def warning(check: str, found: str, meaning: str, advice: str = "") -> Finding:
    """Return that this is worth knowing."""
    return Finding(check, Severity.WARNING, found, meaning, advice)


def problem(check: str, found: str, meaning: str, advice: str) -> Finding:
    """Return that this will cost jobs, or does already."""
    return Finding(check, Severity.PROBLEM, found, meaning, advice)
