"""How a connection is made: socket, TLS, credentials, virtual host; the first broker to answer is taken."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from aiormq.exceptions import AMQPError
from pamqp import base, commands, frame

from aqueue.backends.rabbitmq.link import Link
from aqueue.port import NotDispatched

_CONNECT_TIMEOUT = 5.0
_PROTOCOL = b"AMQP\x00\x00\x09\x01"
_LONGEST_FRAME = 131_072


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """How the broker is trusted and what is shown to it. Paths are of PEM files."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Read the files and return what the handshakes use; it takes a while, so call it on a thread."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who connects, and to which virtual host."""

    username: str = field(repr=False)
    password: str = field(repr=False)
    vhost: str


class Dialler:
    """Makes connections under one identity, to the first of some brokers that takes one."""

    def __init__(
        self, addresses: Sequence[Address], identity: Identity, tls: TLS | None, *, heartbeat: float
    ) -> None:
        self._addresses = list(addresses)
        self._identity = identity
        self._tls = tls
        self._heartbeat = heartbeat
        self._context: ssl.SSLContext | None = None

    async def dial(self) -> Link:
        """Return an open connection, or raise `NotDispatched` with what the last broker said."""
        failure: Exception | None = None
        for _ in self._addresses:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    return await self._connected(self._addresses[0])
            except (OSError, TimeoutError, AMQPError, NotDispatched) as error:
                failure = error
                self._addresses.append(self._addresses.pop(0))  # the next call begins where this one ends
        raise NotDispatched(f"connecting failed: {_words(failure)}") from failure

    async def _connected(self, address: Address) -> Link:
        if self._tls is not None and self._context is None:
            self._context = await asyncio.to_thread(self._tls.context)
        transport, link = await asyncio.get_running_loop().create_connection(
            Link, address.host, address.port, ssl=self._context
        )
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._greet(link)
        except BaseException:
            link.abort()
            raise
        return link

    async def _greet(self, link: Link) -> None:
        start = cast("commands.Connection.Start", await link.control.send(_PROTOCOL))
        properties = start.server_properties or {}
        link.version = _version(str(properties.get("version", "")))
        tune = cast("commands.Connection.Tune", await link.control.call(self._credentials()))
        link.frame_max = min(tune.frame_max or _LONGEST_FRAME, _LONGEST_FRAME)
        link.channel_max = min(tune.channel_max or link.channel_max, link.channel_max)
        heartbeat = min(tune.heartbeat, self._heartbeat) if self._heartbeat else 0
        agreed: list[base.Frame] = [
            commands.Connection.TuneOk(
                channel_max=link.channel_max, frame_max=link.frame_max, heartbeat=round(heartbeat)
            ),
            commands.Connection.Open(virtual_host=self._identity.vhost),
        ]
        await link.control.send(b"".join(frame.marshal(method, 0) for method in agreed))
        link.beat_every(heartbeat)

    def _credentials(self) -> base.Frame:
        return commands.Connection.StartOk(
            client_properties={
                "product": "aqueue",
                "connection_name": "aqueue",
                "capabilities": {
                    "authentication_failure_close": True,
                    "basic.nack": True,
                    "connection.blocked": True,
                    "consumer_cancel_notify": True,
                    "publisher_confirms": True,
                },
            },
            mechanism="PLAIN",
            response=f"\0{self._identity.username}\0{self._identity.password}",
            locale="en_US",
        )


class Line:
    """One connection, made when it is first needed and again when it was lost."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler
        self._link: Link | None = None
        self._dialling: asyncio.Task[Link] | None = None

    async def link(self) -> Link:
        """Return the connection; raise `NotDispatched` where none can be made.

        Callers that come while it is being made share it; cancelling one of them does not stop it.
        """
        if self._link is not None and self._link.is_open:
            return self._link
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._made())
            self._dialling.add_done_callback(_read)
        return await asyncio.shield(self._dialling)

    async def aclose(self) -> None:
        """Close the connection and stop making one."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait({self._dialling})
        if self._link is not None:
            await self._link.aclose()

    async def _made(self) -> Link:
        try:
            self._link = await self._dialler.dial()
            return self._link
        finally:
            self._dialling = None


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split(".")[:2]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _words(error: Exception | None) -> str:
    """Say what is known of a failure: a broker's own words may hold a user's name, so only its number."""
    if isinstance(error, AMQPError):
        code = error.args[0] if error.args and isinstance(error.args[0], int) else ""
        return f"the broker refused the connection: {code or type(error).__name__}"
    return str(error) or type(error).__name__


def _read(dialling: "asyncio.Task[Link]") -> None:
    """Everybody who waited for it may have been cancelled."""
    if not dialling.cancelled():
        dialling.exception()
