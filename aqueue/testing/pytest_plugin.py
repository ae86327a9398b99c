"""The pytest plugin `aqueue`: fixtures for applications, and the options of the contract suite (CONF-1).

It loads nothing of aqueue until one of them is used, and needs no other plugin. Its fixtures are plain ones,
so they work in async tests of any kind and in plain ones. `-p no:aqueue` turns it off.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aqueue.testing.clock import ManualClock
    from aqueue.testing.contract.harness import Harness
    from aqueue.testing.effects import Effects
    from aqueue.testing.memory_queue import MemoryQueue


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say which store the contract suite is run on."""
    group = parser.getgroup("aqueue", "aqueue's contract suite")
    group.addoption(
        "--aqueue-url",
        metavar="URL",
        help="the store to prove; {place} in it becomes a new name, {folder} a new directory, for each check",
    )
    group.addoption(
        "--aqueue-lease", metavar="SECONDS", type=float, help="the lease of the checks' deliveries"
    )
    group.addoption(
        "--aqueue-takes-clock", action="store_true", help="the store takes its time from StoreOptions.clock"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that the suite's checks bear."""
    config.addinivalue_line(
        "markers", "aqueue_rule(*ids): the rules of aqueue's contract that a check proves"
    )


@pytest.fixture
def aqueue_clock() -> "ManualClock":
    """The clock of `aqueue_queue`, moved by hand."""
    from aqueue.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def aqueue_queue(aqueue_clock: "ManualClock") -> "MemoryQueue":
    """An open queue in memory, with nothing in it."""
    from aqueue.testing.memory_queue import MemoryQueue

    return MemoryQueue(clock=aqueue_clock)


@pytest.fixture
def aqueue_effects() -> "Effects":
    """A recorder of what handlers do."""
    from aqueue.testing.effects import Effects

    return Effects()


@pytest.fixture
def aqueue_harness(request: pytest.FixtureRequest) -> Iterator["Harness"]:
    """An empty place in the store that `--aqueue-url` names; another fixture of this name takes its place."""
    from aqueue.testing.contract.places import Places

    url = request.config.getoption("--aqueue-url")
    if url is None:
        pytest.fail(
            "which store? Give --aqueue-url 'mystore://…/{place}', or a fixture aqueue_harness that returns "
            "a Harness",
            pytrace=False,
        )
    places = Places(
        url=url,
        lease=request.config.getoption("--aqueue-lease"),
        takes_clock=request.config.getoption("--aqueue-takes-clock"),
    )
    with contextlib.closing(places):
        yield places.harness()
