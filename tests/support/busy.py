"""A job that runs until it is let go, for tests of what a worker does meanwhile."""

import asyncio

from aqueue import Handlers, job


@job(name="support.note")
class Note:
    """A job with a text."""

    text: str = ""


class Busy:
    """A handler that runs until its gate opens, and what became of it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running = 0
        self.ended: list[str] = []
        self.handlers = Handlers()
        self.handlers.on(Note, self.handle)

    async def handle(self, _: Note) -> None:
        self.running += 1
        try:
            await self.gate.wait()
            self.ended.append("returned")
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        finally:
            self.running -= 1
