"""A proxy before an SQS server that reads along: which calls were made, and what they asked for."""

import asyncio
import re
from collections import Counter
from typing import Any

import msgspec

from servers.proxy import Proxy

_HEAD = re.compile(rb"POST .*?\r\n\r\n", re.DOTALL)
_TARGET = re.compile(rb"^x-amz-target: *AmazonSQS\.(\w+)", re.MULTILINE | re.IGNORECASE)
_LENGTH = re.compile(rb"^content-length: *(\d+)", re.MULTILINE | re.IGNORECASE)


class Tap(Proxy):
    """Forwards connections, and keeps what was sent to the server on each of them."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._sent: list[bytearray] = []

    def calls(self) -> Counter[str]:
        """Return how often each operation was asked for since the last `forget`."""
        return Counter(operation for operation, _ in self._requests())

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """Return the parameters of each call of an operation."""
        return [parameters for name, parameters in self._requests() if name == operation]

    def forget(self) -> None:
        """Count from here on; to be called while nothing is being sent."""
        for sent in self._sent:
            sent.clear()

    def _requests(self) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        for sent in self._sent:
            at = 0
            while head := _HEAD.match(sent, at):
                target, length = _TARGET.search(head[0]), _LENGTH.search(head[0])
                assert target is not None, head[0]
                assert length is not None, head[0]
                at = head.end() + int(length[1])
                body = bytes(sent[head.end() : at])
                if len(body) == int(length[1]):  # else it is still on its way
                    found.append((target[1].decode(), msgspec.json.decode(body)))
        return found

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        if replies:
            await super()._forward(reader, writer, replies=True)
            return
        sent = bytearray()
        self._sent.append(sent)
        await super()._forward(_ReadAlong(reader, sent), writer, replies=False)  # type: ignore[arg-type]


class _ReadAlong:
    """A reader that keeps a copy of what it reads."""

    def __init__(self, reader: asyncio.StreamReader, copy: bytearray) -> None:
        self._reader = reader
        self._copy = copy

    async def read(self, count: int) -> bytes:
        data = await self._reader.read(count)
        self._copy += data
        return data
