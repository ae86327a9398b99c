"""The work itself: one Python file, read, parsed and measured. Nothing here knows of jobs."""

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measures:
    """What one file holds."""

    lines: int
    tokens: int
    nodes: int


def measure(path: str) -> Measures:
    """Count the lines, tokens and syntax nodes of a file; raise what Python itself says of a broken one."""
    source = Path(path).read_bytes()
    tree = ast.parse(source, filename=path)
    return Measures(
        lines=len(source.splitlines()),
        tokens=sum(1 for _ in tokenize.tokenize(io.BytesIO(source).readline)),
        nodes=sum(1 for _ in ast.walk(tree)),
    )
