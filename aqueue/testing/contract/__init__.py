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
    concurrency,
    counting,
    failing,
    failing_elsewhere,
    leases,
    malformed,
    names_and_wire,
    opening,
    popping,
    pushing,
    sealing,
    settling,
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
    malformed,
    sealing,
    opening,
)


def all_checks() -> list[Check]:
    """Return every check, in the order of the contract."""
    return [value for group in _GROUPS for value in vars(group).values() if isinstance(value, Check)]
