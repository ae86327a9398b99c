"""How deep JSON text is nested, told before it is parsed (ARG-4)."""

BRACKETS = bytes.maketrans(b"{}", b"[]")
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_deeper_than(raw: bytes, levels: int) -> bool:
    """Say whether JSON text opens more than `levels` arrays and objects inside each other; parse nothing.

    What stands in strings is cut out, then the innermost pairs of brackets, once a level: a few passes over
    the text at C speed. Text whose brackets don't pair up, which no parser would take, counts as deeper.
    """
    if raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    brackets = _outside_strings(raw).translate(BRACKETS, NOT_BRACKETS)
    too_deep = b"[" * (levels + 1)
    for _ in range(levels):
        if not brackets or too_deep in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _outside_strings(raw: bytes) -> bytes:
    """Drop the strings: with escapes gone, every other piece between quotes is one."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.split(b'"')[::2])
