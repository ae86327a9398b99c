"""Where one job stands: what the server knows of it, and its place in the line, read in small steps."""

import asyncio

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import KeySpace, QueueKeys
from aqueue.port import Found

_LANE = 1
_STEP = 1_000
_MOST = 100_000
"""So many waiting jobs are looked at for the job's place; further back it is not counted."""
_TRIES = 3


async def find(client: Client, keys: KeySpace, queue: str, id: str) -> Found | None:
    """Return where the job stands; it may have moved since by a place or two."""
    place = keys.of(queue)
    attempts = lost = 0
    for _ in range(_TRIES):
        names = (place.jobs, place.delayed, place.leased, place.counts)
        reply = await client.run(_FIND, names, (id,), slot=place.slot, lane=_LANE)
        if not isinstance(reply, list):
            return None
        now, due, held, counts = reply
        attempts, lost = _counters(counts)
        if due is not None:
            return Found(due_in=(float(due) - now) / 1e6, attempts=attempts, lost=lost)
        if held is not None:
            return Found(held_for=(float(held) - now) / 1e6, attempts=attempts, lost=lost)
        at, since = await _in_line(client, place, id)
        if since is not None:
            return Found(waited=max(0.0, (now - since) / 1e6), ahead=at, attempts=attempts, lost=lost)
        if at is None:
            return Found(ahead=None, attempts=attempts, lost=lost)
        await asyncio.sleep(0)  # it was taken between the two looks, or came back
    return Found(ahead=None, attempts=attempts, lost=lost)


async def _in_line(client: Client, place: QueueKeys, id: str) -> tuple[int | None, int | None]:
    """Return the job's place and since when it is ready; no time where it isn't there, no place beyond."""
    mark = f"{id}:".encode()
    for first in range(0, _MOST, _STEP):
        reply = await client.command(
            "LRANGE", place.pending, first, first + _STEP - 1, slot=place.slot, lane=_LANE
        )
        assert isinstance(reply, list)
        for at, entry in enumerate(reply, first):
            if entry.startswith(mark):
                return at, int(entry.rpartition(b":")[2])
        if len(reply) < _STEP:
            return 0, None
    return None, None


def _counters(counts: bytes | None) -> tuple[int, int]:
    attempts, _, lost = (counts or b"0:0").partition(b":")
    return (int(attempts), int(lost)) if attempts.isdigit() and lost.isdigit() else (0, 0)


_FIND = scripts.load("find")
