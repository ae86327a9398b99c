"""When the notes that are over are deleted from a table: now and then, along with a write."""

_BETWEEN = 1.0
_AT_ONCE = 500


class Forgetting:
    """When, and how many at once, notes that are over are deleted: in step with how many are written."""

    def __init__(self) -> None:
        self._written = 0
        self._next = 0.0

    def due(self, writing: int, now: float) -> int:
        """Return how many to delete along with the next write; 0 for most."""
        self._written += writing
        if now < self._next:
            return 0
        self._next = now + _BETWEEN
        limit, self._written = _AT_ONCE + 2 * self._written, 0
        return limit
