"""What stands in a job's file and in a note's: enough to know whether all of it is there.

A job's file begins with a line that tells the length and checksum of what follows, which is the payload as it
was pushed. A file that was cut short, or never got its bytes, shows by that.
"""

import os
import re
from typing import NamedTuple
from zlib import crc32

_JOB = re.compile(rb"aqueue-job 1 ([0-9]{1,10}) ([0-9a-f]{8})\n")
_NOTE = re.compile(rb"aqueue-note 1 ([0-9]{1,10}) ([0-9a-f]{8}) ([0-9a-f]{32}) ([0-9]{1,17}|-)\n")
_LONGEST_HEADER = 128
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A stranger's link is not followed, nor its pipe waited for."""


class Content(NamedTuple):
    """A job's payload; of a damaged file all its bytes."""

    payload: bytes
    is_whole: bool


class StoredNote(NamedTuple):
    """A note as it is kept: `until` is its end in microseconds, None for never."""

    token: str
    until: int | None
    value: bytes

    def lasts(self, now: int) -> bool:
        """Whether the note's time is not over."""
        return self.until is None or self.until > now


def job_bytes(payload: bytes) -> bytes:
    """Return what to write into a job's file."""
    return b"aqueue-job 1 %d %08x\n%b" % (len(payload), crc32(payload), payload)


def note_bytes(note: StoredNote) -> bytes:
    """Return what to write into a note's file."""
    until = b"-" if note.until is None else b"%d" % note.until
    head = b"aqueue-note 1 %d %08x " % (len(note.value), crc32(note.value))
    return b"%b%b %b\n%b" % (head, note.token.encode(), until, note.value)


def read_job(path: str) -> Content:
    """Read a job's file; raises `OSError` if it can't be read."""
    data = read_file(path)
    payload = _whole(_JOB.match(data), data)
    return Content(data, is_whole=False) if payload is None else Content(payload, is_whole=True)


def read_head(path: str, length: int) -> bytes:
    """Return no more than so many bytes of a job's payload, unchecked; of a damaged file its first bytes."""
    data = read_file(path, length + _LONGEST_HEADER)
    header = _JOB.match(data)
    return data[header.end() if header is not None else 0 :][:length]


def read_note(path: str) -> StoredNote | None:
    """Read a note's file; None where there is none, or where its bytes are damaged."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        return None
    header = _NOTE.match(data)
    value = _whole(header, data)
    return None if header is None or value is None else _note(header, value)


def read_note_head(path: str) -> StoredNote | None:
    """Read a note's file as `read_note` does, its value left out."""
    try:
        header = _NOTE.match(read_file(path, _LONGEST_HEADER))
    except FileNotFoundError:
        return None
    return None if header is None else _note(header, b"")


def _note(header: re.Match[bytes], value: bytes) -> StoredNote:
    until = None if header[4] == b"-" else int(header[4])
    return StoredNote(header[3].decode(), until, value)


def _whole(header: re.Match[bytes] | None, data: bytes) -> bytes | None:
    """Return what follows the header, if all of it does."""
    if header is None:
        return None
    body = data[header.end() :]
    return body if len(body) == int(header[1]) and crc32(body) == int(header[2], 16) else None


def read_file(path: str, most: int = 1 << 62) -> bytes:
    """Return a file's bytes, or the first of them."""
    file = os.open(path, _READ)
    try:
        pieces: list[bytes] = []
        while most > 0 and (piece := os.read(file, min(most, 65536 if not pieces else 1 << 20))):
            pieces.append(piece)
            most -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(file)
