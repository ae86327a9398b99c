"""Making a queue when nobody else does.

A quorum queue that another connection is making just now looks as if it were there: declaring it succeeds,
but the broker refuses what is published to it, and closes the connection that wants to consume. So whoever is
about to declare one takes its turn: for that moment it holds an exclusive queue beside it, which only one
connection can.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiormq.exceptions import ChannelClosed
from pamqp import commands

from aqueue.backends.rabbitmq.channel import Hears, code_of
from aqueue.backends.rabbitmq.link import Link
from aqueue.backends.rabbitmq.troubles import LOCKED, refusal

_PATIENCE = 3.0
_PAUSE = 0.01


@asynccontextmanager
async def turn(link: Link, names: Sequence[str]) -> AsyncIterator[None]:
    """Hold the turn for these queues; after a while of waiting for it, go on without."""
    marks = sorted(f"{name}.making" for name in names)
    deadline = link.time() + _PATIENCE
    taken = await _taken(link, marks)
    while len(taken) < len(marks) and link.time() < deadline:
        await _give_up(link, taken)
        await asyncio.sleep(_PAUSE)
        taken = await _taken(link, marks)
    try:
        yield
    finally:
        if link.is_open:
            await _give_up(link, taken)


async def _taken(link: Link, marks: Sequence[str]) -> list[str]:
    """Take as many as can be had before the first that somebody else holds."""
    taken: list[str] = []
    channel = await link.channel(Hears())
    requests = [commands.Queue.Declare(queue=mark, exclusive=True) for mark in marks]
    try:
        for mark, reply in zip(marks, channel.call_all(requests), strict=True):
            await reply
            taken.append(mark)
    except ChannelClosed as error:
        if code_of(error) != LOCKED:
            raise refusal(error, f"declaring {marks[len(taken)]!r}") from error
    else:
        link.discard(channel)
    return taken


async def _give_up(link: Link, marks: Sequence[str]) -> None:
    if not marks:
        return
    channel = await link.channel(Hears())
    for reply in channel.call_all([commands.Queue.Delete(queue=mark) for mark in marks]):
        await reply
    link.discard(channel)
