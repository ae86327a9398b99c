"""Where the tests of the command line work: a store that AQUEUE_URL names, and a directory for modules."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import numbers


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of its own, which AQUEUE_URL names."""
    where = f"memory://cli-{next(numbers)}" if request.param == "memory" else f"sqlite:///{tmp_path / 'j.db'}"
    monkeypatch.setenv("AQUEUE_URL", where)
    return where


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory to stand in, where modules can be written and imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
