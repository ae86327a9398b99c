"""Handing out: the sweep, the long polls of those who wait, and the giving back of what nobody took.

Receiving is never cut short, since SQS may have handed a message to a request that is not there any more, and
then hides it for a lease. So each receipt of messages is a task of its own; pops and waits only watch it.
"""

import asyncio
import contextlib
import math
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from aqueue.backends.sqs.bodies import ASKED, LABEL, reserved_of
from aqueue.backends.sqs.clients import LONGEST_POLL
from aqueue.backends.sqs.inbox import Inbox
from aqueue.backends.sqs.places import Places
from aqueue.backends.sqs.sending import MOST_ENTRIES
from aqueue.backends.sqs.settling import Settling
from aqueue.port import Releasing, Reserved

_KEEP = 1.0
"""Seconds that a hand-out waits for a pop before it goes back."""

_FRESH = 0.05
"""Seconds for which the end of a long poll that found no more tells what a sweep would find."""

_CLOSE_WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class _Poll:
    """A long poll under way, and when it ends by the loop's clock if nothing comes."""

    task: "asyncio.Task[int]"
    ends: float


class HandOuts:
    """Takes jobs from queues; `lease` is whole seconds."""

    def __init__(self, places: Places, settling: Settling, *, lease: int) -> None:
        self._places = places
        self._settling = settling
        self._lease = lease
        self._inbox = Inbox()
        self._polls: dict[str, _Poll] = {}
        self._known_empty: dict[str, float] = {}
        self._plentiful: set[str] = set()
        self._wanted = 1
        self._tasks: set[asyncio.Task[Any]] = set()

    async def pop(self, queues: Sequence[str], limit: int) -> list[Reserved]:
        """Make one sweep in list order: what has arrived already, then what SQS has.

        A queue that a long poll is watching at this moment is not asked beside it.
        """
        self._wanted = limit
        taken: list[Reserved] = []
        try:
            for queue in queues:
                taken += self._inbox.take(queue, limit - len(taken))
                if len(taken) < limit and not self._is_watched(queue):
                    await self._fetch(queue, limit - len(taken))
                    taken += self._inbox.take(queue, limit - len(taken))
                if len(taken) == limit:
                    break
        except asyncio.CancelledError:
            self._keep(taken)
            raise
        except Exception:
            if not taken:
                raise
            # What the queues before gave must not be stranded; the next sweep will tell of the trouble.
        return taken

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Watch every queue by long polls, until one of them ends or the time is over (POP-3).

        The first queue is polled for as long as is asked, at most five seconds; the others for less, so that
        they are few calls together, and soon over when a job has come on another queue.
        """
        if self._inbox.holds(queues):
            return
        deadline = asyncio.get_running_loop().time() + seconds
        longest = min(max(1, math.ceil(seconds)), LONGEST_POLL)
        others = min(longest, max(1, len(queues) - 1))
        polls = [self._poll(queue, others if place else longest) for place, queue in enumerate(queues)]
        ends_soon = min(poll.ends for poll in polls) <= deadline + 1
        await asyncio.wait(
            {poll.task for poll in polls},
            timeout=None if ends_soon else seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        ending = {poll.task for poll in polls if poll.ends <= deadline + 1}
        if ending and deadline <= asyncio.get_running_loop().time() and not self._inbox.holds(queues):
            # Whoever waits won't come back: leave no poll behind that could still find something.
            await asyncio.wait(ending)
        for poll in polls:
            if poll.task.done() and not poll.task.cancelled():
                poll.task.result()  # a poll's trouble is the wait's

    def arrived(self, queue: str) -> None:
        """Note that a queue has something new: what a poll said of it is over."""
        self._known_empty.pop(queue, None)

    async def aclose(self) -> None:
        """Let what is being received arrive, and give back what nobody took."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LONGEST_POLL + _CLOSE_WITHIN
        while self._tasks and (left := deadline - loop.time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left)
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._give_back(self._inbox.take_older_than(0.0))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_watched(self, queue: str) -> bool:
        poll = self._polls.get(queue)
        if poll is not None and not poll.task.done():
            return True
        return self._known_empty.get(queue, 0.0) > monotonic()

    async def _fetch(self, queue: str, room: int) -> None:
        """Receive as much as there is room for, ten to a call, side by side where there was plenty before."""
        first, *more = [min(MOST_ENTRIES, room - start) for start in range(0, room, MOST_ENTRIES)]
        await self._places.of(queue)
        if queue in self._plentiful:
            more.insert(0, first)
        elif await self._receive_all(queue, [first]) < first or not more:
            return
        if await self._receive_all(queue, more) == sum(more):
            self._plentiful.add(queue)
        else:
            self._plentiful.discard(queue)

    async def _receive_all(self, queue: str, counts: Sequence[int]) -> int:
        """Make calls side by side; return how many messages came, or raise if all that came is trouble."""
        calls = [self._spawn(self._receive(queue, count, 0)) for count in counts]
        await asyncio.wait(calls)
        errors = [error for call in calls if (error := call.exception()) is not None]
        if len(errors) == len(calls):
            raise errors[0]
        return sum(call.result() for call in calls if call.exception() is None)

    def _poll(self, queue: str, seconds: int) -> _Poll:
        """Return the queue's long poll, a new one where none is under way."""
        poll = self._polls.get(queue)
        if poll is None or poll.task.done():
            ends = asyncio.get_running_loop().time() + seconds
            count = min(MOST_ENTRIES, self._wanted)
            poll = self._polls[queue] = _Poll(self._spawn(self._watch(queue, count, seconds)), ends)
        return poll

    async def _watch(self, queue: str, count: int, seconds: int) -> int:
        found = await self._receive(queue, count, seconds)
        if found < count:
            self._known_empty[queue] = monotonic() + _FRESH
        return found

    async def _receive(self, queue: str, count: int, wait: int) -> int:
        sent = monotonic()
        asked = {
            "MaxNumberOfMessages": count,
            "VisibilityTimeout": self._lease,
            "WaitTimeSeconds": wait,
            "MessageAttributeNames": [LABEL],
            "MessageSystemAttributeNames": list(ASKED),
        }
        if wait:
            reply = await self._places.poll(queue, **asked)
        else:
            reply = await self._places.call(queue, "receive_message", **asked)
        # A poll's messages were handed out when it ended, and at the latest when it had to end: the answer
        # may have lain here for long, if the loop was blocked or the process stopped.
        since = min(monotonic(), sent + wait)
        messages = reply.get("Messages", ())
        self._keep([reserved_of(message, queue, since=since, lease=self._lease) for message in messages])
        return len(messages)

    def _keep(self, items: Sequence[Reserved]) -> None:
        if items:
            self._inbox.put(items)
            asyncio.get_running_loop().call_later(_KEEP * 1.01, self._give_back_old)

    def _give_back_old(self) -> None:
        if old := self._inbox.take_older_than(_KEEP):
            self._spawn(self._give_back(old))

    async def _give_back(self, items: Sequence[Reserved]) -> int:
        """Show messages again; it counts as a receipt all the same (ATT-1)."""
        await self._settling.release([Releasing(item, 0.0, counted=False) for item in items])
        return len(items)

    def _spawn(self, work: Coroutine[Any, Any, int]) -> "asyncio.Task[int]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[int]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a wait that has ended doesn't ask for it
