"""Looking through a queue's jobs in the order of their ids, without taking any.

A hash has no order, so the first page scans the ids once, in small steps that hold nobody up, and the pages
that follow are cut from what it found. What is stored later is not shown; what is gone by then neither.
"""

from bisect import bisect_right
from collections.abc import Sequence

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import KeySpace
from aqueue.port import Message

_LANE = 1
_STEP = 500


class Browsing:
    """The listings under way, one for each queue."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys
        self._listings: dict[str, list[str]] = {}

    async def page(self, queue: str, *, after: str | None, limit: int) -> list[Message]:
        """Return up to `limit` jobs after an id; from the beginning, the listing is made anew."""
        if after is None or queue not in self._listings:
            self._listings[queue] = await self._ids(queue)
        ids = self._listings[queue]
        at = bisect_right(ids, after) if after is not None else 0
        page: list[Message] = []
        while at < len(ids) and len(page) < limit:
            step = ids[at : at + min(_STEP, limit - len(page))]
            page += await self._shown(queue, step)
            at += len(step)
        if not page:
            self._listings.pop(queue, None)
        return page

    async def _ids(self, queue: str) -> list[str]:
        keys = self._keys.of(queue)
        ids: set[str] = set()
        cursor = b"0"
        while True:
            reply = await self._client.command(
                "HSCAN", keys.jobs, cursor, "COUNT", _STEP, slot=keys.slot, lane=_LANE
            )
            assert isinstance(reply, list)
            cursor, found = reply
            ids.update(id.decode() for id in found[::2])
            if cursor == b"0":
                return sorted(ids)

    async def _shown(self, queue: str, ids: Sequence[str]) -> list[Message]:
        keys = self._keys.of(queue)
        reply = await self._client.run(_BROWSE, (keys.jobs, keys.delayed), ids, slot=keys.slot, lane=_LANE)
        assert isinstance(reply, list)
        now, payloads, dues = reply
        return [
            Message(id, queue, payload, 0.0 if due is None else max(0.0, (float(due) - now) / 1e6))
            for id, payload, due in zip(ids, payloads, dues, strict=True)
            if payload is not None
        ]


_BROWSE = scripts.load("browse")
