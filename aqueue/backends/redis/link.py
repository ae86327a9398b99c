"""One connection that many callers share: what they send in one turn of the loop travels in one write.

Replies come in the order of the commands, so each caller holds a future and nothing else. A caller that
stops waiting abandons its future; the reply is still read in its turn. What became of a command is known by
construction: handed to the transport and not answered means unknown, still in the outbox means never sent.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import hiredis
from redis import exceptions as driver

from aqueue.backends.redis.replies import Reply, error_from

Argument: TypeAlias = str | bytes | int | float
Pending: TypeAlias = "asyncio.Future[Reply] | None"

_ASKING = b"*1\r\n$6\r\nASKING\r\n"
_NOTHING_YET = object()
_IDLE = 0.02
"""Seconds of silence after which the server may have closed the connection without our having looked."""


class Unsent(Exception):
    """No byte of the command was handed to the transport."""


def packed(command: Sequence[Argument]) -> bytes:
    """Return a command as it travels."""
    return cast("bytes", hiredis.pack_command(tuple(command)))  # type: ignore[arg-type]  # its stub says: one argument


class Link(asyncio.Protocol):
    """A connection in use. `on_push` is given what comes unasked, which is what a subscriber waits for.

    `closed` is done once the connection is gone; `last_heard` is the loop's time when something last came.
    """

    def __init__(self, on_push: Callable[[Reply], None] | None = None) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last_heard = 0.0
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=error_from, notEnoughData=_NOTHING_YET)
        self._on_push = on_push
        self._transport: asyncio.Transport | None = None
        self._outbox: list[bytes] = []
        self._outgoing: list[Pending] = []
        self._unanswered: deque[Pending] = deque()
        self._is_flush_due = False
        self._is_paused = False

    @property
    def is_open(self) -> bool:
        """Whether a command can be sent, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def call(self, command: bytes) -> "asyncio.Future[Reply]":
        """Send the packed command and return the future of its reply.

        The future raises the server's error, `Unsent`, or the driver's `ConnectionError` when the connection
        was lost in between.
        """
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._send(command, reply)
        return reply

    def call_asking(self, command: bytes) -> "asyncio.Future[Reply]":
        """Send the command to a node that is importing its slot: ASKING must be in the same write."""
        self._send(_ASKING, None)
        return self.call(command)

    def post(self, command: bytes) -> None:
        """Send a command whose replies come as pushes: SUBSCRIBE and the like."""
        self._outbox.append(command)
        self._flush_soon()

    def abort(self) -> None:
        """Drop the connection at once; whatever is unanswered is unknown."""
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self) -> None:
        """Let what was written leave, then close; return when the connection is gone, or soon after."""
        if self._transport is None:
            return
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(self.closed)
        self.abort()

    # What follows is called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self.last_heard = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Hand each complete reply to the caller whose turn it is."""
        self.last_heard = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING_YET:
                self._deliver(reply)
        except hiredis.ProtocolError:
            self.abort()  # what comes next can't be told from what came before

    def pause_writing(self) -> None:
        """Keep commands in the outbox until the socket has taken what was written."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Write what gathered meanwhile."""
        self._is_paused = False
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell every caller what became of its command."""
        self._transport = None
        unanswered, outgoing = self._unanswered, self._outgoing
        self._unanswered, self._outgoing, self._outbox = deque(), [], []
        for reply in unanswered:
            if reply is not None and not reply.done():
                lost = driver.ConnectionError("the connection was lost before the reply came")
                lost.__cause__ = error
                reply.set_exception(lost)
        for reply in outgoing:
            if reply is not None and not reply.done():
                reply.set_exception(Unsent())
        if not self.closed.done():
            self.closed.set_result(None)

    def _send(self, command: bytes, reply: Pending) -> None:
        if not self.is_open:
            raise Unsent
        self._outbox.append(command)
        self._outgoing.append(reply)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._is_flush_due:
            return
        self._is_flush_due = True
        if not self._unanswered and self._loop.time() - self.last_heard > _IDLE:
            # One more turn of the loop, in which it would notice that the server has hung up: then nothing
            # was sent, and the caller can have another connection.
            self._loop.call_soon(self._loop.call_soon, self._flush)
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._is_paused or not self._outbox or not self.is_open:
            return
        assert self._transport is not None
        outbox, self._outbox = self._outbox, []
        self._unanswered.extend(self._outgoing)
        self._outgoing.clear()
        self._transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))

    def _deliver(self, reply: Any) -> None:
        if not self._unanswered:
            if self._on_push is not None:
                self._on_push(reply)
            return
        waiting = self._unanswered.popleft()
        if waiting is None or waiting.done():
            return
        if isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)
