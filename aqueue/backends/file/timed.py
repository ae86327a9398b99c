"""Jobs that wait for a time, a delay's or a lease's end, in directories by that time: what is next, and when.

The directories' names tell the time before which nothing in them is due, so an idle pop reads no more than
the first of them, and that only when its time has come or something in it has changed.
"""

import os
import time
from typing import NamedTuple

from aqueue.backends.file.disk import Disk, names_in
from aqueue.backends.file.names import time_of

NEVER = 1 << 62
_SETTLED_NS = 20_000_000
"""A directory that was changed within the kernel's tick may change again and show the same time."""
_LONG = 0.002
_REST = 10
"""A listing that took long, in seconds, is made anew after so many times as long: it costs a tenth."""


class Timed(NamedTuple):
    """A job's file that waits for its time."""

    time: int
    path: str


class TimedShelf:
    """What is known of one such directory. `bound` is a time before which nothing in it is due."""

    def __init__(self, path: str, width: int, disk: Disk) -> None:
        self.bound = NEVER
        self._path = path
        self._width = width
        self._disk = disk
        self._known: tuple[int, ...] = ()
        self._current: str | None = None
        self._next_look = 0.0

    def look(self, now: int) -> None:
        """Learn what has changed since, if anything has."""
        if self._is_known(now) or time.monotonic() < self._next_look:
            return
        began = time.monotonic()
        self._known = ()
        self.bound = self._look(now)
        took = time.monotonic() - began
        self._next_look = time.monotonic() + (_REST * took if took > _LONG else 0.0)

    def due(self, now: int, most: int) -> list[Timed]:
        """Return up to so many files whose time has come, the earliest first."""
        found: list[Timed] = []
        for bucket in self._buckets():
            if _start_of(bucket, self._width) > now or len(found) >= most:
                break
            of_bucket = [
                Timed(time_of(name), f"{self._path}/{bucket}/{name}") for name in self._names(bucket)
            ]
            found += [timed for timed in sorted(of_bucket) if timed.time <= now]
        self._next_look = 0.0
        self._known = ()
        return found[:most]

    def soon(self, at: int) -> None:
        """Learn of a time that was added."""
        self.bound = min(self.bound, at)

    def _is_known(self, now: int) -> bool:
        """Whether nothing has changed, nor has the time come of what was not looked into."""
        return bool(self._known) and self.bound > now and self._known == self._signature()

    def _look(self, now: int) -> int:
        known = _changed(self._path)
        self._current = None
        for bucket in self._buckets():
            start = _start_of(bucket, self._width)
            if start > now:
                self._known = known
                return start
            known = _joined(known, _changed(f"{self._path}/{bucket}"))
            self._current = bucket
            if names := self._names(bucket):
                self._known = known
                return min(map(time_of, names))
            if start + self._width <= now:
                self._disk.remove_directory(f"{self._path}/{bucket}")
                known = ()
        self._known = known
        return NEVER

    def _signature(self) -> tuple[int, ...]:
        known = _changed(self._path)
        if self._current is not None:
            known = _joined(known, _changed(f"{self._path}/{self._current}"))
        return known

    def _buckets(self) -> list[str]:
        return sorted(name for name in names_in(self._path) if name.isdecimal())

    def _names(self, bucket: str) -> list[str]:
        return names_in(f"{self._path}/{bucket}")


def _start_of(bucket: str, width: int) -> int:
    return int(bucket) * width


def _joined(outer: tuple[int, ...], inner: tuple[int, ...]) -> tuple[int, ...]:
    return (*outer, *inner) if outer and inner else ()


def _changed(path: str) -> tuple[int, ...]:
    """Return when a directory was changed; nothing if that is too short ago to tell the next change."""
    try:
        changed = os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return (0,)
    return () if abs(time.time_ns() - changed) <= _SETTLED_NS else (changed,)
