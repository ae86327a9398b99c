"""One connection to a broker: frames in and out, its channels, its heartbeat, and whether it takes messages.

What was not handed to the transport was never sent; what was, and has no answer when the connection goes, is
unknown. Nothing is ever sent twice from here.
"""

import asyncio
import contextlib
from typing import cast

from aiormq.exceptions import AMQPConnectionError, ChannelClosed, ConnectionClosed
from pamqp import commands, frame

from aqueue.backends.rabbitmq import wire
from aqueue.backends.rabbitmq.channel import Channel, Hears, decoded
from aqueue.port import NotDispatched

_IDLE = 0.02
"""Seconds of silence after which the broker may have closed the connection without our having looked."""

_PARTING = 1.0
_NO_USE = commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)
_GOODBYE = commands.Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0)


class Link(asyncio.Protocol):
    """A connection in use. `closed` is done once it is gone; `version` is the broker's, as numbers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.version: tuple[int, ...] = ()
        self.frame_max = 4096
        self.channel_max = 2047
        self.is_blocked = False
        self._transport: asyncio.Transport | None = None
        self._control = Channel(self, 0, Hears())
        self._channels: dict[int, Channel] = {0: self._control}
        self._rest = b""
        self._heard = 0.0
        self._interval = 0.0
        self._is_paused = False
        self._openings: set[asyncio.Future[None]] = set()
        self._error: Exception | None = None
        self._last_number = 0

    @property
    def control(self) -> Channel:
        """Channel 0, on which the connection itself is spoken of."""
        return self._control

    @property
    def is_open(self) -> bool:
        """Whether something can be sent, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def time(self) -> float:
        """Return the loop's time."""
        return self._loop.time()

    async def channel(self, hears: Hears) -> Channel:
        """Open another channel."""
        number = self._free_number()
        channel = Channel(self, number, hears)
        self._channels[number] = channel
        await channel.call(commands.Channel.Open())
        return channel

    def discard(self, channel: Channel) -> None:
        """Close a channel that is of no use any more; what it holds unsettled goes back."""
        if channel.is_open and self.is_open:
            channel.write(frame.marshal(_NO_USE, channel.number))
        channel.close(ChannelClosed(200, "it was of no use any more"))

    async def ready(self, *, publishing: bool = False) -> None:
        """Wait until bytes can leave: the socket takes them and, for messages, the broker does.

        Raises `NotDispatched` where the connection is gone meanwhile.
        """
        if self._loop.time() - self._heard > _IDLE:
            await asyncio.sleep(0)  # in these turns of the loop it would notice that the broker has hung up
            await asyncio.sleep(0)
        while self.is_open and (self._is_paused or (publishing and self.is_blocked)):
            opening: asyncio.Future[None] = self._loop.create_future()
            self._openings.add(opening)
            try:
                await opening
            finally:
                self._openings.discard(opening)
        if not self.is_open:
            raise NotDispatched("the connection was closed before anything was sent")

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; raise `NotDispatched` where there is none."""
        if not self.is_open:
            raise NotDispatched("the connection is closed")
        assert self._transport is not None
        self._transport.write(data)

    def beat_every(self, seconds: float) -> None:
        """Show that we are there, and drop the connection where the broker no longer is; 0 is never."""
        self._interval = seconds / 2
        if self._interval:
            self._loop.call_later(self._interval, self._beat)

    def abort(self) -> None:
        """Drop the connection at once; whatever is unanswered is unknown."""
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self) -> None:
        """Say goodbye and return when the connection is gone, or soon after."""
        if self._transport is None:
            return
        with contextlib.suppress(TimeoutError, NotDispatched, AMQPConnectionError):
            async with asyncio.timeout(_PARTING):
                await self._control.call(_GOODBYE)
        self.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PARTING):
                await asyncio.shield(self.closed)

    # What follows is called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._heard = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Cut what came into frames and hand each to its channel."""
        self._heard = self._loop.time()
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at > 7:
            kind, number, size = wire.HEAD.unpack_from(data, at)
            stop = at + 7 + size
            if stop >= end:
                break
            if data[stop] != wire.FRAME_END:
                self._error = AMQPConnectionError("what the broker sent is not AMQP")
                self.abort()
                return
            self._hand_out(kind, number, data[at + 7 : stop])
            at = stop + 1
        self._rest = data[at:]

    def pause_writing(self) -> None:
        """Let nobody begin to write until the socket has taken what was written."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Let those who wait for it write."""
        self._is_paused = False
        self._let_write()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell every channel that nothing more will come."""
        self._transport = None
        lost = self._error or AMQPConnectionError("the connection was lost before the answer came")
        lost.__cause__ = error
        for channel in list(self._channels.values()):
            channel.close(lost)
        self._channels.clear()
        self._let_write()
        if not self.closed.done():
            self.closed.set_result(None)

    def _hand_out(self, kind: int, number: int, payload: bytes) -> None:
        channel = self._channels.get(number)
        if channel is None or kind == wire.HEARTBEAT:
            return
        if kind == wire.METHOD:
            if number == 0 and self._is_about_connection(payload):
                return
            channel.on_method(payload)
            if payload[:4] in (wire.CHANNEL_CLOSE, wire.CHANNEL_CLOSED):
                self._channels.pop(number, None)
        elif kind == wire.HEADER:
            channel.on_header(payload)
        elif kind == wire.BODY:
            channel.on_body(payload)

    def _is_about_connection(self, payload: bytes) -> bool:
        kind = payload[:4]
        if kind == wire.CONNECTION_CLOSE:
            reason = decoded(payload)
            assert isinstance(reason, commands.Connection.Close)
            self._error = ConnectionClosed(reason.reply_code, reason.reply_text)
            self.write(frame.marshal(commands.Connection.CloseOk(), 0))
            assert self._transport is not None
            self._transport.close()
        elif kind == wire.BLOCKED:
            self.is_blocked = True
        elif kind == wire.UNBLOCKED:
            self.is_blocked = False
            self._let_write()
        else:
            return False
        return True

    def _let_write(self) -> None:
        for opening in self._openings:
            if not opening.done():
                opening.set_result(None)

    def _beat(self) -> None:
        if not self.is_open:
            return
        if self._loop.time() - self._heard > 4 * self._interval:
            self._error = AMQPConnectionError("the broker has not been heard for two heartbeats")
            self.abort()
            return
        self.write(wire.HEARTBEAT_FRAME)
        self._loop.call_later(self._interval, self._beat)

    def _free_number(self) -> int:
        """Return a number that was not used just now: an answer to its last user may still be on its way."""
        for step in range(self.channel_max):
            number = (self._last_number + step) % self.channel_max + 1
            if number not in self._channels:
                self._last_number = number
                return number
        raise NotDispatched("all channels of the connection are in use")
