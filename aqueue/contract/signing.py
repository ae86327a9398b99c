"""Seals: who may put work on a queue is proved before a single byte of it is parsed (SIGN-1, SIGN-2).

A sealed payload is `aq1.<key id>.<digest>.<envelope>`. The digest is HMAC-SHA-256 over the version, the
key id and the envelope, under a key derived once per key with HKDF-SHA-256 and a label of its own, so the
secret itself signs nothing. An unsealed payload is the bare envelope, which starts with a brace.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aqueue.contract.envelope import Malformed
from aqueue.errors import InvalidQueueArgument, KeyringMissing

PREFIX = b"aq1."
LONGEST_HEAD = len(PREFIX) + 32 + 1
"""How many bytes of a payload tell which key sealed it."""

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SEALED = re.compile(rb"aq1\.([A-Za-z0-9_-]{1,32})\.([A-Za-z0-9_-]{43})\.", re.DOTALL)
_HEAD = re.compile(rb"aq1\.([A-Za-z0-9_-]{1,32})\.")
_SEAL_LABEL = b"aqueue.envelope.seal.v1"
_ENCRYPTION_LABEL = b"aqueue.args.encrypt.v1"
_SHORTEST_SECRET = 32
_BLOCK = 64
_DIGEST_LENGTH = 43
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class _Seal:
    """One key, ready to seal: HMAC's two hashes as they are after the key and the payload's head."""

    __slots__ = ("_inner", "_outer", "head")

    def __init__(self, key_id: str, key: bytes) -> None:
        self.head = PREFIX + key_id.encode() + b"."
        padded = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._inner.update(self.head)
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def digest(self, envelope: bytes) -> bytes:
        """Return HMAC-SHA-256 over head and envelope; copying the hashes takes half the time of `hmac`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(envelope)
        outer.update(inner.digest())
        return b2a_base64(outer.digest()).translate(_URL_SAFE, b"=\n")


class _Secrets(dict[str, bytes | str]):
    """Secrets by key id, of which nothing shows but the ids."""

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key_id!r}: [hidden]' for key_id in self)}}}"


@dataclass(frozen=True, slots=True, repr=False)
class Keyring:
    """The keys that seal and open envelopes: one active, the others still readable.

    `keys` maps key ids (`[A-Za-z0-9_-]{1,32}`) to secrets of at least 32 bytes; a str is taken as UTF-8.
    `encrypt` also encrypts the arguments, under a key derived from the active secret (SIGN-4). Raises
    `InvalidQueueArgument` for a bad id, a short secret or an active key that is not among them.
    """

    active: str
    keys: Mapping[str, bytes | str]
    encrypt: bool = field(default=False, kw_only=True)
    _seals: Mapping[str, _Seal] = field(init=False, compare=False)
    _active: _Seal = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", _Secrets(self.keys))
        for key_id in self.keys:
            _check_key_id(key_id)
            if _is_short(self.keys[key_id]):
                raise InvalidQueueArgument(
                    f"the secret of key {key_id!r} has fewer than {_SHORTEST_SECRET} bytes"
                )
        if self.active not in self.keys:
            raise InvalidQueueArgument(f"the active key {self.active!r} is not among the keyring's keys")
        seals = {id: _Seal(id, _derived(secret, _SEAL_LABEL)) for id, secret in self.keys.items()}
        object.__setattr__(self, "_seals", seals)
        object.__setattr__(self, "_active", seals[self.active])

    def __repr__(self) -> str:
        encrypts = ", encrypt=True" if self.encrypt else ""
        return f"Keyring(active={self.active!r}, keys={sorted(self.keys)} [secrets hidden]{encrypts})"

    @classmethod
    def parse(cls, text: str, *, encrypt: bool = False) -> "Keyring":
        """Return the keyring that `id=secret` entries describe, as `aqueue keys generate` writes them.

        They stand in lines or between commas, the active key first; secrets are base64url. An empty line
        and one that starts with `#` say nothing. Raises `InvalidQueueArgument`, which quotes no secret.
        """
        keys, problem = _read(text)
        del text  # tools that show a traceback's variables must not find it there
        if problem is not None:
            raise InvalidQueueArgument(problem)
        return cls(active=next(iter(keys)), keys=keys, encrypt=encrypt)

    def seal(self, envelope: bytes) -> bytes:
        """Return the envelope sealed with the active key."""
        seal = self._active
        return b"%b%b.%b" % (seal.head, seal.digest(envelope), envelope)

    def open(self, payload: bytes, *, accept_unsigned: bool = False) -> bytes:
        """Return the envelope inside, or raise `Malformed` with reason `signature` (SIGN-2)."""
        seal = self._active
        if payload.startswith(seal.head):
            start = len(seal.head)
            end = start + _DIGEST_LENGTH
            envelope = payload[end + 1 :]
            if payload[end : end + 1] == b"." and hmac.compare_digest(
                seal.digest(envelope), payload[start:end]
            ):
                return envelope
        return self._open_at_length(payload, accept_unsigned=accept_unsigned)

    def encryption_key(self, key_id: str) -> bytes | None:
        """Return the 32 bytes that encrypt arguments under this key, None for one that is not held."""
        secret = self.keys.get(key_id)
        return None if secret is None else _derived(secret, _ENCRYPTION_LABEL)

    def _open_at_length(self, payload: bytes, *, accept_unsigned: bool) -> bytes:
        match = _SEALED.match(payload)
        if match is None:
            return _open_unsigned(payload, accept_unsigned=accept_unsigned)
        seal = self._seals.get(match[1].decode())
        if seal is None:
            key_id = match[1].decode()
            raise Malformed(
                f"sealed with key {key_id!r}, which this keyring doesn't hold: add it to read the job",
                reason="signature",
            )
        envelope = payload[match.end() :]
        if not hmac.compare_digest(seal.digest(envelope), match[2]):
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


