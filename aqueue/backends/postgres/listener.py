"""The connection that listens for arrivals: its own, supervised, and never more than a hint (POP-3).

A socket whose other end is gone without a word looks like a quiet one, so the listener asks for an answer
every few seconds. Whenever it starts to listen, first or anew, everyone is told to look: what was announced
before is lost.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from aqueue.backends._sql_arrivals import Arrivals
from aqueue.backends.postgres.lanes import Connect, connected
from aqueue.errors import StoreError
from aqueue.port import NotDispatched

_PROBE_EVERY = 5.0
_PROBE_PATIENCE = 5.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Listener:
    """Keeps one connection listening, from `start` to `aclose`."""

    def __init__(
        self, connect: Connect, channel: str, arrivals: Arrivals, is_ours: Callable[[int], bool]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._arrivals = arrivals
        self._is_ours = is_ours
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, unless it has begun."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._supervise(), name="aqueue listener")

    async def aclose(self) -> None:
        """Listen no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _supervise(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            with suppress(NotDispatched, StoreError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection = await connected(self._connect)
                try:
                    await self._listen(connection)
                    pause = _FIRST_PAUSE
                    await self._watch(connection)
                finally:
                    connection.terminate()
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _listen(self, connection: asyncpg.Connection) -> None:
        async with asyncio.timeout(_PROBE_PATIENCE):
            await connection.add_listener(self._channel, self._heard)
        self._arrivals.announce_all()

    async def _watch(self, connection: asyncpg.Connection) -> None:
        """Return when the connection is gone, or no longer answers."""
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        while not connection.is_closed():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_EVERY):
                    await gone.wait()
                    return
            async with asyncio.timeout(_PROBE_PATIENCE):
                await connection.execute("SELECT 1")

    def _heard(self, _: object, pid: int, channel: str, payload: object) -> None:
        """Hear `queue`, or `queue seconds` for a job that will be due in a moment."""
        if self._is_ours(pid):
            return  # told already, when the statement was answered
        queue, _, due_in = str(payload).partition(" ")
        with suppress(ValueError):
            self._arrivals.announce(queue, float(due_in or 0))
