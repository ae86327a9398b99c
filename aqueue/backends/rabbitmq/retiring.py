"""What nobody wants any more goes back: consumers end, and what lies in their buffer is given to others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiormq.exceptions import AMQPError

from aqueue.backends.rabbitmq.declaring import Declarations
from aqueue.backends.rabbitmq.errands import Errands
from aqueue.backends.rabbitmq.intake import HandOut, Intake
from aqueue.backends.rabbitmq.session import Session
from aqueue.errors import AqueueError
from aqueue.port import NotDispatched

_LINGER = 0.2
"""Seconds for which an intake is kept after the last sweep or wait for its queue."""

_CLOSING = 4.0
"""Seconds that giving back may take when the queue is closed; what is left goes back with the channel."""


class Retiring:
    """Retires the intakes of a session once they are idle. `give_back` puts deliveries back uncounted."""

    def __init__(
        self,
        declarations: Declarations,
        errands: Errands,
        give_back: Callable[[Sequence[HandOut]], Awaitable[None]],
    ) -> None:
        self._declarations = declarations
        self._errands = errands
        self._give_back = give_back
        self._timer: asyncio.TimerHandle | None = None
        self._retiring: set[Intake] = set()
        self._is_closing = False

    def later(self, session: Session) -> None:
        """Look in a while for intakes that are idle by then."""
        if self._timer is None and not self._is_closing:
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self._look, session)

    async def retire(self, session: Session, intake: Intake) -> None:
        """End the consumers of an intake, then give back its buffer, unless it is wanted again by then."""
        since = intake.demanded
        try:
            if session.is_stirred and intake.consumers:  # what is on its way had better arrive before
                await self._declarations.declare([intake.source.name])
                await session.settled()
            await session.unsubscribe(intake)
            if self._is_closing or (intake.demanded == since and not intake.watchers):
                await self._empty(intake)
        except (AMQPError, AqueueError, NotDispatched, OSError):
            pass  # the channel is gone and everything with it, or there will be another try
        finally:
            self._retiring.discard(intake)
            self.later(session)

    async def close(self, session: Session) -> None:
        """Retire all there is, wanted or not, within the time there is for it."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in range(2):  # what was being retired may have been wanted again just before
            for intake in session.intakes.values():
                self._begin(session, intake)
            await self._errands.back(_CLOSING / 2)
        self._is_closing = False

    async def _empty(self, intake: Intake) -> None:
        idle = intake.take(len(intake.buffer))
        try:
            await self._give_back(idle)
        finally:
            intake.buffer.extendleft(reversed([handout for handout in idle if handout.is_held]))

    def _look(self, session: Session) -> None:
        self._timer = None
        if not session.is_open:
            return
        now = session.link.time()
        for intake in session.intakes.values():
            if now - intake.demanded >= _LINGER and not intake.watchers:
                self._begin(session, intake)
            elif (intake.consumers or intake.buffer) and not intake.watchers:
                self.later(session)

    def _begin(self, session: Session, intake: Intake) -> None:
        if (intake.consumers or intake.buffer) and intake not in self._retiring:
            self._retiring.add(intake)
            self._errands.send(self.retire(session, intake))
