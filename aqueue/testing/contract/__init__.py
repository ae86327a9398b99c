"""The conformance suite: every rule a store must keep, as checks that any test runner can run.

A backend is proved by running every check, each in a namespace of its own::

    from aqueue.testing.contract import Harness, all_checks

    @pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
    async def test_my_backend(check, tmp_path):
        harness = Harness(f"mystore://localhost/{uuid4().hex}")
        try:
            await check(harness)
        finally:
            await harness.aclose()

What a store can't do changes what a check expects; it never skips it. A check raises `AssertionError`, or
an `AqueueError`, where the store breaks the rule.
"""

from types import ModuleType

from aqueue.testing.contract import (
    browsing,
    concurrency,
    counting,
    dispatching,
    encrypting,
    failing,
    failing_edits,
    failing_elsewhere,
    failing_groups,
    failing_many,
    failing_returns,
    failing_unlisted,
    finding,
    flows,
    leases,
    limiting,
    malformed,
    names_and_wire,
    notes,
    notes_with_jobs,
    opening,
    popping,
    pushing,
    results,
    scheduling,
    sealing,
    settling,
    topics,
    uniqueness,
)
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.rules import Check, rule

__all__ = ["Check", "Harness", "all_checks", "rule"]

_GROUPS: tuple[ModuleType, ...] = (
    pushing,
    names_and_wire,
    popping,
    concurrency,
    leases,
    settling,
    counting,
    failing,
    failing_elsewhere,
    failing_returns,
    failing_many,
    failing_groups,
    failing_edits,
    failing_unlisted,
    malformed,
    sealing,
    encrypting,
    browsing,
    finding,
    notes,
    notes_with_jobs,
    topics,
    dispatching,
    limiting,
    uniqueness,
    scheduling,
    results,
    flows,
    opening,
)


def all_checks() -> list[Check]:
    """Return every check, in the order of the contract."""
    return [value for group in _GROUPS for value in vars(group).values() if isinstance(value, Check)]
