"""A queue in memory and the clock that moves it, in one call, in any test runner."""

from collections.abc import Callable, Coroutine
from typing import Any

from aqueue.connection import open_backend
from aqueue.contract.signing import Keyring
from aqueue.port import StoreOptions
from aqueue.queue import Queue, QueueOptions
from aqueue.testing.clock import ManualClock
from aqueue.testing.virtual_time import LoopClock, runs_in_virtual_time


class MemoryQueue(Queue):
    """An open queue on a memory store of its own, whose time is `clock`.

    It needs no opening, no closing and no event loop to be made, so a plain fixture or a `setUp` can make
    it; `async with` does no harm. `clock` is a `ManualClock`, or in virtual time the loop's, unless another
    one is given; `lease` is seconds by it.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        lease: float = 60.0,
        keyring: Keyring | None = None,
    ) -> None:
        if clock is None:
            clock = LoopClock() if runs_in_virtual_time() else ManualClock()
        self.clock = clock
        super().__init__(
            open_backend("memory://", StoreOptions(lease=lease, clock=clock)),
            QueueOptions(lease=lease, keyring=keyring, clock=clock),
        )
        _finish(self.open())

    def advance(self, seconds: float) -> None:
        """Move the manual clock forward; raises `TypeError` where the clock runs by itself."""
        if not isinstance(self.clock, ManualClock):
            raise TypeError(f"a {type(self.clock).__name__} is not moved by hand: sleep on its loop instead")
        self.clock.advance(seconds)


def _finish(opening: Coroutine[Any, Any, None]) -> None:
    """Run to its end what never suspends, as no call to the memory store does."""
    try:
        opening.send(None)
    except StopIteration:
        return
    opening.close()
    raise AssertionError("opening the memory store waited for something")
