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


class Found(Quiet, frozen=True, kw_only=True):
    """Where one stored job stands. Times are seconds by the store's clock.

    `due_in` is set for a delayed job: 0 or less says that it is due and no pop has come for it since.
    `held_for` is set for a leased one, likewise: 0 or less says that its lease ran out and nobody has come.
    Else it is ready, has been for `waited`, and `ahead` jobs of its queue come before it; None is more than
    the store wants to count. `attempts` and `lost` are its counters so far.
    """

    due_in: float | None = None
    held_for: float | None = None
    waited: float = 0.0
    ahead: int | None = 0
    attempts: int = 0
    lost: int = 0


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


@runtime_checkable
class Findable(Protocol):
    """A store that can say where a job stands without reserving it, or reading through its neighbours."""

    async def find(self, queue: str, id: str) -> Found | None:
        """Return where the job stands on this queue; None where the queue doesn't hold it."""
