"""Topics: one publish, and every subscribed queue gets a copy of the job (TOPIC-1).

A topic is no place in the store; it is a name for a list of queues, known to whoever publishes. Each copy is
a job like any other from then on: its own id, attempts, delays and failure, on a queue that its own workers
may serve, with handlers of their own (`handlers.on(Job, queue=…)`, TOPIC-2).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Self

from aqueue.contract.names import check_queue_name, check_topic_name
from aqueue.errors import InvalidQueueArgument, UnknownTopic
from aqueue.queue import Queue


class Subscriptions:
    """Which queues get what is published to which topic.

    A plain registry: it opens nothing and asks no store. Every `Topic` over it sees what is subscribed
    later, too, for what it publishes from then on.
    """

    def __init__(self) -> None:
        self._queues: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<Subscriptions {self._queues}>"

    def subscribe(self, topic: str, queue: str) -> Self:
        """Have the queue get a copy of each job published to the topic; returns itself, to go on.

        Both names follow NAME-1. Raises `InvalidQueueArgument` for a bad name, and for a queue that
        subscribes to this topic already.
        """
        check_topic_name(topic)
        check_queue_name(queue)
        subscribed = self._queues.get(topic, ())
        if queue in subscribed:
            raise InvalidQueueArgument(f"queue {queue!r} subscribes to topic {topic!r} already")
        self._queues[topic] = (*subscribed, queue)
        return self

    @property
    def topics(self) -> Mapping[str, tuple[str, ...]]:
        """Every topic and the queues that subscribe to it, in order of subscription; it can't be changed."""
        return MappingProxyType(self._queues)

    def queues(self, topic: str) -> tuple[str, ...]:
        """Return the queues that subscribe to the topic; raises `UnknownTopic` where there are none."""
        check_topic_name(topic)
        if topic not in self._queues:
            known = ", ".join(sorted(self._queues)) or "none"
            raise UnknownTopic(f"nobody subscribes to topic {topic!r}; topics with subscribers: {known}")
        return self._queues[topic]


class Topic:
    """Publishes jobs to topics through a queue; it holds no state, so one serves a whole program."""

    def __init__(self, queue: Queue, subscriptions: Subscriptions) -> None:
        self._queue = queue
        self._subscriptions = subscriptions

    async def publish(
        self,
        job: object,
        topic: str,
        *,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        connection: object | None = None,
    ) -> None:
        """Store a copy of the job on every queue that subscribes to the topic (TOPIC-1).

        It returns once the store holds all of them. The arguments are those of `Queue.push`, and are
        checked, like the job itself, before anything is sent. Where `queue.capabilities.atomic_push` says
        so, and with `connection`, which writes inside the caller's own transaction, the copies are one act:
        all of them or none. Elsewhere `PublishManyError.queues` tells which queues got theirs.

        Raises `UnknownTopic` where nobody subscribes, with nothing sent, and else what `push` raises.
        Cancelling withdraws all copies, or leaves all to be stored, where they are one act.
        """
        await self._queue.push_copies(
            job,
            self._subscriptions.queues(topic),
            delay=delay,
            at=at,
            max_attempts=max_attempts,
            connection=connection,
        )
