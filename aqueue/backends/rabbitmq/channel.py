"""One channel: replies come in the order of the requests, and what comes unasked goes to whoever hears it.

The broker closes a channel for any mistake, so each kind of work has one of its own. A channel is never used
again once it was closed, and neither are the delivery tags it gave.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from aiormq.exceptions import AMQPError, ChannelClosed
from pamqp import base, commands, frame

from aqueue.backends.rabbitmq import wire
from aqueue.port import NotDispatched


class Content(NamedTuple):
    """A message that came in: the method it came by, its flags and properties, and its body."""

    method: bytes
    properties: bytes
    body: bytes


def _unheard(*_: object) -> None:
    """Nobody asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hears:
    """Who is told of what comes unasked. None of them may raise or suspend.

    `confirmed` is given a tag, whether it means all up to it, and whether the broker has the message;
    `returned` the reason and the message; `cancelled` the tag of a consumer that the broker has ended.
    """

    delivered: Callable[[Content], None] = _unheard
    returned: Callable[[str, Content], None] = _unheard
    confirmed: Callable[[int, bool, bool], None] = _unheard
    cancelled: Callable[[bytes], None] = _unheard
    closed: Callable[[Exception], None] = _unheard


class Writer(Protocol):
    """The connection, as a channel uses it."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport, in one write."""


class Channel:
    """A channel in use; it may be told to `call` as soon as the connection has given it a number."""

    def __init__(self, writer: Writer, number: int, hears: Hears) -> None:
        self.number = number
        self.is_open = True
        self._writer = writer
        self._hears = hears
        self._replies: deque[asyncio.Future[base.Frame]] = deque()
        self._method = b""
        self._properties = b""
        self._body: list[bytes] = []
        self._missing = 0

    def call(self, request: base.Frame) -> "asyncio.Future[base.Frame]":
        """Send a request that has a reply and return the reply's future.

        It raises `ChannelClosed` or `AMQPConnectionError`; this raises `NotDispatched` once the channel is
        closed.
        """
        return self.send(frame.marshal(request, self.number))

    def call_all(self, requests: Sequence[base.Frame]) -> "list[asyncio.Future[base.Frame]]":
        """Send several requests in one write; see `call`."""
        self.write(b"".join(frame.marshal(request, self.number) for request in requests))
        return [self.next_reply() for _ in requests]

    def send(self, data: bytes) -> "asyncio.Future[base.Frame]":
        """Send frames of which the last has a reply, in one write; see `call`."""
        self.write(data)
        return self.next_reply()

    def write(self, data: bytes) -> None:
        """Send frames that have no reply, in one write; see `call`."""
        if not self.is_open:
            raise NotDispatched("the channel is closed")
        self._writer.write(data)

    def next_reply(self) -> "asyncio.Future[base.Frame]":
        """Return the future of one more reply that is to come."""
        reply: asyncio.Future[base.Frame] = asyncio.get_running_loop().create_future()
        self._replies.append(reply)
        return reply

    def close(self, error: Exception) -> None:
        """Tell everybody who waits that nothing more will come."""
        if not self.is_open:
            return
        self.is_open = False
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if not reply.done():
                reply.set_exception(error)
                reply.exception()  # whoever asked may have stopped waiting
        self._hears.closed(error)

    def on_method(self, payload: bytes) -> None:
        """Take a method frame from the connection."""
        kind = payload[:4]
        if kind in _WITH_CONTENT:
            self._method = payload
        elif kind in (wire.ACK, wire.NACK):
            tag = wire.UNSIGNED_64.unpack_from(payload, 4)[0]
            self._hears.confirmed(tag, bool(payload[12] & 1), kind == wire.ACK)
        elif kind == wire.CANCEL:
            self._hears.cancelled(payload[5 : 5 + payload[4]])
        elif kind == wire.CHANNEL_CLOSE:
            self._closed_by_broker(payload)
        elif kind != wire.CHANNEL_FLOW:
            self._answer(decoded(payload))

    def on_header(self, payload: bytes) -> None:
        """Take a content header from the connection."""
        self._missing = wire.UNSIGNED_64.unpack_from(payload, 4)[0]
        self._properties = payload[12:]
        if not self._missing:
            self._complete(b"")

    def on_body(self, payload: bytes) -> None:
        """Take a piece of a body from the connection."""
        self._missing -= len(payload)
        if not self._missing and not self._body:
            self._complete(payload)
            return
        self._body.append(payload)
        if not self._missing:
            body, self._body = self._body, []
            self._complete(b"".join(body))

    def _complete(self, body: bytes) -> None:
        content = Content(self._method, self._properties, body)
        if content.method[:4] == wire.DELIVER:
            self._hears.delivered(content)
        else:
            returned = decoded(content.method)
            assert isinstance(returned, commands.Basic.Return)
            self._hears.returned(f"{returned.reply_code} {returned.reply_text}", content)

    def _answer(self, reply: base.Frame) -> None:
        if self._replies:
            waiting = self._replies.popleft()
            if not waiting.done():
                waiting.set_result(reply)

    def _closed_by_broker(self, payload: bytes) -> None:
        reason = decoded(payload)
        assert isinstance(reason, commands.Channel.Close)
        self._writer.write(frame.marshal(commands.Channel.CloseOk(), self.number))
        self.close(ChannelClosed(reason.reply_code, reason.reply_text))


def decoded(payload: bytes) -> base.Frame:
    """Return a method frame's payload as pamqp's class for it."""
    whole = wire.HEAD.pack(wire.METHOD, 0, len(payload)) + payload + b"\xce"
    method = frame.unmarshal(whole)[2]
    assert isinstance(method, base.Frame)
    return method


def code_of(error: BaseException) -> int:
    """Return the reply code with which the broker closed a channel or the connection; 0 for no code."""
    code = error.args[0] if isinstance(error, AMQPError) and error.args else 0
    return code if isinstance(code, int) else 0


_WITH_CONTENT = frozenset({wire.DELIVER, wire.RETURN})
