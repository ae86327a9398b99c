"""What is written down before it is done, so that a process that dies in the middle leaves no half.

An intent is a list of steps. Once its file has its name, all of them will be taken: by its writer or, if
that dies, by the next one who locks any of its queues. So each step may be taken again, at any later time,
and then changes nothing: a draft has only one way to go, and what is dropped never comes by that name again.
"""

from typing import TypeAlias

import msgspec


class Place(msgspec.Struct, frozen=True, tag="place"):
    """Put a draft where it belongs, `home`, and give it its second name, `ids`."""

    draft: str
    home: str
    ids: str


class Move(msgspec.Struct, frozen=True, tag="move"):
    """Let a draft take the place of whatever has its name."""

    draft: str
    home: str


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Take away a name that no other file will ever have."""

    path: str


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Take away a second name that is the last one left."""

    path: str


class Erase(msgspec.Struct, frozen=True, tag="erase"):
    """Remove a note that still has this token."""

    path: str
    token: str


Step: TypeAlias = Place | Move | Drop | Forget | Erase


class Intent(msgspec.Struct, frozen=True):
    """Steps that are taken together; all paths are relative to the store's directory."""

    queues: list[str]
    steps: list[Step]


_decoder = msgspec.json.Decoder(Intent)


def encoded(intent: Intent) -> bytes:
    """Return an intent's file."""
    return msgspec.json.encode(intent)


def decoded(data: bytes) -> Intent | None:
    """Read an intent's file; None for a stranger's."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None
