"""Looking at what a store holds, without reserving it (SIGN-3)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from aqueue.port.records import Quiet


class Standing(StrEnum):
    """Where a stored job stands, as the next pop would find it: one whose delay or lease is over is ready."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"


class Held(Quiet, frozen=True):
    """A job that a queue holds, shown to whoever only looks; a delayed one is due in `delay` seconds."""

    id: str
    queue: str
    payload: bytes
    standing: Standing
    delay: float = 0.0


@runtime_checkable
class Browsable(Protocol):
    """A store that can show what it holds without reserving it, or keeping anybody waiting for long."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        """Return up to `limit` of the queue's jobs, in the order of their ids, from after the given id.

        Ready, delayed and leased ones alike, each once however it moves between these meanwhile; one that
        is pushed or removed while pages are read may be missed. `head` asks for no more than so many bytes
        of each payload. Only an empty page is the last.
        """

    async def queues(self) -> Sequence[str]:
        """Return the names of the queues that hold jobs or failed jobs, in any order, each once."""
