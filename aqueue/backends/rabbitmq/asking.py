"""Requests about what there is in the broker, on channels that messages have no part in.

The broker answers a mistake by closing the channel it was made on, so a question whose answer may be "not
found" has a channel of its own.
"""

from collections.abc import Iterable, Sequence

from aiormq.exceptions import ChannelClosed
from pamqp import base, commands

from aqueue.backends.rabbitmq import names as naming
from aqueue.backends.rabbitmq.channel import Channel, Hears, code_of
from aqueue.backends.rabbitmq.link import Link
from aqueue.backends.rabbitmq.troubles import NOT_FOUND, dropping, refusal


class Asking:
    """Asks on one connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._channel: Channel | None = None

    async def ask(self, requests: Sequence[base.Frame], what: str) -> list[base.Frame]:
        """Return the replies to requests that should succeed; raise `Refused` where the broker says no."""
        with dropping(self.link):
            if self._channel is None or not self._channel.is_open:
                self._channel = await self.link.channel(Hears())
            await self.link.ready()
            replies = self._channel.call_all(requests)
            try:
                return [await reply for reply in replies]
            except ChannelClosed as error:
                raise refusal(error, what) from error

    async def counts(self, names: Sequence[str]) -> list[int]:
        """Return how many messages these queues have ready, up to the first that isn't there."""
        return counted(await self._ask_until_missing([naming.passive(name) for name in names]))

    async def purge(self, names: Sequence[str]) -> int:
        """Throw away what these queues have ready, in this order; return how many messages that were."""
        return sum(counted(await self._ask_until_missing([naming.purge(name) for name in names])))

    async def _ask_until_missing(self, requests: Sequence[base.Frame]) -> list[base.Frame]:
        answers: list[base.Frame] = []
        with dropping(self.link):
            channel = await self.link.channel(Hears())
            try:
                for reply in channel.call_all(requests):
                    answers.append(await reply)  # noqa: PERF401 - those before an error count
            except ChannelClosed as error:
                if code_of(error) != NOT_FOUND:
                    raise refusal(error, "asking about a queue") from error
            else:
                self.link.discard(channel)
        return answers


def counted(replies: Iterable[base.Frame]) -> list[int]:
    """Return the number of messages in each reply that has one."""
    kinds = commands.Queue.DeclareOk | commands.Queue.PurgeOk
    return [reply.message_count or 0 for reply in replies if isinstance(reply, kinds)]
