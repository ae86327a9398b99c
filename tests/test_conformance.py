"""Every check of the contract against every store; a capability changes what is expected, never whether."""

import pytest
from backends import STORES

from aqueue.testing.contract import Check, Harness, all_checks


@pytest.mark.parametrize(
    ("store", "check"),
    [
        pytest.param(store, check, id=f"{store.name}-{check.id}", marks=pytest.mark.rule(*check.rules))
        for store in STORES
        for check in all_checks()
    ],
)
async def test_the_store_keeps_the_rule(check: Check, harness: Harness) -> None:
    await check(harness)
