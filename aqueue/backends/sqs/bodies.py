"""A job as SQS holds it: a body of legal characters, and one attribute with what else must be known.

A sealed envelope is JSON, and travels as it is unless a character in it is one that SQS refuses or a carriage
return, which some ways to SQS don't keep. What is no such text travels as base64, and the attribute says so.
"""

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from aqueue.backends.sqs.receipts import Receipt
from aqueue.contract.names import is_job_id
from aqueue.port import Message, Reserved

LABEL = "aqueue"
ASKED = ("ApproximateReceiveCount", "SentTimestamp", "ApproximateFirstReceiveTimestamp")
MOST_BYTES = 1024 * 1024
"""Bytes of one message, and of one batch, with attributes."""

LABEL_BYTES = 128
"""More than the attribute ever takes, its name and type included."""

_ENCODED = "base64:"  # in front, since SQS takes no empty body
_UNFIT = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Label(msgspec.Struct, omit_defaults=True):
    id: str
    delay: int = 0
    base64: bool = False


class Body(NamedTuple):
    """What is sent of a message, and how many bytes SQS will count."""

    entry: dict[str, Any]
    size: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Label).decode


def body_of(message: Message) -> Body:
    """Return the entry of a batch for a message, all but its `Id`."""
    text = _text_of(message.payload)
    delay = math.ceil(message.delay)
    label = _encode(_Label(message.id, delay, text is None)).decode()
    sent = text if text is not None else _ENCODED + base64.b64encode(message.payload).decode()
    bytes_sent = len(message.payload) if text is not None else len(sent)
    entry = {
        "MessageBody": sent,
        "DelaySeconds": delay,
        "MessageAttributes": {LABEL: {"DataType": "String", "StringValue": label}},
    }
    return Body(entry, bytes_sent + len(LABEL) + len("String") + len(label))


def _text_of(payload: bytes) -> str | None:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if text and not _UNFIT.search(text) else None


def reserved_of(message: Mapping[str, Any], queue: str, *, since: float, lease: int) -> Reserved:
    """Return the hand-out of a received message; one that nobody here wrote will be found unreadable."""
    id, delay, payload = _opened(message)
    attributes: Mapping[str, str] = message.get("Attributes", {})
    attempt, sent, first = (_whole(attributes.get(name, "")) for name in ASKED)
    waited = (first - sent) / 1000 - delay if attempt == 1 and sent and first else 0.0
    receipt = Receipt(message["ReceiptHandle"], id, since=since, lease=lease)
    return Reserved(id, queue, payload, receipt, attempt, 0, max(0.0, waited))


def _opened(message: Mapping[str, Any]) -> tuple[str, int, bytes]:
    """Return the job's id, its delay and its bytes; the raw body where the attribute makes no sense."""
    raw: bytes = message.get("Body", "").encode("utf-8", "surrogatepass")
    try:
        label = _decode(message["MessageAttributes"][LABEL]["StringValue"])
        if not is_job_id(label.id):
            raise ValueError  # noqa: TRY301 - as unreadable as what the decoder refuses
        return label.id, label.delay, _decoded(raw) if label.base64 else raw
    except (KeyError, TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        return _id_of(message), 0, raw


def _decoded(raw: bytes) -> bytes:
    return base64.b64decode(raw.removeprefix(_ENCODED.encode()), validate=True)


def _id_of(message: Mapping[str, Any]) -> str:
    """Make an id of SQS' own, which is a UUID."""
    given = str(message.get("MessageId", "")).replace("-", "").lower()
    return given if is_job_id(given) else hashlib.blake2b(given.encode(), digest_size=16).hexdigest()


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
