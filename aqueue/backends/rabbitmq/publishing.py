"""Messages that the broker has confirmed: persistent, mandatory, each answered for itself (PUSH-3, PUSH-5).

Confirms come back by number and returns by message id; both are told by the one number that a message has on
its channel. The ids begin with the channel's own random word, so none is ever used twice.
"""

import asyncio
import os
from collections.abc import Sequence

from aiormq.exceptions import AMQPConnectionError
from pamqp import commands

from aqueue.backends.rabbitmq import wire
from aqueue.backends.rabbitmq.channel import Channel, Content, Hears, code_of
from aqueue.backends.rabbitmq.dialling import Line
from aqueue.backends.rabbitmq.link import Link
from aqueue.backends.rabbitmq.troubles import dropping
from aqueue.backends.rabbitmq.wire import Letter
from aqueue.errors import PublishNotConfirmed
from aqueue.port import NotDispatched, Stored


class Publisher:
    """Publishes on a confirm-mode channel of its own, made anew when it was lost."""

    def __init__(self, line: Line, *, confirm_timeout: float) -> None:
        self._line = line
        self._confirm_timeout = confirm_timeout
        self._outgoing: _Outgoing | None = None
        self._one_at_a_time = asyncio.Lock()

    async def publish(self, letters: Sequence[Letter]) -> list[Stored]:
        """Publish the messages in one write and return what became of each.

        Raises `NotDispatched` where nothing was sent.
        """
        link = await self._line.link()
        with dropping(link):
            outgoing = await self._opened(link)
            await self._writable(link)
            flight = outgoing.send(letters, link.frame_max)
            try:
                async with asyncio.timeout(self._confirm_timeout):
                    await flight.landed
            except TimeoutError:
                outgoing.give_up(flight, f"the broker gave no answer within {self._confirm_timeout:g} s")
                if not link.is_blocked:
                    link.abort()  # whatever comes next deserves a connection that answers
        return flight.answers

    async def _writable(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self._confirm_timeout):
                await link.ready(publishing=True)
        except TimeoutError:
            why = "it is low on memory or disk" if link.is_blocked else "it does not read what it is sent"
            raise NotDispatched(f"the broker takes no messages: {why}") from None

    async def _opened(self, link: Link) -> "_Outgoing":
        async with self._one_at_a_time:
            if self._outgoing is None or not self._outgoing.is_on(link):
                self._outgoing = await _Outgoing.on(link)
            return self._outgoing


class _Outgoing:
    """One confirm-mode channel and what is under way on it.

    After a refusal a channel is not used again. What the broker knows of a quorum queue it knows by channel,
    and may not learn better: it refuses as long as the channel lives where the queue's first node is down,
    and takes for old, confirms and keeps from everybody what is sent to the successor of a queue that was
    deleted.
    """

    def __init__(self) -> None:
        self._word = os.urandom(6).hex()
        self._flights: dict[int, _Flight] = {}
        self._published = 0
        self._is_spent = False
        self._link: Link | None = None
        self._channel: Channel | None = None

    @classmethod
    async def on(cls, link: Link) -> "_Outgoing":
        """Open one on this connection."""
        outgoing = cls()
        hears = Hears(confirmed=outgoing._confirmed, returned=outgoing._returned, closed=outgoing._closed)
        outgoing._link = link
        outgoing._channel = await link.channel(hears)
        await outgoing._channel.call(commands.Confirm.Select())
        return outgoing

    def is_on(self, link: Link) -> bool:
        """Whether it can be used, and belongs to this connection."""
        is_there = self._link is link and self._channel is not None and self._channel.is_open
        return is_there and not self._is_spent

    def send(self, letters: Sequence[Letter], most: int) -> "_Flight":
        """Write the messages and return what their answers will be gathered in."""
        assert self._channel is not None
        first, number = self._published + 1, self._channel.number
        frames = [
            wire.message(number, letter, self._word, tag, most) for tag, letter in enumerate(letters, first)
        ]
        self._channel.write(b"".join(frames))
        self._published += len(letters)
        flight = _Flight(letters, first)
        self._flights.update(dict.fromkeys(range(first, first + len(letters)), flight))
        return flight

    def give_up(self, flight: "_Flight", why: str) -> None:
        """Wait for the rest of these answers no longer."""
        for tag in flight.tags:
            if self._flights.pop(tag, None) is not None:
                flight.land(tag, why)

    def _confirmed(self, tag: int, is_multiple: bool, has_it: bool) -> None:
        why = None if has_it else "the broker refused it"
        self._is_spent = self._is_spent or not has_it
        if not is_multiple:
            self._land(tag, why)
            return
        for waiting in list(self._flights):
            if waiting > tag:
                break
            self._land(waiting, why)

    def _land(self, tag: int, why: str | None) -> None:
        flight = self._flights.pop(tag, None)
        if flight is not None:
            flight.land(tag, why)
        if self._is_spent and not self._flights and self._link is not None and self._channel is not None:
            self._link.discard(self._channel)

    def _returned(self, reason: str, content: Content) -> None:
        self._is_spent = True
        tag = wire.number_of(content.properties, self._word)
        flight = self._flights.get(tag) if tag is not None else None
        if tag is not None and flight is not None:
            flight.mark(tag, f"no queue takes it ({reason})")

    def _closed(self, error: Exception) -> None:
        flights, self._flights = self._flights, {}
        for tag, flight in flights.items():
            if isinstance(error, AMQPConnectionError):
                flight.lose(tag, error)
            else:
                flight.land(tag, f"the broker closed the channel ({code_of(error)})")


class _Flight:
    """The messages of one write, their numbers from `first` on; `landed` is done once each is answered."""

    def __init__(self, letters: Sequence[Letter], first: int) -> None:
        self.answers: list[Stored] = [None] * len(letters)
        self.tags = range(first, first + len(letters))
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._letters = letters
        self._left = len(letters)

    def land(self, tag: int, why: str | None) -> None:
        """Take the answer to one of them: None, or what the broker did instead of confirming."""
        if why is not None:
            self.mark(tag, why)
        self._left -= 1
        if not self._left and not self.landed.done():
            self.landed.set_result(None)

    def mark(self, tag: int, why: str) -> None:
        """Remember that this one is not where it should be, whatever the broker confirms."""
        at = tag - self.tags.start
        job_id = self._letters[at].job_id
        self.answers[at] = PublishNotConfirmed(f"job {job_id} was not confirmed: {why}", job_id=job_id)

    def lose(self, tag: int, error: Exception) -> None:
        """Take it that no answer to this one will ever come."""
        self.land(tag, None)
        self.answers[tag - self.tags.start] = error
