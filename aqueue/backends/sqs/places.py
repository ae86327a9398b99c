"""From a queue's name to its place in SQS, found once and remembered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aqueue.backends.sqs.bodies import MOST_BYTES
from aqueue.backends.sqs.clients import Clients
from aqueue.backends.sqs.troubles import QueueGone, is_access_denied
from aqueue.port import Refused

_LONGEST_NAME = 80
_TWO_WEEKS = str(14 * 86_400)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queue is, and how many bytes it takes in one message."""

    url: str
    most_bytes: int


class Places:
    """Queues by name, each under `prefix` and its name. `creates` makes those that are missing."""

    def __init__(self, clients: Clients, *, prefix: str, creates: bool) -> None:
        self._clients = clients
        self._prefix = prefix
        self._creates = creates
        self._known: dict[str, Place] = {}

    async def of(self, queue: str) -> Place:
        """Return the queue's place; raise `QueueGone` where there is none and none is to be made."""
        place = self._known.get(queue)
        if place is None:
            self._known[queue] = place = await self._found(queue)
        return place

    async def call(self, queue: str, operation: str, **parameters: Any) -> Any:
        """Make a call on a queue."""
        return await self._made_on(queue, partial(self._clients.call, operation, **parameters))

    async def poll(self, queue: str, **parameters: Any) -> Any:
        """Receive from a queue on the connections of those who wait."""
        return await self._made_on(queue, partial(self._clients.poll, **parameters))

    async def _made_on(self, queue: str, call: Callable[..., Awaitable[Any]]) -> Any:
        """Make a call; a queue that was deleted is made anew where that is allowed: nothing was done."""
        for is_known in (queue in self._known, False):
            place = await self.of(queue)
            try:
                return await call(QueueUrl=place.url)
            except QueueGone:
                self._known.pop(queue, None)
                if not (is_known and self._creates):
                    break
        raise self._gone(queue) from None

    async def _found(self, queue: str) -> Place:
        name = self._prefix + queue
        if len(name) > _LONGEST_NAME:
            raise Refused(
                f"the queue's name with its prefix, {name!r}, has more than {_LONGEST_NAME} letters"
            )
        try:
            reply = await self._clients.call("get_queue_url", QueueName=name)
        except QueueGone:
            if not self._creates:
                raise self._gone(queue) from None
            reply = await self._made(name)
        url = reply["QueueUrl"]
        attributes = await self._attributes(url)
        if attributes.get("FifoQueue", "false") == "true":
            raise Refused(f"{name!r} is a FIFO queue: aqueue works on standard queues")
        return Place(url, min(MOST_BYTES, int(attributes.get("MaximumMessageSize", MOST_BYTES))))

    async def _made(self, name: str) -> Any:
        """Make a queue that keeps what waits as long as SQS can; another process may have made it first."""
        try:
            attributes = {"MessageRetentionPeriod": _TWO_WEEKS}
            return await self._clients.call("create_queue", QueueName=name, Attributes=attributes)
        except Refused:
            try:
                return await self._clients.call("get_queue_url", QueueName=name)
            except QueueGone:
                pass
            raise

    async def _attributes(self, url: str) -> dict[str, str]:
        try:
            reply = await self._clients.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        except Refused as refused:
            if is_access_denied(refused):
                return {}  # a producer need not be allowed to look: SQS will tell what it doesn't take
            raise
        attributes: dict[str, str] = reply.get("Attributes", {})
        return attributes

    def _gone(self, queue: str) -> QueueGone:
        return QueueGone(
            f"there is no queue {self._prefix + queue!r} in this account and region: create it, or add "
            "create=true to the URL"
        )
