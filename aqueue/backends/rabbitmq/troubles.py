"""What the errors of the broker and the driver prove, as data, and what some should tell a person."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiormq.exceptions import AMQPChannelError, AMQPConnectionError

from aqueue.backends.rabbitmq.channel import code_of
from aqueue.backends.rabbitmq.link import Link
from aqueue.port import Fault, Faults, Refused

FAULTS: Faults = {AMQPConnectionError: Fault.UNKNOWN, AMQPChannelError: Fault.UNKNOWN, OSError: Fault.UNKNOWN}

NOT_FOUND, LOCKED = 404, 405
_REFUSALS = {
    403: "the user may not do this: it needs configure, write and read permission on aqueue's queues",
    405: "the queue is locked by another connection",
    406: "it exists with other arguments than aqueue declares (is queue_type= the same everywhere?)",
    540: "the broker can't do this",
}


def refusal(error: Exception, what: str) -> Exception:
    """Return what a closed channel proves about a request that is done whole or not, in the port's words."""
    reason = _REFUSALS.get(code_of(error))
    if reason is None:
        return error
    refused = Refused(f"{what}: {reason}")
    refused.__cause__ = error
    return refused


@contextmanager
def dropping(link: Link) -> Iterator[None]:
    """Drop the connection where what runs inside is cancelled: its upper time is over (CALL-1)."""
    try:
        yield
    except asyncio.CancelledError:
        link.abort()
        raise
