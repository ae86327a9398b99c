"""How a connection is made: socket, TLS, credentials, database, name. Nothing is ever sent twice here."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from redis import exceptions as driver

from aqueue.backends.redis.link import Argument, Link, packed
from aqueue.backends.redis.replies import Reply

_CONNECT_TIMEOUT = 5.0


class Address(NamedTuple):
    """Where a server listens; without a port `host` is the path of a Unix socket."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """How the server is trusted and what is shown to it. Paths are of PEM files."""

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
    """Who connects, and to which database."""

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    database: int = 0

    def greeting(self) -> list[tuple[Argument, ...]]:
        """Return the commands that open a connection and must succeed."""
        commands: list[tuple[Argument, ...]] = []
        if self.password is not None:
            commands.append(
                ("AUTH", self.password) if self.username is None else ("AUTH", self.username, self.password)
            )
        if self.database:
            commands.append(("SELECT", self.database))
        return commands


class Dialler:
    """Makes connections under one identity. The protocol is RESP2, which every server speaks unasked."""

    def __init__(self, identity: Identity, tls: TLS | None) -> None:
        self._identity = identity
        self._tls = tls
        self._context: ssl.SSLContext | None = None

    async def dial(self, address: Address, on_push: Callable[[Reply], None] | None = None) -> Link:
        """Return an open link, or raise what the socket, the handshake or the server raised."""
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            link = await self._connected(address, on_push)
            try:
                await self._greet(link)
            except BaseException:
                link.abort()
                raise
        return link

    async def _connected(self, address: Address, on_push: Callable[[Reply], None] | None) -> Link:
        loop = asyncio.get_running_loop()
        if address.port is None:
            _, link = await loop.create_unix_connection(lambda: Link(on_push), address.host)
            return link
        if self._tls is not None and self._context is None:
            self._context = await asyncio.to_thread(self._tls.context)
        transport, link = await loop.create_connection(
            lambda: Link(on_push), address.host, address.port, ssl=self._context
        )
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return link

    async def _greet(self, link: Link) -> None:
        replies = [link.call(packed(command)) for command in self._identity.greeting()]
        naming = link.call(packed(("CLIENT", "SETNAME", "aqueue")))
        for reply in replies:
            await reply
        with contextlib.suppress(driver.ResponseError):  # a name is a courtesy, and may be forbidden
            await naming
