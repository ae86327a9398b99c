"""How a queue closes and opens envelopes: sealed and encrypted as its keyring says (SIGN-1 to SIGN-4).

What a seal is, and what is bound to what, is decided in the contract; here it gets what the contract may not
reach for itself: random nonces, the time, and the cipher, which is an extra.
"""

import os
from collections.abc import Callable
from datetime import datetime

from aqueue.contract.encryption import NONCE_BYTES, Cipher, decrypted, encrypted, is_encrypted
from aqueue.contract.envelope import Envelope, Malformed, decode_envelope, encoded
from aqueue.contract.signing import PREFIX, Keyring, key_id_of, open_without_keys
from aqueue.errors import InvalidQueueArgument, QueueUnavailable

CloseEnvelope = Callable[[Envelope], bytes]
"""Returns the bytes to store for a job."""

OpenEnvelope = Callable[[bytes], Envelope]
"""Returns the envelope in stored bytes; raises `Malformed`, or what is wrong with the set-up."""


def envelope_closer(keyring: Keyring | None) -> CloseEnvelope:
    """Return what makes a job's stored bytes; raises `QueueUnavailable` where encrypting lacks its extra."""
    if keyring is None:
        return encoded
    if not keyring.encrypt:
        return lambda envelope: keyring.seal(encoded(envelope))
    cipher = _cipher(keyring, keyring.active)
    return lambda envelope: keyring.seal(encoded(encrypted(envelope, cipher, os.urandom(NONCE_BYTES))))


def envelope_opener(
    keyring: Keyring | None, *, accept_unsigned: bool | datetime, clock: Callable[[], float]
) -> OpenEnvelope:
    """Return what checks a payload's seal and reads it; nothing inside is parsed before (SIGN-1).

    `accept_unsigned` is whether, or until when by `clock`, payloads without a seal are read (SIGN-2).
    """
    until = _end_of_cut_over(accept_unsigned)
    if keyring is None:
        return _open_plain
    ciphers: dict[str, Cipher] = {}

    def open_sealed(payload: bytes) -> Envelope:
        envelope = decode_envelope(keyring.open(payload, accept_unsigned=until > 0 and clock() < until))
        return _readable(envelope, payload, keyring, ciphers) if is_encrypted(envelope) else envelope

    return open_sealed


def _open_plain(payload: bytes) -> Envelope:
    return decode_envelope(open_without_keys(payload) if payload.startswith(PREFIX) else payload)


def _readable(envelope: Envelope, payload: bytes, keyring: Keyring, ciphers: dict[str, Cipher]) -> Envelope:
    key_id = key_id_of(payload)
    if key_id is None:  # an unsealed one that was let in
        raise Malformed("encrypted arguments without a seal", reason="signature")
    if key_id not in ciphers:
        ciphers[key_id] = _cipher(keyring, key_id)
    return decrypted(envelope, ciphers[key_id])


def _cipher(keyring: Keyring, key_id: str) -> Cipher:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise QueueUnavailable(
            "encrypted arguments need the package 'cryptography': pip install 'aqueue-jobs[crypto]'"
        ) from error
    key = keyring.encryption_key(key_id)
    assert key is not None, "a seal was opened with a key that isn't there"
    return AESGCM(key)


def _end_of_cut_over(accept_unsigned: bool | datetime) -> float:
    """Return until when the unsealed is read, in seconds since the epoch: 0 for never."""
    if isinstance(accept_unsigned, bool):
        return float("inf") if accept_unsigned else 0.0
    if not isinstance(accept_unsigned, datetime) or accept_unsigned.tzinfo is None:
        raise InvalidQueueArgument("accept_unsigned must be True, False, or an aware datetime: until when")
    return accept_unsigned.timestamp()
