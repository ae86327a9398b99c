"""Holding a call to raising what it must, for checks that run under any test runner."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

E = TypeVar("E", bound=BaseException)


class Caught(Generic[E]):
    """What was raised, once the block has ended."""

    error: E


@contextmanager
def raises(kind: type[E], what: str) -> Iterator[Caught[E]]:
    """Catch this kind of error from the block; where `what` went through, raise `AssertionError`."""
    caught = Caught[E]()
    try:
        yield caught
    except kind as error:
        caught.error = error
    else:
        raise AssertionError(f"{what}: it went through, though {kind.__name__} was due")
