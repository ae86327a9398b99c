"""Seals: who may put work on a queue is proved before a single byte of it is parsed (SIGN-1, SIGN-2).

A sealed payload is `aq1.<key id>.<digest>.<envelope>`. The digest is HMAC-SHA-256 over the version, the
key id and the envelope, under a key derived once per key with HKDF-SHA-256 and a label of its own, so the
secret itself signs nothing. An unsealed payload is the bare envelope, which starts with a brace.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from aqueue.contract.envelope import Malformed
from aqueue.errors import InvalidQueueArgument, KeyringMissing

PREFIX = b"aq1."
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SEALED = re.compile(rb"aq1\.([A-Za-z0-9_-]{1,32})\.([A-Za-z0-9_-]{43})\.", re.DOTALL)
_LABEL = b"aqueue.envelope.seal.v1"
_SHORTEST_SECRET = 32


@dataclass(frozen=True, slots=True, repr=False)
class Keyring:
    """The keys that seal and open envelopes: one active, the others still readable.

    `keys` maps key ids (`[A-Za-z0-9_-]{1,32}`) to secrets of at least 32 bytes; a str is taken as UTF-8.
    Raises `InvalidQueueArgument` for a bad id, a short secret or an active key that is not among them.
    """

    active: str
    keys: Mapping[str, bytes | str]
    _derived: Mapping[str, bytes] = field(init=False)

    def __post_init__(self) -> None:
        derived = {key_id: _derive(key_id, secret) for key_id, secret in self.keys.items()}
        if self.active not in derived:
            raise InvalidQueueArgument(f"the active key {self.active!r} is not among the keyring's keys")
        object.__setattr__(self, "_derived", derived)
        object.__setattr__(self, "keys", dict(self.keys))

    def __repr__(self) -> str:
        return f"Keyring(active={self.active!r}, keys={sorted(self.keys)} [secrets hidden])"

    def seal(self, envelope: bytes) -> bytes:
        """Return the envelope sealed with the active key."""
        head = PREFIX + self.active.encode() + b"."
        return head + _digest(self._derived[self.active], head, envelope) + b"." + envelope

    def open(self, payload: bytes, *, accept_unsigned: bool = False) -> bytes:
        """Return the envelope inside, or raise `Malformed` with reason `signature` (SIGN-2)."""
        match = _SEALED.match(payload)
        if match is None:
            return _open_unsigned(payload, accept_unsigned=accept_unsigned)
        key = self._derived.get(match[1].decode())
        if key is None:
            raise Malformed("sealed with a key this keyring doesn't hold", reason="signature")
        envelope = payload[match.end() :]
        expected = _digest(key, PREFIX + match[1] + b".", envelope)
        if not hmac.compare_digest(expected, match[2]):
            raise Malformed("the seal doesn't match the payload", reason="signature")
        return envelope


def open_without_keys(payload: bytes) -> bytes:
    """Return the bare envelope; a sealed one raises `KeyringMissing`: the set-up is wrong, not the job."""
    if payload.startswith(PREFIX) and _SEALED.match(payload) is not None:
        raise KeyringMissing(
            "this job is sealed and the queue has no keyring: give connect(keyring=…) the keys that "
            "sealed it; nothing was settled"
        )
    return payload


def _open_unsigned(payload: bytes, *, accept_unsigned: bool) -> bytes:
    if payload.startswith(PREFIX):
        raise Malformed("the seal is damaged", reason="signature")
    if not accept_unsigned:
        raise Malformed("the payload is not sealed", reason="signature")
    return payload


def _derive(key_id: str, secret: bytes | str) -> bytes:
    if not isinstance(key_id, str) or _KEY_ID.fullmatch(key_id) is None:
        raise InvalidQueueArgument(f"{key_id!r} is not a key id: use 1 to 32 letters, digits, _ and -")
    raw = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(raw) < _SHORTEST_SECRET:
        raise InvalidQueueArgument(f"the secret of key {key_id!r} has fewer than {_SHORTEST_SECRET} bytes")
    extracted = hmac.digest(bytes(32), raw, "sha256")
    return hmac.digest(extracted, _LABEL + b"\x01", "sha256")


def _digest(key: bytes, head: bytes, envelope: bytes) -> bytes:
    return urlsafe_b64encode(hmac.digest(key, head + envelope, "sha256")).rstrip(b"=")


def key_id_of(payload: bytes) -> str | None:
    """Return the id of the key that sealed the payload, or None for an unsealed one (SIGN-3)."""
    match = _SEALED.match(payload)
    return match[1].decode() if match is not None else None
