"""Values as they are written into statements.

The driver knows no other way than to write them in, and has been fooled before (CVE-2025-65896), so it is
handed none: numbers are digits, and everything else is hexadecimal, which needs no escaping whatever the
session's sql_mode and character set are.
"""

from collections.abc import Iterable
from math import ceil

NOW = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
"""Microseconds since 1970 by the server's clock, in any time zone of a session."""

_LONGEST = 4.0e12
"""Seconds; a time beyond these 126,000 years doesn't fit into its column."""


def binary(data: bytes) -> str:
    """Return bytes, which compare byte by byte and without padding."""
    return f"x'{data.hex()}'"


def name(text: str) -> str:
    """Return a name of something, kept as its UTF-8."""
    return binary(text.encode("utf-8", "replace"))


def text(value: str) -> str:
    """Return text for people."""
    return f"_utf8mb4 x'{value.encode('utf-8', 'replace').hex()}'"


def microseconds(seconds: float) -> int:
    """Return a duration; never shorter than asked for."""
    return ceil(min(seconds, _LONGEST) * 1e6)


def real(value: float | None) -> str:
    """Return a number that comes back as the same one."""
    return "NULL" if value is None else f"{value!r}e0" if "e" not in repr(value) else repr(value)


def listed(values: Iterable[object]) -> str:
    """Return values side by side, for IN and VALUES."""
    return ",".join(map(str, values))
