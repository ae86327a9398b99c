"""Putting many failed jobs back: what to choose, how fast, and what became of each (FAIL-6)."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from aqueue.contract.names import check_limit
from aqueue.errors import InvalidQueueArgument
from aqueue.failed.pages import PAGE
from aqueue.failed.shown import trouble
from aqueue.port import FailedRecord

_AT_ONCE = 50
_EACH = 0.1
_AHEAD = 10.0


class Fate(StrEnum):
    """What became of one failed job that was to be put back."""

    PUT_BACK = "put back"
    GONE = "gone"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """One failed job, and what became of it; in a dry run, what would."""

    id: str
    name: str
    queue: str
    fate: Fate


Watch: TypeAlias = Callable[[Redriven], object]


@dataclass(slots=True, kw_only=True)
class Redrive:
    """One run of `retry_all`: what it may still do, and what it has done.

    `limit` is how many jobs it puts back at most.
    """

    is_dry: bool
    limit: int | None
    watch: Watch | None
    group: str | None = None
    put_back: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.limit is not None:
            check_limit(self.limit)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and self.put_back >= self.limit

    @property
    def room(self) -> int:
        """How many more it may begin with at once."""
        return _AT_ONCE if self.limit is None else min(_AT_ONCE, self.limit - self.put_back)

    def wants(self, record: FailedRecord) -> bool:
        """Whether the record belongs to the group that was asked for."""
        return self.group is None or trouble(record).fingerprint == self.group

    def tell(self, record: FailedRecord, fate: Fate) -> None:
        """Count a job, and tell whoever watches."""
        self.put_back += fate is Fate.PUT_BACK
        if self.watch is not None:
            self.watch(Redriven(id=record.id, name=record.name, queue=record.queue, fate=fate))


class Pace:
    """Lets at most `rate` jobs a second begin, evenly, and never faster to catch up; None lets all."""

    def __init__(self, rate: float | None) -> None:
        self._rate = _checked(rate)
        self._next = -math.inf

    @property
    def together(self) -> int:
        """How many may begin in one turn: what a tenth of a second allows, so that it stays even."""
        return _AT_ONCE if self._rate is None else max(1, min(_AT_ONCE, int(self._rate * _EACH)))

    @property
    def page(self) -> int:
        """How many to read at a time: what was read long before its turn may be gone by then."""
        return PAGE if self._rate is None else max(1, min(PAGE, int(self._rate * _AHEAD)))

    async def turn(self, count: int) -> None:
        """Wait until the next `count` jobs may begin."""
        if self._rate is None:
            return
        loop = asyncio.get_running_loop()
        if self._next > loop.time():
            await asyncio.sleep(self._next - loop.time())
        self._next = loop.time() + count / self._rate


def _checked(rate: object) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise InvalidQueueArgument(f"rate must be a positive number of jobs a second, not {rate!r}")
    return float(rate)