def key_id_of(payload: bytes) -> str | None:
    """Return the id of the key that the payload, or its first `LONGEST_HEAD` bytes, names; None if none."""
    match = _HEAD.match(payload)
    return match[1].decode() if match is not None else None


def written_key(key_id: str, secret: bytes) -> str:
    """Return a key as `Keyring.parse` reads it; raises `InvalidQueueArgument` for a bad id or secret."""
    Keyring(active=key_id, keys={key_id: secret})
    return f"{key_id}={urlsafe_b64encode(secret).rstrip(b'=').decode()}"


def _open_unsigned(payload: bytes, *, accept_unsigned: bool) -> bytes:
    if payload.startswith(PREFIX):
        raise Malformed("the seal is damaged", reason="signature")
    if not accept_unsigned:
        raise Malformed("the payload is not sealed", reason="signature")
    return payload


def _check_key_id(key_id: object) -> None:
    if not isinstance(key_id, str) or _KEY_ID.fullmatch(key_id) is None:
        raise InvalidQueueArgument(f"{key_id!r} is not a key id: use 1 to 32 letters, digits, _ and -")


def _is_short(secret: bytes | str) -> bool:
    return len(_raw(secret)) < _SHORTEST_SECRET


def _derived(secret: bytes | str, label: bytes) -> bytes:
    """HKDF-SHA-256 (RFC 5869) without a salt: one secret, and a key of its own for each use of it."""
    extracted = hmac.digest(bytes(32), _raw(secret), "sha256")
    return hmac.digest(extracted, label + b"\x01", "sha256")


def _raw(secret: bytes | str) -> bytes:
    return secret.encode() if isinstance(secret, str) else bytes(secret)


def _read(text: str) -> "tuple[_Secrets, str | None]":
    """Return the keys that a text names, or what is wrong with it, which never quotes it."""
    keys = _Secrets()
    for entry in _entries(text):
        key_id, separator, written = entry.partition("=")
        if not separator or _KEY_ID.fullmatch(key_id) is None:  # it may be a secret
            return keys, "signing keys are entries id=secret: 'aqueue keys generate' makes one"
        if key_id in keys:
            return keys, f"the signing key {key_id!r} is given twice"
        secret = _decoded(written)
        if secret is None:
            return keys, f"the secret of key {key_id!r} is not base64url"
        keys[key_id] = secret
    return keys, None if keys else "there is no signing key in it: 'aqueue keys generate' makes one"


def _entries(text: str) -> Iterable[str]:
    lines = (line.strip() for line in text.splitlines())
    kept = (line for line in lines if not line.startswith("#"))
    return (entry.strip() for line in kept for entry in line.split(",") if entry.strip())


def _decoded(text: str) -> bytes | None:
    """Strictly: a slip of the pen must not turn one secret into another."""
    unpadded = text.strip().rstrip("=")
    if re.fullmatch(r"[A-Za-z0-9_-]+", unpadded) is None or len(unpadded) % 4 == 1:
        return None
    return urlsafe_b64decode(unpadded + "=" * (-len(unpadded) % 4))
