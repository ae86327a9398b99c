"""What it proves that a step failed: around what changes nothing then, that nothing was done."""

from collections.abc import Iterator
from contextlib import contextmanager

from aqueue.port import Refused


@contextmanager
def refusing() -> Iterator[None]:
    """Say that nothing was done, in the system's own words, of what changes nothing if it fails."""
    try:
        yield
    except OSError as error:
        raise refused(error) from error


def refused(error: OSError) -> Refused:
    """Return what a failed step proves: nothing was done."""
    proved = Refused(error.strerror or type(error).__name__)
    proved.__cause__ = error
    return proved
