"""Chains and batches whose processes die at each call to their store: nothing is lost, or follows twice."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from support.flow_crashes import SCENARIOS

TESTS = Path(__file__).parent


@pytest.mark.timeout(300)
@pytest.mark.rule("CHAIN-1", "BATCH-1", "RESULT-1", "LEASE-2")
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_whoever_dies_leaves_something_to_go_on_with(tmp_path: Path, scenario: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.flow_crashes", scenario, str(tmp_path)),
        cwd=TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    report = json.loads(output)

    assert report["problems"] == []
    assert report["calls"] > 3
