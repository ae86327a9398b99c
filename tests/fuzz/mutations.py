"""Ways to damage bytes: some know nothing of what they damage, some know exactly where it hurts."""

import re
from collections.abc import Callable, Sequence
from random import Random

Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]
"""Returns other bytes, given chance, and further payloads of the same kind to take pieces from."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null')
_ODD_TOKENS = (
    b"null", b"true", b"0", b"-0", b"-1", b"1.0", b"1e0", b"1e400", b"-1e999", b"NaN", b"Infinity",
    b"1" * 5_000, b"9223372036854775808", b"-9223372036854775809", b"2147483648", b"0.1" + b"0" * 400, b'""',
    b'"\\ud800"', b'"\\u0000"', b'"' + b"x" * 2_000 + b'"', b"[]", b"{}", b'{"$aes":"AAAA"}', b'{"$aes":1}',
    b"[" * 40 + b"]" * 40, b"[" * 5_000 + b"]" * 5_000, b'{"a":' * 200 + b"1" + b"}" * 200,
    b"01", b"+1", b".5", b"'x'", b"\xff", b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b"\xef\xbb\xbf1",
)  # fmt: skip
_KEYS = (b"v", b"id", b"name", b"pushed_at", b"args", b"max_attempts", b"metadata", b"$aes", b"text", b"zzz")
_VERSIONS = (
    b"0",
    b"2",
    b"999",
    b"-1",
    b'"1"',
    b"1.0",
    b"null",
    b"1e0",
    b"[1]",
    b"true",
    b"18446744073709551617",
)
_HEADS = (
    b"aq1.", b"aq2.", b"AQ1.", b"aq1", b"aq1.new.", b"aq1.old.", b"aq1.twin.", b"aq1.gone.", b"aq1..",
    b"aq1.new..", b"aq1.new." + b"A" * 43 + b".", b"aq1.\xff.", b"\x00", b" ", b"\n",
)  # fmt: skip


def flip_bits(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Turn over a few bits."""
    damaged = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        if damaged:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def cut(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Lose the end, the beginning or something in between."""
    start, end = _slice(raw, chance)
    return chance.choice((raw[:start], raw[end:], raw[:start] + raw[end:]))


def stutter(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Repeat a piece."""
    start, end = _slice(raw, chance)
    return raw[:end] + raw[start:end] * chance.choice((1, 2, 50)) + raw[end:]


def insert(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Put in bytes from nowhere."""
    at = chance.randrange(len(raw) + 1)
    new = chance.choice(
        (chance.randbytes(4), b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b" ", b'"', b"}", b"\\u0000")
    )
    return raw[:at] + new + raw[at:]


def splice(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Join the beginning of one and the end of another."""
    other = chance.choice(others)
    return raw[: chance.randrange(len(raw) + 1)] + other[chance.randrange(len(other) + 1) :]


def become_another(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Be another payload altogether: a good one in the wrong place."""
    return chance.choice(others)


def swap_seals(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Put another payload's seal in front of this envelope, or leave it without any."""
    own, other = raw.find(b"{"), chance.choice(others)
    seal = other[: max(0, other.find(b"{"))]
    return (seal if chance.random() < 0.8 else b"") + raw[max(0, own) :]


def confuse_keys(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Name another key, one that isn't there, or the same secret under another id."""
    new = chance.choice(
        (b"old", b"new", b"twin", b"gone", b"", b"n" * 33, b"ne w", b"NEW", b"\xc3\xa9", b"new.new")
    )
    return re.sub(rb"\Aaq1\.[^.]*\.", lambda _: b"aq1." + new + b".", raw)


def change_head(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Put something in front, or in the place of what is there."""
    head = chance.choice(_HEADS)
    return head + (raw if chance.random() < 0.5 else raw[raw.find(b"{") :])


def change_version(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Say that the envelope is of another version."""
    return raw.replace(b'"v":1', b'"v":' + chance.choice(_VERSIONS), 1)


def change_token(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Replace one JSON value or key by an odd one."""
    tokens = list(_TOKEN.finditer(raw))
    if not tokens:
        return raw
    token = chance.choice(tokens)
    donor = [each[0] for each in _TOKEN.finditer(chance.choice(others))]
    new = chance.choice(_ODD_TOKENS) if chance.random() < 0.6 or not donor else chance.choice(donor)
    return raw[: token.start()] + new + raw[token.end() :]


def repeat_key(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Say one key twice, in the envelope or in the arguments, first or last."""
    key, value = chance.choice(_KEYS), chance.choice((*_ODD_TOKENS, b'"' + b"0" * 32 + b'"', b'"fuzz.plain"'))
    braces = [match.start() for match in re.finditer(rb"[{}]", raw)]
    if not braces:
        return raw
    at = chance.choice(braces)
    if raw[at : at + 1] == b"{":
        return raw[: at + 1] + b'"' + key + b'":' + value + b"," + raw[at + 1 :]
    return raw[:at] + b',"' + key + b'":' + value + raw[at:]


def drop_field(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Leave out one member of an object."""
    members = list(re.finditer(rb'"[^"]*":(?:"(?:[^"\\]|\\.)*"|[^,{}\[\]]*),?', raw))
    if not members:
        return raw
    member = chance.choice(members)
    return raw[: member.start()] + raw[member.end() :]


def reformat(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Say the same in other words: white space, escapes, another order; no seal survives it."""
    at = chance.choice([match.end() for match in re.finditer(rb"[{,:\[]", raw)] or [0])
    spaced = raw[:at] + chance.choice((b" ", b"\n", b"\t")) + raw[at:]
    return chance.choice((spaced, raw.replace(b"e", b"\\u0065", 1), raw + b" ", b" " + raw))


def nothing(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Change nothing: what was pushed must run."""
    return raw


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, flip_bits, cut, stutter, insert, splice, become_another, swap_seals, confuse_keys, change_head,
    change_version, change_token, change_token, change_token, repeat_key, repeat_key, drop_field, reformat,
    nothing,
)  # fmt: skip


def damaged(raw: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """Return the payload after one to three mutations."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        raw = chance.choice(MUTATIONS)(raw, chance, others)
    return raw


def _slice(raw: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(raw) + 1)
    return start, min(len(raw), start + chance.choice((1, 2, 8, 64)))
