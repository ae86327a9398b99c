"""Empty places in one store, made from a URL with a gap: every check gets one of its own."""

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from uuid import uuid4

from aqueue.connection import open_backend
from aqueue.errors import InvalidQueueArgument
from aqueue.testing.clock import ManualClock
from aqueue.testing.contract.harness import Harness, Opener

GAPS: Sequence[str] = ("{place}", "{folder}")
"""What a URL may hold: a name that nothing has used yet, or the path of an empty directory."""


class Places:
    """Makes harnesses over one store; `close` removes the directories it made for them.

    `lease` and `takes_clock` are as a `Harness` has them. Raises `InvalidQueueArgument` for a URL without a
    gap, for then the checks would meet each other's jobs.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float | None = None,
        takes_clock: bool = False,
        opener: Opener = open_backend,
    ) -> None:
        if not any(gap in url for gap in GAPS):
            raise InvalidQueueArgument(
                f"the URL needs {' or '.join(GAPS)} where the checks' places differ, for instance "
                "mystore://localhost/{place}: each check needs an empty place of its own"
            )
        self.url = url
        self._lease = lease
        self._takes_clock = takes_clock
        self._opener = opener
        self._folders: list[TemporaryDirectory[str]] = []

    def harness(self) -> Harness:
        """Return a harness over a place that nobody has used."""
        url = self.url.replace("{place}", uuid4().hex[:16])
        if "{folder}" in url:
            self._folders.append(TemporaryDirectory(prefix="aqueue-contract-"))
            url = url.replace("{folder}", self._folders[-1].name)
        clock = ManualClock(ticking=True) if self._takes_clock else None
        return Harness(url, lease=self._lease, clock=clock, opener=self._opener)

    def close(self) -> None:
        """Remove the directories, and what the store left in them."""
        while self._folders:
            self._folders.pop().cleanup()
