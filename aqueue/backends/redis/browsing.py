"""Looking through a queue's jobs in the order of their ids, without taking any, and naming the queues.

A hash has no order, so the first page scans the ids once, in small steps that hold nobody up, and the pages
that follow are cut from what it found, which jobs were leased included. What is stored later is not shown;
what is gone by then neither.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.link import Argument
from aqueue.port import Held, Standing

_LANE = 1
_STEP = 500


class _Listing(NamedTuple):
    """A queue's ids in order, and until when those that workers hold are leased, in microseconds."""

    ids: list[str]
    leased: Mapping[str, float]


class Browsing:
    """The listings under way, one for each queue."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys
        self._listings: dict[str, _Listing] = {}

    async def page(self, queue: str, *, after: str | None, limit: int, head: int | None = None) -> list[Held]:
        """Return up to `limit` jobs after an id; from the beginning, the listing is made anew."""
        if after is None or queue not in self._listings:
            self._listings[queue] = _Listing(await self._ids(queue), await self._leased(queue))
        ids, leased = self._listings[queue]
        at = bisect_right(ids, after) if after is not None else 0
        page: list[Held] = []
        while at < len(ids) and len(page) < limit:
            step = ids[at : at + min(_STEP, limit - len(page))]
            page += await self._shown(queue, step, leased, head)
            at += len(step)
        if not page:
            self._listings.pop(queue, None)
        return page

    async def queues(self) -> list[str]:
        """Return the queues that hold jobs, or failed ones; slots on the move may hide some."""
        stem, end = self._keys.around_a_name
        found: set[str] = set()
        for kind in (b"jobs", b"failed"):
            matching = re.compile(re.escape(stem) + rb"([A-Za-z0-9_-]+)" + re.escape(end + kind))
            for key in await self._client.scan(_literal(stem) + b"*" + _literal(end) + kind, lane=_LANE):
                if (match := matching.fullmatch(key)) is not None:
                    found.add(match[1].decode())
        return sorted(found)

    async def _ids(self, queue: str) -> list[str]:
        keys = self._keys.of(queue)
        ids: set[str] = set()
        cursor = b"0"
        while True:
            reply = await self._client.run(_IDS, (keys.jobs,), (cursor, _STEP), slot=keys.slot, lane=_LANE)
            assert isinstance(reply, list)
            cursor, *found = reply
            ids.update(id.decode() for id in found)
            if cursor == b"0":
                return sorted(ids)

    async def _leased(self, queue: str) -> dict[str, float]:
        keys = self._keys.of(queue)
        leased: dict[str, float] = {}
        cursor = b"0"
        while True:
            reply = await self._client.command(
                "ZSCAN", keys.leased, cursor, "COUNT", _STEP, slot=keys.slot, lane=_LANE
            )
            assert isinstance(reply, list)
            cursor, found = reply
            for receipt, until in zip(found[::2], found[1::2], strict=True):
                leased[receipt.rsplit(b":", 2)[0].decode()] = float(until)
            if cursor == b"0":
                return leased

    async def _shown(
        self, queue: str, ids: Sequence[str], leased: Mapping[str, float], head: int | None
    ) -> list[Held]:
        keys = self._keys.of(queue)
        arguments: tuple[Argument, ...] = (-1 if head is None else head, *ids)
        reply = await self._client.run(
            _BROWSE, (keys.jobs, keys.delayed), arguments, slot=keys.slot, lane=_LANE
        )
        assert isinstance(reply, list)
        now, payloads, dues = reply
        return [
            _held(id, queue, payload, 0.0 if due is None else float(due) - now, leased.get(id, 0.0) - now)
            for id, payload, due in zip(ids, payloads, dues, strict=True)
            if payload is not None
        ]


def _held(id: str, queue: str, payload: bytes, due_in: float, leased_for: float) -> Held:
    if due_in > 0:
        return Held(id, queue, payload, Standing.DELAYED, due_in / 1e6)
    return Held(id, queue, payload, Standing.LEASED if leased_for > 0 else Standing.READY)


def _literal(text: bytes) -> bytes:
    """Return a pattern of the server's that matches this text alone."""
    return re.sub(rb"([*?\[\]\\^])", rb"\\\1", text)


_BROWSE = scripts.load("browse")
_IDS = scripts.load("ids")
