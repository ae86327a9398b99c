"""mypy agrees with every line of tests/typing: what it must accept, and what it must refuse (ARG-1)."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")
ROOT = Path(__file__).parents[1]


@pytest.mark.rule("FACE-1")
def test_the_typed_face_is_as_promised() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "tests/typing/jobs.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
