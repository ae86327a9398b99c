"""Backends that break one rule each, and the check that must notice: they prove that the suite can fail."""

from aqueue.backends.memory import MemoryBackend
from aqueue.testing.contract import Check
from broken import (
    browsing,
    counting,
    failing,
    failing_returns,
    finding,
    leases,
    limiting,
    notes,
    popping,
    pushing,
    scheduling,
    settling,
    topics,
)

Broken = tuple[Check, type[MemoryBackend]]

BROKEN: tuple[Broken, ...] = (
    *pushing.BROKEN,
    *popping.BROKEN,
    *leases.BROKEN,
    *settling.BROKEN,
    *counting.BROKEN,
    *failing.BROKEN,
    *failing_returns.BROKEN,
    *notes.BROKEN,
    *topics.BROKEN,
    *limiting.BROKEN,
    *scheduling.BROKEN,
    *browsing.BROKEN,
    *finding.BROKEN,
)
