"""The contract suite as pytest tests: one for each check, on whatever the fixture `aqueue_harness` returns.

Run them as they are, or import them into a test module of your own::

    pytest --pyargs aqueue.testing.contract.pytest_checks --aqueue-url 'mystore://localhost/{place}'

    from aqueue.testing.contract.pytest_checks import *  # beside a fixture aqueue_harness

They are plain functions with an event loop of their own, so it doesn't matter which plugin runs the async
tests around them, or whether there is one. The harness is closed by the test.
"""

import asyncio

import pytest

from aqueue.testing.contract import Check, Harness, all_checks
from aqueue.testing.contract.verdicts import prove

__all__ = ["test_the_store_keeps_the_rule"]


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, id=check.id, marks=pytest.mark.aqueue_rule(*check.rules)) for check in all_checks()],
)
def test_the_store_keeps_the_rule(check: Check, aqueue_harness: Harness) -> None:
    """The store that `aqueue_harness` leads to keeps the rules of one check."""
    asyncio.run(prove(check, aqueue_harness))
