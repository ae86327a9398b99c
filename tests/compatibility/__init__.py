"""docs/compatibility.md: what the contract suite says of every store here, and how the page is made."""

from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"

PAGE = _DOCS / "compatibility.md"
VERDICTS = _DOCS / "compatibility.json"
