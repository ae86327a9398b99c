"""The job: one Python file to read, parse and measure."""

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from aqueue import Backoff, Delivery, job

from .ledger import Ledger

QUEUE = "census"
NAME = "census.measure"


@dataclass(frozen=True, slots=True)
class Measures:
    """What one file holds."""

    lines: int
    tokens: int
    nodes: int


@job(name=NAME, queue=QUEUE, max_attempts=3, backoff=Backoff.exponential(0.2, cap=1.0))
class MeasureFile:
    """Measure one file for one census.

    A plain `def` handler: parsing keeps a processor busy, so it belongs on a thread and not on the event
    loop. A file that is no valid Python raises here; the job is then retried, and at last set aside with
    exactly that error.
    """

    census: str
    path: str

    def handle(self, ledger: Ledger, delivery: Delivery) -> None:
        if delivery.lost:  # its last worker died with it
            ledger.note(self.census, "recovered", delivery.id)
        measures = measure(Path(self.path))
        # A job may run twice: its worker can die between this line and the ack. So the result replaces
        # itself instead of being added to a sum.
        ledger.record(self.census, self.path, measures.lines, measures.tokens, measures.nodes)


def measure(path: Path) -> Measures:
    """Count the lines, tokens and syntax nodes of a file; raise what Python itself says of a broken one."""
    source = path.read_bytes()
    tree = ast.parse(source, filename=path.name)
    return Measures(
        lines=len(source.splitlines()),
        tokens=sum(1 for _ in tokenize.tokenize(io.BytesIO(source).readline)),
        nodes=sum(1 for _ in ast.walk(tree)),
    )
