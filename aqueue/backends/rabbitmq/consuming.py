"""How jobs come in: consumers fill local buffers, and a sweep empties them in list order (POP-2).

A sweep that finds nothing, or that can't know, asks: it adds consumers where its queues have no credit left,
and makes one round trip, behind which everything lies that the broker had sent off. So what was stored before
the sweep began is found, though nothing is ever fetched one by one.

What nobody wants any more goes back: a fifth of a second after the last sweep or wait for a queue its
consumers are ended, and what lies in its buffer is given to others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from aiormq.exceptions import AMQPError

from aqueue.backends.rabbitmq.declaring import Declarations
from aqueue.backends.rabbitmq.dialling import Line
from aqueue.backends.rabbitmq.errands import Errands
from aqueue.backends.rabbitmq.intake import HandOut, Intake, Source
from aqueue.backends.rabbitmq.retiring import Retiring
from aqueue.backends.rabbitmq.session import Session
from aqueue.backends.rabbitmq.troubles import dropping
from aqueue.port import NotDispatched

_SOON = 0.05
_PATIENT_ASKS = 4
"""A sweep waits up to so many times as long for what is ready and not sent off yet; then it finds nothing."""

_DOUBT = 5.0
"""Seconds after which an idle session counts what its queues have ready, in case it is not sent it."""


class Consuming:
    """The session there is, and its intakes kept as full as they are wanted.

    `most` bounds what one sweep asks for ahead of each queue; `give_back` puts back deliveries nobody
    started; `keeps_place` tells of which version on the broker takes deliveries back in their place, without
    counting it.
    """

    def __init__(
        self,
        line: Line,
        declarations: Declarations,
        *,
        most: int,
        give_back: Callable[[Sequence[HandOut]], Awaitable[None]],
        keeps_place: Callable[[tuple[int, ...]], bool],
    ) -> None:
        self._line = line
        self._declarations = declarations
        self._most = most
        self._keeps_place = keeps_place
        self._session: Session | None = None
        self._errands = Errands()
        self._retiring = Retiring(declarations, self._errands, give_back)
        self._one_at_a_time = asyncio.Lock()

    async def pop(self, sources: Sequence[Source], limit: int) -> list[HandOut]:
        """Sweep these queues in order; ask the broker only where the buffers can't tell."""
        session = self._session
        if session is not None and session.is_open:
            found = self._sweep(session, sources, limit, has_asked=False)
            if found:
                return found
        try:
            return await self._found(sources, limit)
        except AMQPError as error:
            raise NotDispatched(
                "the channel was lost, and all it was sent goes back to its queues"
            ) from error

    async def _found(self, sources: Sequence[Source], limit: int) -> list[HandOut]:
        session, found = await self._opened(), []
        with dropping(session.link), self._watching(session, sources):
            for turn in range(_PATIENT_ASKS):
                owed = await self._ask(session, sources, min(limit, self._most))
                found = self._sweep(session, sources, limit, has_asked=True)
                if found or not owed:
                    break
                await asyncio.wait({session.watch()}, timeout=_SOON)
                session.is_stirred = True
                if turn == _PATIENT_ASKS - 2:
                    await self._start_anew(session, owed)
        return found

    async def pop_alone(self, source: Source, limit: int) -> list[HandOut]:
        """Take from a queue that is seldom looked at, and leave no consumer on it."""
        session = await self._opened()
        intake = self._intake(session, source)
        found = await self.pop([source], limit)
        if session.is_open:
            await self._retiring.retire(session, intake)
        return found

    async def wait(self, sources: Sequence[Source], seconds: float) -> None:
        """Return when one of these queues has something in its buffer, or after so many seconds (POP-3)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        session = await self._errands.through(self._listening(sources))
        with self._watching(session, sources) as intakes:
            while session.is_open and not any(intake.buffer for intake in intakes):
                left = deadline - loop.time()
                if left <= 0:
                    break
                await asyncio.wait({session.watch()}, timeout=left)

    def waiting(self, source: Source) -> int:
        """Return how many jobs of a queue lie in its buffer."""
        return len(self._known(source).buffer)

    def held(self, source: Source) -> int:
        """Return how many jobs of a queue are handed out here and not settled."""
        return self._session.held(source) if self._session is not None and self._session.is_open else 0

    async def discard(self, source: Source) -> int:
        """Throw away what lies in a queue's buffer; return how many jobs that were."""
        session = self._session
        if session is None or not session.is_open:
            return 0
        with dropping(session.link):
            await session.settled()
            intake = self._known(source)
            thrown = intake.take(len(intake.buffer))
            if thrown:
                await session.ack(thrown)
        return len(thrown)

    async def aclose(self) -> None:
        """End the consumers, give back what nobody started, and end the channel with what is held on it."""
        session, self._session = self._session, None
        if session is not None and session.is_open:
            await self._retiring.close(session)
            session.close()
        await self._errands.call_off()

    def _sweep(
        self, session: Session, sources: Sequence[Source], limit: int, *, has_asked: bool
    ) -> list[HandOut]:
        """Take from the buffers in list order; stop at a queue that may hold more than its buffer shows."""
        found: list[HandOut] = []
        now = session.link.time()
        for source in sources:
            intake = self._intake(session, source)
            intake.demanded = now
            found += intake.take(limit - len(found))
            if len(found) >= limit or not (has_asked or intake.credit):
                break
        self._retiring.later(session)
        return found

    async def _ask(self, session: Session, sources: Sequence[Source], wanted: int) -> list[Intake]:
        """Let each queue have as much credit as this sweep could take from it, and await what lies ready.

        Returns the intakes to which the broker owes something still.
        """
        intakes = [self._intake(session, source) for source in sources]
        short: list[tuple[Intake, int]] = []
        for intake in intakes:
            intake.wanted, intake.demanded = wanted, session.link.time()
            missing = wanted - intake.credit - len(intake.buffer)
            if missing > 0:
                short.append((intake, missing))
        ready: Sequence[int] = ()
        if short or session.is_stirred or session.link.time() - session.counted > _DOUBT:
            session.is_stirred, session.counted = False, session.link.time()
            ready = await self._declarations.declare([source.name for source in sources])
            await self._subscribe(session, short)
        await session.settled()
        pairs = zip(ready, intakes, strict=False)
        return [intake for count, intake in pairs if count and intake.credit and not intake.buffer]

    async def _start_anew(self, session: Session, owed: Sequence[Intake]) -> None:
        """End consumers that are sent nothing though there is something.

        A quorum queue that is deleted and made again at once forgets its consumers without telling them.
        """
        for intake in owed:
            if not intake.buffer:
                await session.unsubscribe(intake)

    async def _listening(self, sources: Sequence[Source]) -> Session:
        """Return the session once each of these queues has some credit, so that an arrival shows."""
        session = await self._opened()
        short: list[tuple[Intake, int]] = []
        for source in sources:
            intake = self._intake(session, source)
            intake.demanded = session.link.time()
            if not intake.credit and not intake.buffer:
                short.append((intake, intake.wanted))
        if short:
            await self._declarations.declare([intake.source.name for intake, _ in short])
            await self._subscribe(session, short)
        return session

    async def _subscribe(self, session: Session, short: Sequence[tuple[Intake, int]]) -> None:
        """Ask for more of queues that were declared just now.

        A consumer on a queue that isn't there would cost the channel, and all that is held on it.
        """
        await session.link.ready()
        if short:
            await session.subscribe(short)

    async def _opened(self) -> Session:
        link = await self._line.link()
        with dropping(link):
            async with self._one_at_a_time:
                if self._session is None or not self._session.is_open:
                    await link.ready()
                    self._session = await Session.on(link, self._gone)
                return self._session

    @contextmanager
    def _watching(self, session: Session, sources: Sequence[Source]) -> Iterator[list[Intake]]:
        """Let nobody end the consumers of these queues meanwhile."""
        intakes = [self._intake(session, source) for source in sources]
        for intake in intakes:
            intake.watchers += 1
        try:
            yield intakes
        finally:
            for intake in intakes:
                intake.watchers -= 1
                intake.demanded = session.link.time()
            self._retiring.later(session)

    def _gone(self, source: Source) -> None:
        self._declarations.forget(source.queue)

    def _intake(self, session: Session, source: Source) -> Intake:
        intake = session.intakes.get(source)
        if intake is None:
            intake = session.intakes[source] = Intake(source)
            intake.keeps_place = source.is_failed or self._keeps_place(session.link.version)
        return intake

    def _known(self, source: Source) -> Intake:
        found = self._session.intakes.get(source) if self._session is not None else None
        return found if found is not None else Intake(source)
