"""Encrypted arguments: what a job carries is readable only with the key that sealed it (SIGN-4).

They travel as `{"$aes": "<nonce and ciphertext, base64url>"}` in the place of the arguments, inside the seal.
AES-256-GCM binds them to the job that they belong to: its id, name, time, cap and metadata. The cipher itself
comes from outside, and so does the nonce, which must be new and random for each job.
"""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Protocol

import msgspec

from aqueue.contract.envelope import Envelope, Malformed

NONCE_BYTES = 12
_BEGINNING = b'{"$aes":'


class Cipher(Protocol):
    """AES-GCM under one key, as `cryptography` has it."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes:
        """Return the ciphertext and its tag."""

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes:
        """Return the plaintext, or raise where anything was changed."""


class _Wire(msgspec.Struct, forbid_unknown_fields=True):
    text: str = msgspec.field(name="$aes")


_decoder = msgspec.json.Decoder(_Wire)


def encrypted(envelope: Envelope, cipher: Cipher, nonce: bytes) -> Envelope:
    """Return the envelope with arguments that show nothing but their length."""
    sealed = nonce + cipher.encrypt(nonce, bytes(envelope.args), _identity_of(envelope))
    return msgspec.structs.replace(envelope, args=msgspec.Raw(b'{"$aes":"%b"}' % urlsafe_b64encode(sealed)))


def is_encrypted(envelope: Envelope) -> bool:
    """Whether the arguments are encrypted; no job declares an argument of that name."""
    return memoryview(envelope.args)[: len(_BEGINNING)] == _BEGINNING


def decrypted(envelope: Envelope, cipher: Cipher) -> Envelope:
    """Return the envelope with readable arguments, or raise `Malformed` with reason `signature`.

    Whatever fails here was sealed by somebody who holds a key, so only a wrong key or a forgery by such a
    holder leads to it.
    """
    try:
        sealed = urlsafe_b64decode(_decoder.decode(envelope.args).text)
        args = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _identity_of(envelope))
    except Exception:  # noqa: BLE001 - bad JSON, bad base64, and whatever this cipher raises for a bad tag
        raise _undecryptable() from None
    if not args.startswith(b"{"):
        raise _undecryptable()
    return msgspec.structs.replace(envelope, args=msgspec.Raw(args))


def _identity_of(envelope: Envelope) -> bytes:
    """Return what of a job its ciphertext is bound to, as bytes that no other job has."""
    attempts = "" if envelope.max_attempts is None else str(envelope.max_attempts)
    entries = (text for entry in sorted(envelope.metadata.items()) for text in entry)
    parts = [text.encode() for text in (envelope.id, envelope.name, attempts, *entries)]
    return struct.pack(f">d{len(parts)}Q", envelope.pushed_at, *map(len, parts)) + b"".join(parts)


def _undecryptable() -> Malformed:
    return Malformed("the arguments can't be decrypted with the key that sealed them", reason="signature")
