"""A TCP proxy between a client and a server, for what happens on a network: silence, and lost replies."""

import asyncio
import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards connections to one port, until told to freeze them or to keep replies back."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._frozen: set[asyncio.StreamWriter] = set()
        self._drops_replies = False
        self._swallows = False
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()

    def freeze(self) -> None:
        """Let nothing through the connections there are, and don't close them; new ones are not concerned."""
        self._frozen = set(self._writers)

    def swallow(self) -> None:
        """Be a black hole: take connections, the ones there are and new ones, and let nothing through."""
        self.freeze()
        self._swallows = True

    def reset(self) -> None:
        """Answer every connection with RST, and forward again what comes on new ones."""
        for writer in self._writers:
            handle = writer.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.cut()

    def drop_replies(self) -> None:
        """Hand requests over from now on, and keep what the server answers."""
        self._drops_replies = True

    def cut(self) -> None:
        """Close every connection, and forward again what comes on new ones."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._drops_replies = self._swallows = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError):
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers |= {writer, server_writer}
                if self._swallows:
                    self._frozen |= {writer, server_writer}
                await asyncio.gather(
                    self._forward(reader, server_writer, replies=False),
                    self._forward(server_reader, writer, replies=True),
                )
        finally:
            self._tasks.discard(task)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if writer in self._frozen or (replies and self._drops_replies):
                    continue
                writer.write(data)
                await writer.drain()
        if writer not in self._frozen:
            with suppress(OSError):
                writer.close()
