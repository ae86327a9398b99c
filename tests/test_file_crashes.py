"""A file store whose process is gone, or whose disk refuses, at each of its steps in turn."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.file_crashes import SCENARIOS

TESTS = Path(__file__).parent


@pytest.mark.rule("PUSH-3", "PUSH-10", "REL-1", "FAIL-1", "FAIL-2", "CLEAR-1", "NOTE-2", "LEASE-2")
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_whoever_dies_between_two_steps_leaves_all_of_it_or_nothing(
    tmp_path: Path, scenario: str
) -> None:
    report = await tried("die", scenario, tmp_path)

    assert report["problems"] == []
    assert report["steps"] > 15, "opening alone takes more steps than that"


@pytest.mark.rule("PUSH-4", "FENCE-1", "NOTE-2")
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
@pytest.mark.parametrize("how", ["fail", "full"])
async def test_a_disk_that_refuses_a_step_loses_nothing_and_says_what_was_done(
    tmp_path: Path, scenario: str, how: str
) -> None:
    """Once, and from then on for everything that takes room."""
    report = await tried(how, scenario, tmp_path)

    assert report["problems"] == []
    assert report["steps"] > 5


async def tried(how: str, scenario: str, place: Path) -> dict[str, Any]:
    """Try a scenario out in a process that may fork, since it has one thread alone."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.file_crashes", how, scenario, str(place)),
        cwd=TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    report: dict[str, Any] = json.loads(output)
    return report
