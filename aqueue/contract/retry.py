"""How long a failed attempt waits before the next one (ATT-4)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aqueue.errors import InvalidQueueArgument

BackoffFunction: TypeAlias = Callable[[int], float]

_LARGEST_EXPONENT = 62


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause in seconds per attempt: `base`, grown by `growth` and capped, with full jitter or none.

    Anything that maps an attempt number (from 1) to seconds can stand in for one.
    """

    base: float = 0.0
    growth: Literal["fixed", "linear", "exponential"] = "fixed"
    cap: float | None = None

    @staticmethod
    def none() -> "Backoff":
        """Retry at once."""
        return Backoff()

    @staticmethod
    def fixed(seconds: float) -> "Backoff":
        """Wait the same time before each retry."""
        return Backoff(_positive(seconds, "seconds"))

    @staticmethod
    def linear(seconds: float) -> "Backoff":
        """Wait `seconds`, then twice that, three times, and so on."""
        return Backoff(_positive(seconds, "seconds"), "linear")

    @staticmethod
    def exponential(base: float, cap: float) -> "Backoff":
        """Wait a random time below `base`, 2 x `base`, 4 x `base` …, never more than `cap`."""
        return Backoff(_positive(base, "base"), "exponential", _positive(cap, "cap"))

    def pause(self, attempt: int, chance: float) -> float:
        """Return the seconds to wait after this attempt; `chance` is a random number in [0, 1)."""
        match self.growth:
            case "linear":
                return self.base * attempt
            case "exponential":
                ceiling = self.base * 2.0 ** min(attempt - 1, _LARGEST_EXPONENT)
                return chance * min(ceiling, self.cap if self.cap is not None else ceiling)
            case "fixed":
                return self.base


def pause_after(backoff: "Backoff | BackoffFunction", attempt: int, chance: float) -> float:
    """Return the pause that a backoff asks for; what is no pause at all (negative, NaN) counts as 0."""
    seconds = backoff.pause(attempt, chance) if isinstance(backoff, Backoff) else float(backoff(attempt))
    return seconds if 0 < seconds < float("inf") else 0.0


def check_backoff(value: object) -> "Backoff | BackoffFunction":
    """Return a usable backoff or raise `InvalidQueueArgument`."""
    if isinstance(value, Backoff) or callable(value):
        return value
    raise InvalidQueueArgument(f"backoff must be a Backoff or a function of the attempt, not {value!r}")


def _positive(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InvalidQueueArgument(f"a backoff's {what} must be 0 or a positive finite number, not {value!r}")
    return float(value)
