"""Middleware: functions around the handler, first one outermost (MID-1)."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument
from aqueue.queue import Queue

CallNext: TypeAlias = Callable[[Delivery], Awaitable[object]]
"""Runs the rest: `await call_next(delivery)`."""

Middleware: TypeAlias = Callable[[Delivery, CallNext], Awaitable[object]]
"""`async def m(delivery, call_next)`. One that never calls on lets the job count as returned, unhandled;
one that raises fails the attempt; one may call on more than once."""


@runtime_checkable
class Bindable(Protocol):
    """Middleware that needs the queue it works for; `RateLimit` is one."""

    def bind(self, queue: Queue) -> Middleware:
        """Return the middleware for one worker's queue; called once, when the worker is built."""


Bind: TypeAlias = Callable[[Sequence[Middleware | Bindable]], list[Middleware]]
"""Makes plain middleware of a list in which some still has to be bound to a queue."""

Chain: TypeAlias = Callable[[Delivery, CallNext], Awaitable[object]]
"""Runs all middleware around the handler given as the second argument."""


def chain(middlewares: Sequence[Middleware]) -> Chain | None:
    """Compose middleware, the first outermost; None for none, so that nothing costs nothing.

    Raises `InvalidQueueArgument` for one that can't be called.
    """
    composed: Chain | None = None
    for middleware in reversed(middlewares):
        if not callable(middleware):
            raise InvalidQueueArgument(
                f"middleware must be callable as m(delivery, call_next): {middleware!r}"
            )
        composed = middleware if composed is None else _around(middleware, composed)
    return composed


def bound_to(queue: Queue) -> Bind:
    """Return what binds middleware to this queue; it raises what binding raises."""
    return lambda middlewares: [
        each.bind(queue) if isinstance(each, Bindable) else each for each in middlewares
    ]


def unbound(middlewares: Sequence[Middleware | Bindable]) -> list[Middleware]:
    """Take middleware as it is where there is no queue; raises `InvalidQueueArgument` for what needs one."""
    for each in middlewares:
        if isinstance(each, Bindable):
            raise InvalidQueueArgument(f"{type(each).__name__} needs a queue to be bound to")
    return [each for each in middlewares if not isinstance(each, Bindable)]


def _around(outer: Middleware, inner: Chain) -> Chain:
    def composed(delivery: Delivery, handler: CallNext) -> Awaitable[object]:
        return outer(delivery, functools.partial(_call_on, inner, handler))

    return composed


def _call_on(inner: Chain, handler: CallNext, delivery: Delivery) -> Awaitable[object]:
    return inner(delivery, handler)
