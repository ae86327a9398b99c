"""How a queue that was found empty learns that it may not be any more: hints by pub/sub (POP-3).

One connection of its own, watched over by one task, subscribes to the queues that somebody waits for. A hint
that is lost costs the pause it would have ended; the next sweep is the truth.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.link import Link, packed
from aqueue.backends.redis.replies import Reply

Dial = Callable[[Callable[[Reply], None]], Awaitable[Link]]

_PING = packed(("PING",))
_CHECK_EVERY = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_REMEMBERED = 1_000


class Emptiness(NamedTuple):
    """What an empty sweep learned: the arrivals before it, and the loop's time when it may be over."""

    counts: tuple[int, ...]
    until: float


class Arrivals:
    """Who waits for which queues, and what is still true of those found empty."""

    def __init__(self, keys: KeySpace, dial: Dial) -> None:
        self._keys = keys
        self._dial = dial
        self._counts: dict[str, int] = {}
        self._empty: dict[tuple[str, ...], Emptiness] = {}
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}
        self._queues: dict[bytes, str] = {}
        self._link: Link | None = None
        self._watching: asyncio.Task[None] | None = None

    def counts(self, queues: Sequence[str]) -> tuple[int, ...]:
        """Return how many arrivals each queue has seen; take it before a sweep."""
        return tuple([self._counts.get(queue, 0) for queue in queues])

    def found_empty(self, queues: Sequence[str], counts: tuple[int, ...], until: float) -> None:
        """Remember what a sweep that found nothing learned."""
        if len(self._empty) >= _REMEMBERED:
            self._empty.clear()
        self._empty[tuple(queues)] = Emptiness(counts, until)

    def emptiness(self, queues: Sequence[str]) -> Emptiness | None:
        """Return what the last empty sweep of these queues learned."""
        return self._empty.get(tuple(queues))

    async def wait(self, queues: Sequence[str], known: Emptiness, seconds: float) -> None:
        """Return at an arrival the sweep can't have seen, when a job may become due, or after `seconds`.

        A queue's first wait subscribes to it and ends as soon as that is done, since what arrived before
        was not heard.
        """
        self._subscribe(queues)
        if self.counts(queues) != known.counts:
            return
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        self._waiting[arrival] = frozenset(queues)
        timer = loop.call_later(max(0.0, min(seconds, known.until - loop.time())), _wake, arrival)
        try:
            await arrival
        finally:
            timer.cancel()
            del self._waiting[arrival]

    async def aclose(self) -> None:
        """Let nobody wait any longer, and hang up."""
        for arrival in self._waiting:
            _wake(arrival)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        self._link = self._watching = None
        self._queues.clear()
        self._empty.clear()

    def _subscribe(self, queues: Sequence[str]) -> None:
        new = {self._keys.of(queue).channel: queue for queue in queues}
        new = {channel: queue for channel, queue in new.items() if channel not in self._queues}
        if new:
            self._queues.update(new)
            if self._link is not None:
                self._link.post(packed((b"SUBSCRIBE", *new)))
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(
                self._watch(), name="aqueue redis arrivals"
            )

    async def _watch(self) -> None:
        """Hold a subscribed connection; where it is lost make another, pausing longer while that fails."""
        pause = _FIRST_PAUSE
        while True:
            with contextlib.suppress(Exception):  # a hint's connection failing is no news: a call will tell
                self._link = await self._dial(self._heard)
                pause = _FIRST_PAUSE
                self._link.post(packed((b"SUBSCRIBE", *self._queues)))
                await self._hold(self._link)
            self._link = None
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _hold(self, link: Link) -> None:
        """Return when the connection is gone, or gives no sign of life."""
        try:
            while not link.closed.done():
                link.post(_PING)
                heard = link.last_heard
                await asyncio.wait({link.closed}, timeout=_CHECK_EVERY)
                if link.last_heard == heard:
                    return
        finally:
            link.abort()

    def _heard(self, reply: Reply) -> None:
        if not isinstance(reply, list) or reply[0] not in {b"message", b"subscribe"}:
            return
        queue = self._queues.get(reply[1])
        if queue is not None:
            self._announce(queue)

    def _announce(self, queue: str) -> None:
        self._counts[queue] = self._counts.get(queue, 0) + 1
        for arrival, queues in self._waiting.items():
            if queue in queues:
                _wake(arrival)


def _wake(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)
