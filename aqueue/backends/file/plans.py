"""A change in two parts: the files it needs are written first, and then put in their places under a lock.

A plan is a generator. It yields drafts, which are written together with those of all other plans of a group,
and gets for each the error that kept it from being written. What it returns is answered once everything is
on disk.
"""

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

from aqueue.backends.file.disk import Draft

T = TypeVar("T")

Plan: TypeAlias = Generator[Sequence[Draft], Sequence[OSError | None], T]
