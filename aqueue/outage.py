"""A store that is away: growing, jittered pauses, one log line for each, and an honest health (WORK-8)."""

import logging
import random
from dataclasses import dataclass
from datetime import UTC, datetime

from aqueue.contract.retry import Backoff
from aqueue.events import log_quietly

_PAUSES = Backoff.exponential(0.2, 5.0)
_SHORTEST = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a worker does. `ok` is false from the first error of an outage to the next successful pop.

    `last_claim` is when a pop last succeeded, with or without a job; while it is `busy`, with a job in every
    slot, it makes none.
    """

    ok: bool
    running: bool
    last_claim: datetime | None
    last_error: BaseException | None
    busy: bool = False


class Outages:
    """Counts the failures in a row, and says how long to wait before the next try."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self.last_claim: datetime | None = None
        self.last_error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether the last try succeeded."""
        return self._in_a_row == 0

    def succeeded(self) -> None:
        """Note a pop that was answered."""
        self.last_claim = datetime.now(UTC)
        if self._in_a_row:
            log_quietly(logging.INFO, "the store answers again after %d failed tries", self._in_a_row)
        self._in_a_row = 0
        self.last_error = None

    def failed(self, error: BaseException) -> float:
        """Note and log a failure; return the seconds to wait before trying again."""
        self._in_a_row += 1
        self.last_error = error
        pause = max(_SHORTEST, _PAUSES.pause(self._in_a_row, random.random()))  # noqa: S311 - spreads, hides nothing
        log_quietly(
            logging.WARNING,
            "the store failed, try %d; the next in %.1f s: %s: %s",
            self._in_a_row,
            pause,
            type(error).__name__,
            error,
        )
        return pause
