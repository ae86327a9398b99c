"""What one sees while it runs: two lines that change in place on a terminal, else a line now and then."""

import shutil
import sys
import time
from dataclasses import dataclass

from examples.census.ledger import Totals

_LINE_EVERY = 2.0
_BAR = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at a census: numbers of files, and the seconds since this start of it."""

    found: int
    pushed: int
    waiting: int
    running: int
    failed: int
    totals: Totals
    seconds: float
    handled_before: int

    @property
    def handled(self) -> int:
        return self.totals.files + self.failed

    @property
    def rate(self) -> float:
        """Files handled a second since this start."""
        return (self.handled - self.handled_before) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"pushed {self.pushed}  waiting {self.waiting}  running {self.running}  "
            f"done {self.totals.files}  retried {self.totals.retried}  failed {self.failed}"
        )


class View:
    """Writes to standard output."""

    def __init__(self) -> None:
        self._in_place = sys.stdout.isatty()
        self._drawn = 0
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._erase()
        print(text, flush=True)

    def show(self, progress: Progress) -> None:
        """Draw over what was drawn before; where nothing can be drawn over, add a line every 2 seconds."""
        if self._in_place:
            self._erase()
            width = shutil.get_terminal_size().columns - 1  # a wrapped line could not be drawn over
            print(f"{_bar(progress)[:width]}\n{str(progress)[:width]}", flush=True)
            self._drawn = 2
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY
            print(f"{progress}  {_pace(progress)}", flush=True)

    def _erase(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}F\x1b[J", end="")
            self._drawn = 0


def _bar(progress: Progress) -> str:
    share = progress.handled / progress.found if progress.found else 1.0
    full = min(_BAR, int(share * _BAR))
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}  {_pace(progress)}"


def _pace(progress: Progress) -> str:
    return f"{progress.rate:.0f} jobs/s  {progress.seconds:.0f} s"
