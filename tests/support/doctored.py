"""What the tests of the doctor share."""

import warnings
from collections.abc import Sequence

import aqueue
from aqueue.port import Finding, Severity


async def findings_at(
    url: str, *, queues: Sequence[str] = ("default",), migrate: bool = True
) -> list[Finding]:
    """Examine the store at this URL, its tables made before unless told otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a SQLite in WAL warns by itself
        async with aqueue.connect(url) as queue:
            if migrate:
                await queue.migrate()
            return await queue.doctor.examine(queues)


def of(findings: Sequence[Finding], check: str) -> Finding:
    """Return the worst of the findings under this name."""
    found = [each for each in findings if each.check == check]
    assert found, f"nothing was said of {check}: {[each.check for each in findings]}"
    return max(found, key=lambda each: list(Severity).index(each.severity))
