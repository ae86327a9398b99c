"""What became of each failed job that a command was asked about, in words."""

from dataclasses import dataclass, field

import click


@dataclass(slots=True)
class Tally:
    """How many were dealt with, and the ids of the others."""

    done: int = 0
    missing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def count(self, id: str, *, done: bool) -> None:
        """Note a job that was dealt with, or that was not there."""
        if done:
            self.done += 1
        else:
            self.missing.append(id)


def jobs(count: int) -> str:
    """Return a number of jobs in words."""
    return f"{count} job" if count == 1 else f"{count} jobs"


def complain(tally: Tally) -> None:
    """End the command with status 1 if not everything could be done."""
    complaints = []
    if tally.missing:
        complaints.append(f"no such failed job: {', '.join(tally.missing)}")
    if tally.unreadable:
        complaints.append(f"unreadable, so left where it is: {', '.join(tally.unreadable)}")
    if complaints:
        raise click.ClickException("; ".join(complaints))
