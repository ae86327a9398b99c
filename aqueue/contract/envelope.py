"""The stored envelope, version 1: what of a job never changes once it is pushed (WIRE-1).

It is JSON and it is sealed as a whole. Counters that change with every delivery live outside, in the
store, so the bytes stay the same from push to failed store and back (O-21). Fields a newer minor writer
added are ignored; a newer major version is refused, not guessed at. `tests/golden/` pins the bytes.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from aqueue.contract.names import is_job_id
from aqueue.errors import AqueueError, UnknownEnvelopeVersion

VERSION = 1
REDACTED = "[redacted]"

SENSITIVE_KEY = "aqueue.sensitive"
"""The metadata key that names an envelope's sensitive arguments, so that whoever shows it can hide them."""

_BRACE = ord("{")
_YEAR_10000 = 253_402_300_800
_MOST_ATTEMPTS = 2**31 - 1


class Malformed(AqueueError):
    """Stored bytes can't be read; `reason` is what the failed store says (MAL-1)."""

    def __init__(self, detail: str, *, reason: str = "malformed") -> None:
        super().__init__(detail)
        self.reason = reason


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pushed job. `args` is the raw JSON object, decoded only by whoever needs it."""

    v: int
    id: str
    name: Annotated[str, msgspec.Meta(min_length=1)]
    pushed_at: Annotated[float, msgspec.Meta(ge=0, lt=_YEAR_10000)]
    args: msgspec.Raw
    max_attempts: Annotated[int, msgspec.Meta(ge=0, le=_MOST_ATTEMPTS)] | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Envelope({self.name!r}, id={self.id!r}, args=<{len(bytes(self.args))} bytes>)"


class _Version(msgspec.Struct):
    v: int


_decoder = msgspec.json.Decoder(Envelope)
_version_decoder = msgspec.json.Decoder(_Version)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError)


def encode_envelope(
    *,
    id: str,
    name: str,
    pushed_at: float,
    args: bytes,
    max_attempts: int | None,
    metadata: dict[str, str],
) -> bytes:
    """Return the envelope's bytes; `args` is a JSON object the codec made."""
    return encoded(Envelope(VERSION, id, name, pushed_at, msgspec.Raw(args), max_attempts, metadata))


encoded: Callable[[Envelope], bytes] = msgspec.json.Encoder().encode
"""Returns the envelope's bytes."""


def decode_envelope(raw: bytes) -> Envelope:
    """Return the envelope, or raise `Malformed`; a newer version raises `UnknownEnvelopeVersion`.

    Bytes that the JSON parser would skip over unread (arguments, unknown fields) are checked to be UTF-8
    first; how deep arguments may nest is checked by the codec, before it parses them.
    """
    try:
        if not raw.isascii():
            raw.decode()
        envelope = _decoder.decode(raw)
    except _UNREADABLE:
        raise _why_unreadable(raw) from None
    if envelope.v != VERSION:
        raise _wrong_version(envelope.v)
    if not is_job_id(envelope.id):
        raise Malformed("the envelope's id is not valid")
    if memoryview(envelope.args)[0] != _BRACE:
        raise Malformed("the envelope's arguments are not a JSON object")
    return envelope


def _why_unreadable(raw: bytes) -> AqueueError:
    """A newer version may have another shape altogether, so look for its number before giving up."""
    try:
        version = _version_decoder.decode(raw).v
    except _UNREADABLE:
        return Malformed("the stored bytes are not an envelope")
    if version != VERSION:
        return _wrong_version(version)
    return Malformed("the envelope has another shape, or a number in it is out of range")


def _wrong_version(version: int) -> AqueueError:
    if version > VERSION:
        return UnknownEnvelopeVersion(
            f"envelope version {version} was written by a newer aqueue; this one reads up to {VERSION}: "
            "upgrade the workers before the producers"
        )
    return Malformed("the envelope names no version")


def redacted_by_metadata(args: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments fit to be shown by somebody who doesn't know the job's class (WORK-5)."""
    hidden = metadata.get(SENSITIVE_KEY, "").split(",")
    return {name: REDACTED if name in hidden else value for name, value in args.items()}
