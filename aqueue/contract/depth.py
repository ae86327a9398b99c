"""How deep JSON text is nested, told before it is parsed (ARG-4)."""

import re

STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_deeper_than(raw: bytes, levels: int) -> bool:
    """Say whether JSON text opens more than `levels` arrays and objects inside each other; parse nothing.

    Linear in the text for a fixed number of levels: strings are cut out, then the innermost pairs, once a
    level. Text whose brackets don't pair up, which no parser would take either, counts as deeper.
    """
    if raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    brackets = STRINGS.sub(b"", raw).translate(None, NOT_BRACKETS)
    brackets = brackets.replace(b"{", b"[").replace(b"}", b"]")
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
