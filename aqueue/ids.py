"""Job ids: 128 random bits each (PUSH-9), asked of the system by the block, since asking is what costs."""

import os

_BLOCK = 64
_BYTES = 16

_unused: list[str] = []


def new_id() -> str:
    """Return 32 random hexadecimal characters that nobody got before."""
    try:
        return _unused.pop()
    except IndexError:
        first, *others = _block()
        _unused.extend(others)
        return first


def _block() -> list[str]:
    digits = os.urandom(_BYTES * _BLOCK).hex()
    return [digits[at : at + 2 * _BYTES] for at in range(0, len(digits), 2 * _BYTES)]


if hasattr(os, "register_at_fork"):  # a forked process must not hand out what its parent will
    os.register_at_fork(after_in_child=_unused.clear)
