"""AMQP 0-9-1 as bytes: the frames that every job passes through, packed by hand; pamqp does the rest.

A message carries its job's id as `correlation_id` and a `message_id` that is new for each publish: the word
of its channel, its number there, and when it becomes due. Two headers count attempts made and lost hand-outs
before the last copy; a job that was never handed out has none, which costs the broker less.
"""

import struct
from typing import Any, NamedTuple

from pamqp import commands, decode

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
HEAD = struct.Struct("!BHI")
UNSIGNED_64 = struct.Struct("!Q")

DELIVER, RETURN = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x32"
ACK, NACK, CANCEL = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78", b"\x00\x3c\x00\x1e"
CHANNEL_CLOSE, CHANNEL_CLOSED, CHANNEL_FLOW = b"\x00\x14\x00\x28", b"\x00\x14\x00\x29", b"\x00\x14\x00\x14"
CONNECTION_CLOSE, BLOCKED, UNBLOCKED = b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"

HEARTBEAT_FRAME = HEAD.pack(HEARTBEAT, 0, 0) + b"\xce"

_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY = b"\x01"
_CONTENT = struct.Struct("!HHQ")
_SETTLE = struct.Struct("!BHI4sQBB")
_END_AND_HEAD = struct.Struct("!BBHI")
_ATTEMPTS, _LOST = "aqueue-attempts", "aqueue-lost"
_TABLE = struct.Struct("!2sI17si13si")
_PLAIN = b"\x14\x80"  # delivery_mode, correlation_id, message_id
_COUNTED = b"\x34\x80"  # the same, and headers
_PERSISTENT = b"\x02"
_MOST = 2**31 - 1


class Letter(NamedTuple):
    """A message on its way out: where to, made by `address`, whose, its counters and its bytes.

    `due` is in milliseconds since the epoch.
    """

    address: bytes
    job_id: str
    body: bytes
    attempts: int
    lost: int
    due: int


class Tidings(NamedTuple):
    """What the properties of a message that came in say; numbers that can't be used are -1."""

    job_id: str
    attempts: int
    lost: int
    due: int
    redeliveries: int


def address(exchange: str, routing_key: str) -> bytes:
    """Return the method that publishes a mandatory message there."""
    return _PUBLISH + _short(exchange.encode()) + _short(routing_key.encode()) + _MANDATORY


def message(channel: int, letter: Letter, word: str, number: int, most: int) -> bytes:
    """Return the frames of one persistent message, which is its channel's `number`th.

    `word` is the channel's own, and `most` how long a frame may be.
    """
    body = letter.body
    message_id = b"%b.%d.%d" % (word.encode(), number, letter.due)
    ids = _short(letter.job_id.encode()) + _short(message_id)
    properties = b"".join((_counters(letter), _PERSISTENT, ids))
    parts = [
        HEAD.pack(METHOD, channel, len(letter.address)), letter.address,
        _END_AND_HEAD.pack(FRAME_END, HEADER, channel, 12 + len(properties)),
        _CONTENT.pack(60, 0, len(body)), properties, b"\xce",
    ]  # fmt: skip
    room = most - 8
    for start in range(0, len(body), room):
        piece = body[start : start + room]
        parts += (HEAD.pack(BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return the frame that acknowledges a delivery, or all up to it."""
    return _SETTLE.pack(METHOD, channel, 13, ACK, tag, multiple, FRAME_END)


def requeue(channel: int, tag: int) -> bytes:
    """Return the frame that puts a delivery back."""
    return _SETTLE.pack(METHOD, channel, 13, NACK, tag, 2, FRAME_END)


def read(properties: bytes) -> Tidings:
    """Return what the flags and properties of a content header say."""
    if properties[:2] != _PLAIN:
        return _read_any(properties)
    at = 4 + properties[3]
    job_id, message_id = properties[4:at], properties[at + 1 :]
    return Tidings(job_id.decode("utf-8", "replace"), 0, 0, _due(message_id), 0)


def number_of(properties: bytes, word: str) -> int | None:
    """Return the number of a message on the channel with this word; None for one from elsewhere."""
    parts = str(_properties(properties).message_id or "").split(".")
    return int(parts[1]) if len(parts) == 3 and parts[0] == word and parts[1].isdigit() else None


def _read_any(properties: bytes) -> Tidings:
    """Somebody else's message, or one to which the broker has added headers."""
    try:
        found = _properties(properties)
    except (ValueError, struct.error, UnicodeDecodeError, IndexError):
        return Tidings("", -1, -1, 0, 0)
    headers: Any = found.headers or {}
    return Tidings(
        str(found.correlation_id or ""),
        _counter(headers.get(_ATTEMPTS, 0)),
        _counter(headers.get(_LOST, 0)),
        _due(str(found.message_id or "").encode()),
        max(0, _counter(headers.get("x-delivery-count", 0))),
    )


def _counters(letter: Letter) -> bytes:
    """Return the flags of a message, and the headers it needs."""
    if not letter.attempts and not letter.lost:
        return _PLAIN
    attempts, lost = min(letter.attempts, _MOST), min(letter.lost, _MOST)
    return _TABLE.pack(_COUNTED, 38, b"\x0faqueue-attemptsI", attempts, b"\x0baqueue-lostI", lost)


def _due(message_id: bytes) -> int:
    """Return the time in a message id of ours, and 0 for any other."""
    _, _, due = message_id.rpartition(b".")
    return int(due) if due.isdigit() and message_id.count(b".") == 2 and len(due) < 16 else 0


def _properties(properties: bytes) -> commands.Basic.Properties:
    found = commands.Basic.Properties()
    taken, flags = _flags(properties)
    found.unmarshal(flags, properties[taken:])
    return found


def _flags(properties: bytes) -> tuple[int, int]:
    taken, flags, shift = 0, 0, 0
    while True:
        _, part = decode.short_int(properties[taken : taken + 2])
        part &= 0xFFFF
        flags |= part << shift
        taken, shift = taken + 2, shift + 16
        if not part & 1:
            return taken, flags


def _counter(value: object) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value >= 0 else -1  # type: ignore[operator,return-value]


def _short(text: bytes) -> bytes:
    text = text[:255]
    return bytes((len(text),)) + text
