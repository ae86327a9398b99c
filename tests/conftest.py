"""Fixtures of the whole suite. A server out of reach is reported plainly, or fails where it is required."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

# Before anything imports it, so that its asserts explain themselves.
pytest.register_assert_rewrite("aqueue.testing.contract")

from backends import STORES, StoreUnderTest  # noqa: E402 - see above

from aqueue.testing.contract import Harness  # noqa: E402 - see above

REQUIRE = "AQUEUE_REQUIRE"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a requirement that nothing could ever meet."""
    unknown = _required() - {store.name for store in STORES}
    if unknown:
        known = ", ".join(store.name for store in STORES)
        raise pytest.UsageError(
            f"{REQUIRE} names unknown stores: {', '.join(sorted(unknown))}; known: {known}"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly which stores were not tried: a green run without them proves nothing about them."""
    for store in STORES:
        if reason := store.unreachable():
            terminalreporter.write_line(
                f"store not reachable, its checks did not run: {store.name} ({reason})"
            )


@pytest.fixture
async def harness(store: StoreUnderTest, tmp_path: Path) -> AsyncIterator[Harness]:
    """A fresh place in the store that the test is parametrized with."""
    if reason := store.unreachable():
        if store.name in _required():
            pytest.fail(f"{store.name} is required by {REQUIRE} and not reachable: {reason}")
        pytest.skip(f"{store.name} is not reachable: {reason}")
    harness = store.harness(tmp_path)
    yield harness
    await harness.aclose()


def _required() -> set[str]:
    return {name.strip() for name in os.environ.get(REQUIRE, "").split(",") if name.strip()}
