"""What handlers did to the world, as a test records it."""

from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any


class Life:
    """One simulated process, from its start to its death."""

    def __init__(self) -> None:
        self.is_over = False


current_life: ContextVar[Life | None] = ContextVar("aqueue_testing_life", default=None)
"""The simulated process that the running code belongs to."""


class Effects:
    """A recorder for a handler's effects: call `record` where the real thing would happen.

    What a simulated process that has died still does, in a `finally` or on a thread, is not recorded: a real
    one would not have done it.
    """

    def __init__(self) -> None:
        self._seen: list[Hashable] = []

    def __repr__(self) -> str:
        return f"<Effects {self._seen!r}>"

    def record(self, *what: Any) -> None:
        """Note that this happened: one hashable value, or several together."""
        life = current_life.get()
        if life is None or not life.is_over:
            self._seen.append(what[0] if len(what) == 1 else what)

    def seen(self) -> tuple[Hashable, ...]:
        """Return what happened, in order."""
        return tuple(self._seen)

    def clear(self) -> None:
        """Forget all of it."""
        self._seen.clear()
