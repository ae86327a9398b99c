"""What a seal costs: seal and open one 200-byte envelope, in microseconds, best of each round.

    python -m benchmarks.sealing

Beside it what it is made of and what it could be made of, so that a change can be judged in one run. Nothing
here touches a store; the numbers are the processor's.
"""

import base64
import hashlib
import hmac
import os
import statistics
import sys
import timeit
from collections.abc import Callable

import msgspec

from aqueue.contract.envelope import VERSION, Envelope, encoded
from aqueue.contract.signing import Keyring
from aqueue.sealing import envelope_closer, envelope_opener

ROUNDS = 25
CALLS = 4_000


def measured(call: Callable[[], object]) -> list[float]:
    """Return microseconds a call, one figure for each round."""
    return [seconds / CALLS * 1e6 for seconds in timeit.repeat(call, number=CALLS, repeat=ROUNDS)]


def envelope_of(size: int) -> Envelope:
    """Return an envelope that takes exactly `size` bytes."""
    made = Envelope(VERSION, "0" * 32, "emails.welcome", 1.8e9, msgspec.Raw(b'{"text":""}'), 5, {})
    text = b"x" * (size - len(encoded(made)))
    return msgspec.structs.replace(made, args=msgspec.Raw(b'{"text":"%b"}' % text))


def with_hmac_digest(key: bytes, message: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, message, "sha256")).rstrip(b"=")


def with_hmac_new(key: bytes, message: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.new(key, message, hashlib.sha256).digest()).rstrip(b"=")


def with_blake2(key: bytes, message: bytes) -> bytes:
    return base64.urlsafe_b64encode(hashlib.blake2b(message, key=key, digest_size=32).digest()).rstrip(b"=")


def main() -> None:
    secret, key = os.urandom(32), os.urandom(32)
    ring = Keyring(active="2026-11", keys={"2026-11": secret, "2026-05": os.urandom(32)})
    older = Keyring(active="2026-05", keys=ring.keys)
    hiding = Keyring(active="2026-11", keys=ring.keys, encrypt=True)
    envelope = envelope_of(200)
    raw = encoded(envelope)
    message = b"aq1.2026-11." + raw
    sealed, old = ring.seal(raw), older.seal(raw)
    close, open_ = envelope_closer(hiding), envelope_opener(hiding, accept_unsigned=False, clock=lambda: 0.0)
    hidden = close(envelope)

    rows: list[tuple[str, Callable[[], object]]] = [
        ("seal + open", lambda: ring.open(ring.seal(raw))),
        ("seal", lambda: ring.seal(raw)),
        ("open", lambda: ring.open(sealed)),
        ("open, sealed by an older key", lambda: ring.open(old)),
        ("encrypt, encode, seal", lambda: close(envelope)),
        ("open, decode, decrypt", lambda: open_(hidden)),
        ("one digest by hmac.digest", lambda: with_hmac_digest(key, message)),
        ("one digest by hmac.new", lambda: with_hmac_new(key, message)),
        ("one digest by keyed BLAKE2b", lambda: with_blake2(key, message)),
    ]
    sys.stdout.write(f"{len(raw)}-byte envelope, µs a call, {ROUNDS} rounds of {CALLS:,}\n\n")
    sys.stdout.write(f"{'':<32}{'least':>8}{'median':>8}{'most':>8}\n")
    for label, call in rows:
        rounds = measured(call)
        least, median, most = min(rounds), statistics.median(rounds), max(rounds)
        sys.stdout.write(f"{label:<32}{least:>8.2f}{median:>8.2f}{most:>8.2f}\n")


if __name__ == "__main__":
    main()
