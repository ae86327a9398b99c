"""Where the records of failed jobs are, and how they are read; no lock is needed to look."""

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import NamedTuple

import msgspec

from aqueue.backends.file.content import read_file
from aqueue.backends.file.disk import links_of, names_in
from aqueue.backends.file.layout import Layout, QueuePlace
from aqueue.backends.file.names import (
    MICRO,
    SEGMENT,
    file_id,
    job_trace,
    micros,
    record_name,
    record_of,
    stamp_of,
    unfolded,
)
from aqueue.port import FailedRecord, Position

_decoder = msgspec.msgpack.Decoder(FailedRecord)


class Found(NamedTuple):
    """A record's file. Stamps never come twice in a store, so they alone say the order."""

    stamp: int
    queue: str
    path: str


def record_bytes(record: FailedRecord) -> bytes:
    """Return what to write into a record's file."""
    return msgspec.msgpack.encode(record)


def read_record(found: Found) -> FailedRecord | None:
    """Read a record, None if it is gone; a damaged one is shown with the bytes that are left of it."""
    try:
        data = read_file(found.path)
    except FileNotFoundError:
        return None
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return _damaged(found, data)


def _damaged(found: Found, data: bytes) -> FailedRecord:
    named = record_of(found.path.rpartition("/")[2])
    return FailedRecord(
        id=named.id if named is not None else "",
        name="",
        queue=found.queue,
        payload=data,
        attempts=0,
        lost=0,
        reason="malformed",
        error="the file of this record is damaged",
        failed_at=found.stamp / MICRO,
    )


def queues_in(layout: Layout) -> list[str]:
    """Return the names of all queues that the directory knows."""
    return [name for directory in names_in(layout.queues) if (name := unfolded(directory)) is not None]


def records(
    layout: Layout, queue: str | None, job: str | None = None, after: Position | None = None
) -> Iterator[Found]:
    """Yield where the records are, oldest first, from after a position; a segment is read when it is due."""
    places = [layout.queue(name) for name in ([queue] if queue is not None else queues_in(layout))]
    trace = job_trace(job) if job is not None else None
    from_stamp = stamp_of(after.failed_at) if after is not None else -1
    return merge(*(_of_queue(place, trace, from_stamp) for place in places))


def _of_queue(place: QueuePlace, trace: str | None, after: int) -> Iterator[Found]:
    segments = _segments(place)
    first = max(0, bisect_right(segments, after) - 1)
    for segment in segments[first:]:
        directory = segment_path(place, segment)
        for name in sorted(names_in(directory)):
            named = record_of(name)
            if named is not None and named.stamp > after and trace in (None, named.trace):
                yield Found(named.stamp, place.name, f"{directory}/{name}")


def page(
    layout: Layout, *, queue: str | None, job: str | None, after: Position | None, limit: int
) -> list[FailedRecord]:
    """Return the records after a position, oldest first."""
    page: list[FailedRecord] = []
    for found in records(layout, queue, job, after):
        record = read_record(found)
        if record is not None and job in (None, record.name):
            page.append(record)
            if len(page) == limit:
                break
    return page


def count(layout: Layout, *, queue: str | None, job: str | None) -> int:
    """Count the records."""
    return sum(1 for _ in records(layout, queue, job))


def oldest_of(layout: Layout, id: str) -> FailedRecord | None:
    """Return the oldest record of a job."""
    of_queues = (of_job(layout.queue(name), id) for name in queues_in(layout))
    found = [record for record in of_queues if record is not None]
    return min(found, key=lambda record: record.failed_at, default=None)


def of_job(place: QueuePlace, id: str) -> FailedRecord | None:
    """Return a job's record in one queue."""
    second = f"{place.failed_ids}/{file_id(id)}"
    if links_of(second) < 2:
        return None
    record = read_record(Found(0, place.name, second))
    if record is None or record.failed_at:
        return record
    # The file is damaged, so its other name has to be looked for.
    named = (found for found in _of_queue(place, None, -1) if f"-{file_id(id)}-" in found.path)
    return next((damaged for found in named if (damaged := read_record(found)) is not None), None)


def path_of(place: QueuePlace, record: FailedRecord) -> str | None:
    """Return where exactly this record is, None if it is gone."""
    stamp = stamp_of(record.failed_at)
    segments = _segments(place)
    at = bisect_right(segments, stamp) - 1
    if at < 0:
        return None
    directory = segment_path(place, segments[at])
    path = f"{directory}/{record_name(stamp, record.id, record.name)}"
    if links_of(path):
        return path
    # A damaged record doesn't know its job's name, but its stamp is its own.
    named = (f"{directory}/{name}" for name in names_in(directory) if name.startswith(f"{stamp:017d}-"))
    return next(named, None)


def segment_path(place: QueuePlace, segment: int) -> str:
    """Return the directory of a segment, which is called by its first stamp."""
    return f"{place.failed}/{segment:017d}"


def _segments(place: QueuePlace) -> list[int]:
    return sorted(int(name) for name in names_in(place.failed) if name.isdecimal())


class Segments:
    """Where new records go while their queue is locked."""

    def __init__(self, place: QueuePlace) -> None:
        self._place = place
        self._segments = _segments(place)
        self._room = self._room_in_last()

    def home_of(self, record: FailedRecord) -> str:
        """Return where a record belongs."""
        stamp = stamp_of(record.failed_at)
        at = bisect_right(self._segments, stamp) - 1
        if at < 0 or (at == len(self._segments) - 1 and self._room <= 0):
            self._segments.insert(at + 1, stamp)
            at, self._room = at + 1, SEGMENT
        self._room -= 1
        name = record_name(stamp, record.id, record.name)
        return f"{segment_path(self._place, self._segments[at])}/{name}"

    def _room_in_last(self) -> int:
        if not self._segments:
            return 0
        return SEGMENT - len(names_in(segment_path(self._place, self._segments[-1])))


def removable(
    layout: Layout, queue: str | None, *, before: int | None, keep: int | None, limit: int
) -> Sequence[Found]:
    """Return up to `limit` of the oldest records, those up to a time or beyond a count."""
    surplus = count(layout, queue=queue, job=None) - keep if keep is not None else 0
    chosen: list[Found] = []
    for at, found in enumerate(records(layout, queue)):
        if len(chosen) == limit or not (at < surplus or (before is not None and found.stamp <= before)):
            break
        chosen.append(found)
    return chosen


def age_limit(now: int, older_than: float | None) -> int | None:
    """Return the time up to which records are too old; of no age at all is every one, whatever its time."""
    if older_than is None:
        return None
    return now - micros(older_than) if older_than > 0 else sys.maxsize
