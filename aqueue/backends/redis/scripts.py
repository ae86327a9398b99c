"""The scripts: one Lua file for each transition, read once and run by its digest."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = "-- include "


@dataclass(frozen=True, slots=True)
class Script:
    """One script, and the digest under which a server that has seen it knows it."""

    name: str
    source: bytes
    digest: bytes


@cache
def load(name: str) -> Script:
    """Return the script in `lua/<name>.lua`."""
    source = _read(f"{name}.lua").encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


def _read(file: str) -> str:
    text = (files(__package__) / "lua" / file).read_text(encoding="utf-8")
    if not text.startswith(_INCLUDE):
        return text
    included, _, rest = text.partition("\n")
    return _read(included.removeprefix(_INCLUDE)) + rest
