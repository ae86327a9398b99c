"""What can be known of a broker over AMQP, which is not much: its version, its alarms, its queues (DOCTOR-1).

Policies, limits and the consumer timeout can't be asked for. What a queue was declared with is learned by
declaring it again just as aqueue does, which changes nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiormq.exceptions import ChannelClosed
from pamqp import base, commands, frame
from pamqp.header import ContentHeader

from aqueue.backends.rabbitmq.channel import Hears, code_of
from aqueue.backends.rabbitmq.dialling import Dialler
from aqueue.backends.rabbitmq.link import Link
from aqueue.backends.rabbitmq.names import Names, passive
from aqueue.backends.rabbitmq.troubles import NOT_FOUND
from aqueue.port import Examination, Finding
from aqueue.port.examining import ok, problem, warning

_OLDEST = (3, 10)
_PATIENCE = 2.0
_NOWHERE = "aqueue.doctor.nobody-listens-here"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What the broker says of itself; `is_blocking` is whether it takes no messages now."""

    version: tuple[int, ...]
    is_blocking: bool
    is_quorum: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What the broker says of a queue. `differs` is why it is not declared as aqueue does, "" if it is."""

    name: str
    is_there: bool = True
    differs: str = ""
    ready: int = 0
    consumers: int = 0


async def examine(dialler: Dialler, names: Names, queues: Sequence[str], *, is_quorum: bool) -> Examination:
    """Look at the broker and the queues on a connection of their own, which an alarm may block."""
    link = await dialler.dial()
    try:
        ready = [await _queue(link, names, names.ready(queue)) for queue in queues]
        is_blocking = await _is_blocking(link)
        facts = BrokerFacts(version=link.version, is_blocking=is_blocking, is_quorum=is_quorum)
        return Examination([*judged(facts), *(each for queue in ready for each in queue_judged(queue))])
    finally:
        if link.is_blocked:
            link.abort()  # it would not even hear a goodbye
        else:
            await link.aclose()


def judged(facts: BrokerFacts) -> list[Finding]:
    """Return what the broker's facts mean."""
    return [
        _version(facts.version),
        _alarm(facts.is_blocking),
        _queue_type(is_quorum=facts.is_quorum),
        ok(
            "consumer timeout",
            "can't be seen over AMQP",
            "30 minutes unless it was changed: a job that runs longer loses its delivery and runs again; "
            "raise consumer_timeout in rabbitmq.conf above the longest job",
        ),
    ]


def queue_judged(queue: QueueFacts) -> list[Finding]:
    """Return what a queue's facts mean."""
    check = f"queue {queue.name}"
    if not queue.is_there:
        return [ok(check, "not there", "it is declared when it is first used")]
    if queue.differs:
        meaning = "aqueue's own declaration is refused, and with it every use of the queue"
        advice = "set queue_type= in the URL to what the queue is, or delete it once it is empty"
        return [problem(check, queue.differs, meaning, advice)]
    found = f"{queue.ready} ready, {queue.consumers} consumers"
    if queue.ready and not queue.consumers:
        return [warning(check, found, "jobs wait and nobody consumes", "start a worker for this queue")]
    return [ok(check, found, "declared as aqueue does, the delivery limit included")]


def _version(version: tuple[int, ...]) -> Finding:
    found = f"RabbitMQ {'.'.join(map(str, version)) or 'unknown'}"
    if version and version < _OLDEST:
        return problem("version", found, "delays on quorum queues need 3.10", "upgrade the broker")
    return ok("version", found)


def _alarm(is_blocking: bool) -> Finding:
    if not is_blocking:
        return ok("alarms", "none", "the broker takes messages")
    meaning = "the broker is low on memory or disk and takes no messages: every push waits, then fails"
    return problem("alarms", "blocked", meaning, "see `rabbitmq-diagnostics alarms`")


def _queue_type(*, is_quorum: bool) -> Finding:
    if is_quorum:
        return ok("queue type", "quorum", "replicated where the broker is a cluster")
    meaning = "each queue is on one node, and with it its jobs; hand-outs that were lost are not counted"
    return warning("queue type", "classic", meaning, "use queue_type=quorum, the default")


async def _queue(link: Link, names: Names, name: str) -> QueueFacts:
    """Ask for the queue, then declare it again; that would make one that was deleted in between."""
    asked = await _asked(link, passive(name))
    if isinstance(asked, ChannelClosed):
        if code_of(asked) == NOT_FOUND:
            return QueueFacts(name=name, is_there=False)
        return QueueFacts(name=name, differs=_words(asked))
    declared = await _asked(link, names.queue(name))
    if isinstance(declared, ChannelClosed):
        return QueueFacts(name=name, differs=_words(declared))
    assert isinstance(asked, commands.Queue.DeclareOk)
    return QueueFacts(name=name, ready=asked.message_count or 0, consumers=asked.consumer_count or 0)


async def _asked(link: Link, request: base.Frame) -> base.Frame | ChannelClosed:
    """Return the reply, or the error with which the broker closed the channel that it was asked on."""
    channel = await link.channel(Hears())
    try:
        reply = await channel.call(request)
    except ChannelClosed as error:
        return error
    link.discard(channel)
    return reply


async def _is_blocking(link: Link) -> bool:
    """Find out whether the broker takes messages: it says so only to who publishes.

    What is published has no queue to go to, so the broker drops it. One that blocks answers nothing after it.
    """
    channel = await link.channel(Hears())
    publish = commands.Basic.Publish(exchange="", routing_key=_NOWHERE)
    header = ContentHeader(body_size=0, properties=commands.Basic.Properties())
    parts = (publish, header, commands.Basic.Qos(prefetch_count=1))
    answered = channel.send(b"".join(frame.marshal(part, channel.number) for part in parts))
    await asyncio.wait({answered}, timeout=_PATIENCE)
    if not answered.done():
        return True
    answered.result()
    return link.is_blocked


def _words(error: ChannelClosed) -> str:
    """Return what the broker said, without what it says first: its code in capitals."""
    text = str(error.args[1]) if len(error.args) > 1 else str(code_of(error))
    return text.partition(" - ")[2] or text
