"""What a worker tells about each delivery, once it is settled (WORK-4, WORK-5).

Events are facts about the past: nothing that a listener does, raises or waits for changes what they say.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import anyio

from aqueue.contract.envelope import REDACTED, redacted_by_metadata
from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument, Settlement, StaleDelivery
from aqueue.jobs import JobType

_log = logging.getLogger("aqueue.worker")
_LONGEST_LISTENER = 10.0


class Outcome(StrEnum):
    """How one delivery ended. LOST means its settlement was refused: it belongs to somebody else by now."""

    ACKED = "acked"
    RELEASED = "released"
    FAILED = "failed"
    LOST = "lost"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """What every event carries. `duration` is in seconds; `args` have `Sensitive` values redacted."""

    id: str
    name: str
    queue: str
    attempt: int
    duration: float
    args: Mapping[str, Any]
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(JobEvent):
    """The handler returned and the job is acked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(JobEvent):
    """The job waits again, for `delay` seconds; `counted` says whether this was an attempt."""

    delay: float
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    """The job was set aside with this reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettlementLost(JobEvent):
    """The settlement was refused: the lease had passed on. `error` is the job's own, if it raised one."""

    operation: Settlement
    stale: StaleDelivery


Event = TypeVar("Event", bound=JobEvent)
Listener: TypeAlias = Callable[[Any], Awaitable[object] | object]


class Listeners:
    """Who wants to know of which event. A throwing listener is logged, a slow one left behind after 10 s."""

    def __init__(self) -> None:
        self._listeners: dict[type[JobEvent], list[Listener]] = {}

    def add(self, event: type[Event], listener: Callable[[Event], Awaitable[object] | object]) -> None:
        """Call `listener`, sync or async, with each event of this type."""
        if not (isinstance(event, type) and issubclass(event, JobEvent)) or not callable(listener):
            raise InvalidQueueArgument("listen(EventType, fn) takes an event class and a function")
        self._listeners.setdefault(event, []).append(listener)

    def wants(self, event: type[JobEvent]) -> bool:
        """Say whether anybody listens, so that no event is made for nobody."""
        return bool(self._listeners) and (event in self._listeners or JobEvent in self._listeners)

    async def tell(self, event: JobEvent) -> None:
        """Call every listener of the event in order, whatever the others do."""
        for listener in (*self._listeners.get(type(event), ()), *self._listeners.get(JobEvent, ())):
            await best_effort(listener, event, what=f"a listener of {type(event).__name__}")


async def best_effort(call: Callable[..., object], *args: object, what: str) -> None:
    """Call an observer, sync or async; log what it raises and leave it behind after 10 s (WORK-4)."""
    try:
        with anyio.move_on_after(_LONGEST_LISTENER) as patience:
            answer = call(*args)
            if inspect.isawaitable(answer):
                await answer
        if patience.cancelled_caught:
            log_quietly(
                logging.WARNING, "%s took longer than %s s and was left behind", what, _LONGEST_LISTENER
            )
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        log_quietly(logging.ERROR, "%s raised", what, with_traceback=True)


def log_quietly(level: int, message: str, *args: object, with_traceback: bool = False) -> None:
    """Log, and ignore a logger that throws: it must not stop the worker (WORK-4)."""
    with contextlib.suppress(Exception):
        _log.log(level, message, *args, exc_info=with_traceback)


def redacted_args(delivery: Delivery, declared: JobType | None) -> Mapping[str, Any]:
    """Return the delivery's arguments fit for a log; if redaction itself fails, none of them are (WORK-5)."""
    try:
        if declared is not None:
            return declared.codec.redacted(delivery.args)
        return redacted_by_metadata(delivery.args, delivery.metadata)
    except Exception:  # noqa: BLE001 - better nothing than a secret
        return {"*": REDACTED}
