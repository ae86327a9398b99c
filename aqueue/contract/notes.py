"""What notes are called and how large they may be (NOTE-1).

A key made from what users wrote is hashed, so that any text makes a key, of one length, that tells nobody
what it was made from.
"""

import re
from hashlib import sha256

from aqueue.contract.names import check_seconds
from aqueue.errors import InvalidQueueArgument

LARGEST_NOTE = 1024 * 1024
LONGEST_NOTE = 100 * 365 * 86_400.0

_KEY = re.compile(r"[A-Za-z0-9_.:-]{1,120}")
_KIND = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def note_key(kind: str, *parts: str) -> str:
    """Return the key of a kind of note about these texts: `kind:` and 40 hexadecimal digits.

    Other parts make another key, however they are cut: `("a", "bc")` is not `("ab", "c")`.
    """
    if not _KIND.fullmatch(kind):
        raise InvalidQueueArgument(f"{kind!r} is not a kind of note: use letters, digits, '.', '-' and '_'")
    digest = sha256()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(text), text))
    return f"{kind}:{digest.hexdigest()[:40]}"


def check_note_key(key: object) -> str:
    """Return the key, or refuse it: 1 to 120 ASCII letters, digits and `_ . : -`."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidQueueArgument(f"{key!r} is not a note's key: make one with note_key()")
    return key


def check_note_value(value: object) -> bytes | None:
    """Return the bytes, or None for no note; refuse anything else, and more than 1 MiB."""
    if value is None:
        return None
    if not isinstance(value, bytes):
        raise InvalidQueueArgument(f"a note's value must be bytes or None, not {type(value).__name__}")
    if len(value) > LARGEST_NOTE:
        raise InvalidQueueArgument(f"a note holds at most {LARGEST_NOTE} bytes, not {len(value)}")
    return value


def check_note_seconds(seconds: object) -> float | None:
    """Return how long a note lasts: None for ever, or more than 0 seconds up to 100 years."""
    if seconds is None:
        return None
    checked = check_seconds(seconds, "seconds")
    if not 0 < checked <= LONGEST_NOTE:
        raise InvalidQueueArgument(f"a note lasts more than 0 s and at most 100 years, not {checked:g} s")
    return checked
