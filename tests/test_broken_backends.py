"""The suite rejects every backend that breaks a rule: a check that can't fail proves nothing (CONF-1)."""

import pytest
from broken import BROKEN

from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.errors import AqueueError
from aqueue.port import StoreOptions
from aqueue.testing.clock import ManualClock
from aqueue.testing.contract import Check, Harness, all_checks

_PATIENCE = 0.5

_KEPT_BY_THE_QUEUE = {
    "PUSH-1", "PUSH-2", "PUSH-8", "PUSH-11", "ARG-2", "ARG-3", "ARG-4", "ARG-5", "FACE-1",
}  # fmt: skip
"""Rules that hold before or after any backend is asked, so that none can break them."""


def _harness_over(kind: type[MemoryBackend]) -> Harness:
    shelf = Shelf()

    def opener(_: str, options: StoreOptions) -> MemoryBackend:
        return kind(shelf, lease=options.lease, clock=options.clock)

    return Harness("broken://", opener=opener, clock=ManualClock(ticking=True), patience=_PATIENCE)


@pytest.mark.rule("CONF-1")
@pytest.mark.parametrize(
    ("check", "kind"), [pytest.param(check, kind, id=f"{kind.__name__}-{check.id}") for check, kind in BROKEN]
)
async def test_the_suite_rejects(check: Check, kind: type[MemoryBackend]) -> None:
    harness = _harness_over(kind)

    try:
        with pytest.raises((AssertionError, AqueueError)):
            await check(harness)
    finally:
        await harness.aclose()


@pytest.mark.rule("CONF-1")
def test_every_rule_a_store_keeps_has_a_broken_store() -> None:
    rules = {rule for check in all_checks() for rule in check.rules} - _KEPT_BY_THE_QUEUE

    assert rules - {rule for check, _ in BROKEN for rule in check.rules} == set()


@pytest.mark.rule("CONF-1")
@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
async def test_a_sound_store_passes_with_the_same_little_patience(check: Check) -> None:
    """What the broken ones are rejected for is what they break, not the haste of these tests."""
    harness = _harness_over(MemoryBackend)

    await check(harness)

    await harness.aclose()
