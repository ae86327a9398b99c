"""The proof of one hand-out, and how long it holds by our own clock.

SQS can't be relied on to refuse a receipt whose time is over, nor to take it: it may delete a job that
somebody else holds by now, or say that it did and keep it. So a delivery whose time is over is not settled.
"""

import hashlib

LONGEST_HOLD = 12 * 3600
"""Seconds for which SQS hides a message in all, counted from its receipt."""


class Receipt:
    """One hand-out of one message. Times are seconds of the process's monotonic clock."""

    __slots__ = ("_name", "_received", "_until", "handle")

    def __init__(self, handle: str, id: str, *, since: float, lease: int) -> None:
        self.handle = handle
        self._name = f"{id}:{hashlib.blake2b(handle.encode(), digest_size=8).hexdigest()}"
        self._received = since
        self._until = since + lease

    def __str__(self) -> str:
        return self._name

    def is_held(self, now: float) -> bool:
        """Whether this delivery still has its job."""
        return now < self._until

    def left(self, now: float) -> int:
        """Return for how many whole seconds from now SQS can hide the message at most."""
        return int(self._received + LONGEST_HOLD - now)

    def renew(self, now: float, seconds: int) -> None:
        """Note that the message is hidden for so long from now."""
        self._until = now + seconds

    def end(self) -> None:
        """Note that this delivery was settled."""
        self._until = float("-inf")
