"""Tests of a server that is not there: reported plainly, or failed where it is required."""

import os

import pytest


def check_reachable(name: str, reason: str | None) -> None:
    """Skip the test, with the reason; fail it where `AQUEUE_REQUIRE` names the store."""
    if reason is None:
        return
    required = {part.strip() for part in os.environ.get("AQUEUE_REQUIRE", "").split(",")}
    if name in required:
        pytest.fail(f"{name} is required by AQUEUE_REQUIRE and not reachable: {reason}")
    pytest.skip(f"{name} is not reachable: {reason}")
