"""Handing out: the sweep, the wait for the next one, and the giving back of what a lost reply carried.

A receipt is `id:since:token`: the job, the microsecond since when it was ready, and 20 characters that this
process made for the one pop. So what a pop took can be given back although its reply never came. The scripts
cut it at its fixed lengths.
"""

import asyncio
import math
import secrets
from collections.abc import Sequence
from itertools import count
from typing import cast

from redis import exceptions as driver

from aqueue.backends.redis import scripts
from aqueue.backends.redis.arrivals import Arrivals, Emptiness
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.replies import Reply, ScriptFailed
from aqueue.backends.redis.transitions import microseconds
from aqueue.port import Reserved

_LANE = 1
_TOKEN = 20
_UNREADABLE = (-1, 0)


class HandOuts:
    """Takes jobs from queues, at most `most` at a time. `lease` is in seconds."""

    def __init__(
        self, client: Client, keys: KeySpace, arrivals: Arrivals, *, lease: float, most: int
    ) -> None:
        self._client = client
        self._keys = keys
        self._arrivals = arrivals
        self._lease = lease
        self._most = most
        process = secrets.token_hex(6)
        self._tokens = (f"{process}{number & 0xFFFFFFFF:08x}" for number in count(1))
        self._lost: dict[tuple[str, str], float] = {}

    async def pop(self, queues: Sequence[str], limit: int) -> list[Reserved]:
        """Make one sweep in list order: one script where one node has all queues, else one after another."""
        if self._lost:
            await self._give_back_lost()
        limit = min(limit, self._most)
        counts = self._arrivals.counts(queues)
        if self._client.is_partitioned:
            taken, until = await self._sweep_each(queues, limit)
        else:
            taken, until = await self._sweep(queues, limit)
        if not taken:
            self._arrivals.found_empty(queues, counts, until)
        return taken

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Return at an arrival, at the next due time or expiry, or after `seconds`."""
        known = self._arrivals.emptiness(queues)
        if known is None:
            # Whoever waits may be cancelled at any moment, and a cancelled call drops its connection.
            looking = asyncio.create_task(self._look(queues))
            looking.add_done_callback(_read)
            known = await asyncio.shield(looking)
        await self._arrivals.wait(queues, known, seconds)

    async def _sweep_each(self, queues: Sequence[str], limit: int) -> tuple[list[Reserved], float]:
        """Sweep the first queue, ask all others at once if they have anything, and sweep those that do."""
        taken, until = await self._sweep(queues[:1], limit)
        others = queues[1:] if len(taken) < limit else ()
        try:
            moments = await asyncio.gather(*(self._due((queue,)) for queue in others))
            now = asyncio.get_running_loop().time()
            for queue, moment in zip(others, moments, strict=True):
                if moment > now:
                    until = min(until, moment)
                elif len(taken) < limit:
                    found, due = await self._sweep((queue,), limit - len(taken))
                    taken += found
                    until = min(until, due)
        except asyncio.CancelledError:
            for item in taken:
                self._note_lost((item.queue,), str(item.receipt)[-_TOKEN:])
            raise
        except Exception:
            if not taken:
                raise
            # What the queues before gave must not be stranded; the next sweep will tell of the trouble.
        return taken, until

    async def _sweep(self, queues: Sequence[str], limit: int) -> tuple[list[Reserved], float]:
        keys = [self._keys.of(queue) for queue in queues]
        names = [name for one in keys for name in one[:5]]
        token = next(self._tokens)
        arguments = (limit, microseconds(self._lease), token)
        try:
            reply = await self._client.run(_POP, names, arguments, slot=keys[0].slot, lane=_LANE)
        except (driver.ConnectionError, ScriptFailed, asyncio.CancelledError):
            self._note_lost(queues, token)
            raise
        return _reserved(reply, queues, token), _moment(reply)

    async def _look(self, queues: Sequence[str]) -> Emptiness:
        """Learn what an empty sweep would have told, where there was none."""
        counts = self._arrivals.counts(queues)
        groups = [(queue,) for queue in queues] if self._client.is_partitioned else [queues]
        return Emptiness(counts, min(await asyncio.gather(*(self._due(group) for group in groups))))

    async def _due(self, queues: Sequence[str]) -> float:
        """Return the loop's time when a sweep of these queues finds something; past where it would now."""
        keys = [self._keys.of(queue) for queue in queues]
        names = [name for one in keys for name in one[:3]]
        return _moment(await self._client.run(_LOOK, names, (), slot=keys[0].slot, lane=_LANE))

    def _note_lost(self, queues: Sequence[str], token: str) -> None:
        """The script may have run; after a lease there is nothing left to give back."""
        until = asyncio.get_running_loop().time() + self._lease
        self._lost |= {(queue, token): until for queue in queues}

    async def _give_back_lost(self) -> None:
        """Give back what pops took whose replies never came (POP-6)."""
        now = asyncio.get_running_loop().time()
        lost, self._lost = self._lost, {}
        while lost:
            (queue, token), until = lost.popitem()
            keys = self._keys.of(queue)
            if until <= now:
                continue
            try:
                names = (keys.pending, keys.leased)
                await self._client.run(_GIVE_BACK, names, (token,), slot=keys.slot, lane=_LANE)
            except asyncio.CancelledError:
                self._lost |= {**lost, (queue, token): until}
                raise
            except Exception:  # noqa: BLE001 - its server may be away; the pop itself will tell, if it is the same
                self._lost[queue, token] = until


def _read(looking: "asyncio.Task[Emptiness]") -> None:
    if not looking.cancelled():
        looking.exception()


def _reserved(reply: Reply, queues: Sequence[str], token: str) -> list[Reserved]:
    """Make hand-outs of what the script answered."""
    assert isinstance(reply, list)
    now = reply[0]
    taken: list[Reserved] = []
    for number, entries, payloads, counts in reply[2:]:
        queue = queues[number - 1]
        for position, (raw, payload) in enumerate(zip(entries, payloads, strict=True)):
            entry = raw.decode()
            id, _, since = entry.rpartition(":")
            attempts, lost = _counted(counts[position]) if counts else (0, 0)
            waited = (now - int(since)) / 1e6
            receipt = f"{entry}:{token}"
            taken.append(
                Reserved(id, queue, payload, receipt, attempts + 1, lost, waited if waited > 0 else 0.0)
            )
    return taken


def _counted(stored: bytes | None) -> tuple[int, int]:
    if stored is None:
        return 0, 0
    attempts, _, lost = stored.partition(b":")
    if not (attempts.isdigit() and lost.isdigit()):
        return _UNREADABLE
    return int(attempts), int(lost)


def _moment(reply: Reply) -> float:
    """Return the loop's time when something falls due by the server's clock; infinity where nothing will."""
    now, due, *_ = cast("list[int]", reply)
    if not due:
        return math.inf
    return asyncio.get_running_loop().time() + max(0, due - now) / 1e6


_GIVE_BACK = scripts.load("give_back")
_LOOK = scripts.load("look")
_POP = scripts.load("pop")
