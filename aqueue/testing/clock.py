"""A clock that tests move by hand, for the stores that take one: `connect(url, clock=ManualClock())`."""

import time


class ManualClock:
    """Calling it returns seconds since the epoch; `advance` moves it forward.

    It stands still by itself, or, `ticking`, also runs on with real time, so that a pop that waits for a
    job to become due still sees it become due.
    """

    def __init__(self, start: float | None = None, *, ticking: bool = False) -> None:
        self._now = time.time() if start is None else start
        self._started = time.monotonic()
        self._is_ticking = ticking

    def __call__(self) -> float:
        """Return the seconds since the epoch by this clock."""
        return self._now + (time.monotonic() - self._started if self._is_ticking else 0.0)

    def advance(self, seconds: float) -> None:
        """Move the clock forward; time never goes back."""
        if seconds < 0:
            raise ValueError("a clock is only ever advanced by 0 or more seconds")
        self._now += seconds
