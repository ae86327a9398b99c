"""What a Redis server is asked to do: what clients send, seen by MONITOR; all it ran, by INFO."""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self

_LONGEST_LINE = 64 * 1024 * 1024


class Watched:
    """Counts the commands that clients send while it is entered; what scripts run inside is not counted.

    It slows the server down, so nothing is timed meanwhile.
    """

    def __init__(self, host: str, port: int) -> None:
        self.commands: Counter[str] = Counter()
        self._host = host
        self._port = port
        self._watching: asyncio.Task[None] | None = None

    @property
    def total(self) -> int:
        """How many there were."""
        return self.commands.total()

    async def __aenter__(self) -> Self:
        reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=_LONGEST_LINE)
        self._writer.write(b"MONITOR\r\n")
        await reader.readline()
        self._watching = asyncio.create_task(self._watch(reader))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.sleep(0.1)  # the server reports a moment after it has answered
        assert self._watching is not None
        self._watching.cancel()
        self._writer.close()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """Read lines like `+1700000000.5 [0 127.0.0.1:5000] "SET" "key" …`; a script's say `[0 lua]`."""
        while line := await reader.readline():
            where, _, command = line.partition(b'] "')
            if not where.endswith(b" lua"):
                self.commands[command.partition(b'"')[0].decode().upper()] += 1


async def calls_of(host: str, port: int) -> Counter[str]:
    """Return how often the server has run each command, those inside scripts included."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"INFO commandstats\r\n")
    size = int((await reader.readline())[1:])
    text = (await reader.readexactly(size)).decode()
    writer.close()
    calls: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, figures = line.partition(":")
        if name.startswith("cmdstat_"):
            calls[name.removeprefix("cmdstat_")] = int(figures.partition(",")[0].removeprefix("calls="))
    return calls
