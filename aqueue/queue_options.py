"""How a queue treats its store, and what of that a store can refuse before it is opened."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from aqueue.contract.names import check_seconds
from aqueue.contract.results import Keep, check_results
from aqueue.contract.signing import Keyring
from aqueue.errors import FailedStoreMissing, InvalidQueueArgument
from aqueue.failed import Retention
from aqueue.notes import Notes
from aqueue.port import Backend, Capabilities, KeepsFailed, LeaseKind
from aqueue.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue treats its store. Durations are seconds.

    `keep_failed` bounds the failed store: a timedelta is an age, a whole number a count, None no bound.
    `results` is how long results are kept of jobs that don't say it themselves, None for not at all.
    """

    lease: float = 60.0
    call_timeout: float = 10.0
    keyring: Keyring | None = None
    accept_unsigned: bool | datetime = False
    keep_failed: timedelta | int | None = None
    results: float | timedelta | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if check_seconds(self.call_timeout, "call_timeout") == 0 or check_seconds(self.lease, "lease") == 0:
            raise InvalidQueueArgument("lease and call_timeout must be longer than 0 seconds")
        if isinstance(self.keep_failed, bool) or (isinstance(self.keep_failed, int) and self.keep_failed < 0):
            raise InvalidQueueArgument("keep_failed must be a timedelta (an age), a count from 0, or None")


def check_lease(lease: float, capabilities: Capabilities) -> None:
    """Refuse a lease that the store can't keep (LEASE-1)."""
    if capabilities.lease is not LeaseKind.TIMED:
        return
    longest = capabilities.longest_lease
    if lease < capabilities.shortest_lease or (longest is not None and lease > longest):
        raise InvalidQueueArgument(
            f"a lease on {capabilities.system} lasts from {capabilities.shortest_lease:g} s"
            + (f" to {longest:g} s" if longest is not None else "")
            + f", not {lease:g} s"
        )


def check_keeps_failed(backend: Backend) -> None:
    """Raise `FailedStoreMissing` for a store that can't keep another's failed jobs (FAIL-1)."""
    if not isinstance(backend, KeepsFailed):
        raise FailedStoreMissing(f"{backend.capabilities.system} can't keep failed jobs for another queue")


def default_results(results: float | timedelta | None, notes: Notes, capabilities: Capabilities) -> Keep:
    """Return how long results are kept by default; raises `NotesMissing` where none can be (RESULT-1)."""
    keep = check_results(results)
    if keep and capabilities.lease is not LeaseKind.NONE:
        notes.check_kept()
    return keep


def retention(store: Store, keep: timedelta | int | None) -> Retention:
    """Return what bounds the failed store."""
    if isinstance(keep, timedelta):
        return Retention(store, age=check_seconds(keep, "keep_failed"), count=None)
    return Retention(store, age=None, count=keep)
