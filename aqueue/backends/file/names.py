"""How a job's place, time and counters are written into the name of its file, and read back.

A job's bytes never change; what changes is only its name, so every change of a job is one rename. Times are
whole microseconds in as many digits as sort, and a name that says nothing is a stranger's: it is handed out
like a job and then found unreadable (MAL-1).
"""

import re
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

from aqueue.port import Receipt

MICRO = 1_000_000
SEGMENT = 1_000
"""How many waiting jobs share a directory: as many names as one listing reads."""
LEASE_BUCKET = MICRO
DELAY_BUCKET = 10 * MICRO
UNREADABLE = -1
"""The attempts of a job whose name or bytes say nothing."""

_TIME = 17
_TOKEN = 24
_TAIL = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})-([0-9]{1,7}|x)-([0-9]{1,7})-([0-9]{1,17})")
_TIMED = re.compile(r"[0-9]{17}-.*", re.DOTALL)
_RECORD = re.compile(r"([0-9]{17})-([0-9a-f]{32})-([0-9a-f]{16})")
_ID = re.compile(r"[0-9a-f]{32}")
_UPPER = re.compile(r"[A-Z]")
_LOWERED = re.compile(r"\+([a-z])")
_QUEUE_DIRECTORY = re.compile(r"(?:[a-z0-9_-]|\+[a-z]){1,80}")
_LATEST = 99_999_999_999_999_999


class Entry(NamedTuple):
    """What a name says of its job: its place in the queue, its counters, since when it is ready."""

    seq: int
    id: str
    attempts: int = 0
    lost: int = 0
    since: int = 0

    @property
    def tail(self) -> str:
        """The part that every name has, and the whole name of a job that is ready."""
        attempts = "x" if self.attempts == UNREADABLE else self.attempts
        return f"{self.seq:016x}-{self.id}-{attempts}-{self.lost}-{self.since}"


class Lease(NamedTuple):
    """One hand-out: where its job's file was put, and a token that no other hand-out has (FENCE-1)."""

    token: str
    path: str

    def __str__(self) -> str:
        return self.token


def lease_of(receipt: Receipt) -> Lease | None:
    """Return the hand-out that a receipt proves, None for one of another store."""
    return receipt if isinstance(receipt, Lease) else None


def micros(seconds: float) -> int:
    """Return a time or a span as names hold it, never less than it is."""
    return max(0, min(_LATEST, ceil(seconds * MICRO)))


def entry_of(name: str, *, at: int = 0, skip: int = 0) -> Entry:
    """Read a name from its `skip`th character on; a stranger's gets an id of its own, and is ready `at`."""
    found = _TAIL.fullmatch(name, skip)
    if found is None:
        return Entry(0, blake2b(name.encode(errors="surrogateescape"), digest_size=16).hexdigest(), -1, 0, at)
    seq, id, attempts, lost, since = found.groups()
    return Entry(int(seq, 16), id, UNREADABLE if attempts == "x" else int(attempts), int(lost), int(since))


def delayed_name(due: int, entry: Entry) -> str:
    """Return the name of a job that waits for its time."""
    return f"{due:0{_TIME}d}-{entry.tail}"


def delayed_entry(name: str, *, at: int = 0) -> Entry:
    """Read the name of a job that waits for its time."""
    return entry_of(name, at=at, skip=_TIME + 1)


def leased_name(expiry: int, token: str, entry: Entry) -> str:
    """Return the name of a job that is handed out."""
    return f"{expiry:0{_TIME}d}-{token}-{entry.tail}"


def leased_entry(name: str, *, at: int = 0) -> Entry:
    """Read the name of a job that is handed out."""
    return entry_of(name, at=at, skip=_TIME + _TOKEN + 2)


def token_of(name: str) -> str:
    """Return the token in the name of a job that is handed out."""
    return name[_TIME + 1 : _TIME + 1 + _TOKEN]


def time_of(name: str) -> int:
    """Return the time that a name begins with; a stranger's is long past."""
    return int(name[:_TIME]) if _TIMED.fullmatch(name) else 0


def segment_of(seq: int) -> str:
    """Return the directory of a place in the queue."""
    return f"{seq // SEGMENT:013x}"


def bucket_of(time: int, width: int) -> str:
    """Return the directory of a time."""
    return f"{time // width:0{_TIME}d}"


class RecordName(NamedTuple):
    """What a name says of its failed job: when it failed, which it was, and a trace of its wire name."""

    stamp: int
    id: str
    trace: str


def record_of(name: str) -> RecordName | None:
    """Read the name of a failed job's record; None for a stranger's."""
    found = _RECORD.fullmatch(name)
    return RecordName(int(found[1]), found[2], found[3]) if found is not None else None


def stamp_of(failed_at: float) -> int:
    """Return the time at which a job failed as it stands in its record's name."""
    return round(failed_at * MICRO)


def record_name(stamp: int, id: str, job: str) -> str:
    """Return the name of a failed job's record: when it failed, which job, and a trace of the wire name."""
    return f"{stamp:0{_TIME}d}-{file_id(id)}-{job_trace(job)}"


def job_trace(job: str) -> str:
    """Return what a record's name tells of the job's wire name, enough to leave the others unread."""
    return blake2b(job.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def file_id(id: str) -> str:
    """Return an id as it may stand in a name; one that is no id is replaced by its digest."""
    if _ID.fullmatch(id):
        return id
    return blake2b(id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def folded(name: str) -> str:
    """Return a name that no file system takes for another one in capitals."""
    return _UPPER.sub(lambda found: f"+{found[0].lower()}", name)


def unfolded(directory: str) -> str | None:
    """Return the queue that a directory belongs to; None for a stranger's."""
    if not _QUEUE_DIRECTORY.fullmatch(directory):
        return None
    return _LOWERED.sub(lambda found: found[1].upper(), directory)
