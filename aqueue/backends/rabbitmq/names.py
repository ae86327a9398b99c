"""What a queue is called in the broker, and the ladder on which its delayed jobs wait.

AMQP has no delay, and a queue's messages expire at its head alone. So a queue has up to 22 tiers, of 2**21 s
down to 1 s, each a queue whose messages all owe the same wait. A delay in whole seconds is spent tier by
tier: its bits are the routing key, each tier's topic exchange lets a message in whose bit is set and sends it
on whose bit is not, and what a tier lets go falls to the exchange of the next one down, from the lowest into
the queue itself.
"""

from pamqp import base, commands

TIERS = 22
LONGEST_DELAY = 2**TIERS - 1

_LIMIT = 1_000_000  # 4.x drops a message after 20 redeliveries, and -1 drops it on 3.10


class Names:
    """The names of one place in a virtual host; `queue_type` is what its queues are declared as."""

    def __init__(self, prefix: str, queue_type: str) -> None:
        self._prefix = f"{prefix}." if prefix else ""
        self._is_quorum = queue_type == "quorum"

    @property
    def take_turns(self) -> bool:
        """Whether making such a queue takes a while, in which others must not use it."""
        return self._is_quorum

    def ready(self, queue: str) -> str:
        """The queue where its jobs wait for a worker."""
        return f"{self._prefix}{queue}"

    def failed(self, queue: str) -> str:
        """The queue where its failed jobs are set aside."""
        return f"{self._prefix}{queue}-failed"

    def tier(self, queue: str, number: int) -> str:
        """The tier, queue and exchange alike, whose messages wait 2**number seconds."""
        return f"{self._prefix}{queue}.delay.{2**number}s"

    def entrance(self, queue: str, seconds: int) -> str:
        """The exchange by which a delay enters: that of its highest bit."""
        return self.tier(queue, seconds.bit_length() - 1)

    def queue(self, name: str) -> base.Frame:
        """Return the declaration of a queue of jobs, waiting or failed."""
        arguments: dict[str, object] = {"x-queue-type": "classic"}
        if self._is_quorum:
            arguments = {"x-queue-type": "quorum", "x-delivery-limit": _LIMIT}
        return commands.Queue.Declare(queue=name, durable=True, arguments=arguments)  # type: ignore[arg-type]

    def ladder(self, queue: str, seconds: int) -> list[base.Frame]:
        """Return the declarations of the tiers that a delay needs, the lowest first: none leads nowhere."""
        requests: list[base.Frame] = [self.queue(self.ready(queue))]
        for number in range(seconds.bit_length()):
            requests += self._tier(queue, number)
        return requests

    def _tier(self, queue: str, number: int) -> list[base.Frame]:
        name = self.tier(queue, number)
        above = "*." * (TIERS - 1 - number)
        below = ".#" if number else ""
        requests: list[base.Frame] = [
            commands.Exchange.Declare(exchange=name, exchange_type="topic", durable=True),
            commands.Queue.Declare(queue=name, durable=True, arguments=self._waiting(queue, number)),  # type: ignore[arg-type]
            commands.Queue.Bind(queue=name, exchange=name, routing_key=f"{above}1{below}"),
        ]
        if number:
            lower = self.tier(queue, number - 1)
            requests.append(
                commands.Exchange.Bind(destination=lower, source=name, routing_key=f"{above}0{below}")
            )
        else:
            ready = self.ready(queue)
            requests.append(commands.Queue.Bind(queue=ready, exchange=name, routing_key=f"{above}0"))
        return requests

    def _waiting(self, queue: str, number: int) -> dict[str, object]:
        arguments: dict[str, object] = {"x-queue-type": "classic", "x-message-ttl": 1000 * 2**number}
        if self._is_quorum:
            # The default strategy drops what a crash catches between two queues.
            arguments |= {
                "x-queue-type": "quorum",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
        if number:
            return arguments | {"x-dead-letter-exchange": self.tier(queue, number - 1)}
        return arguments | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.ready(queue)}


def bits(seconds: int) -> str:
    """Return the routing key of a delay: its bits as words, the highest first."""
    return ".".join(f"{seconds:0{TIERS}b}")


def passive(name: str) -> base.Frame:
    """Return the question how many messages a queue has ready; one that isn't there is an error."""
    return commands.Queue.Declare(queue=name, passive=True)


def purge(name: str) -> base.Frame:
    """Return the order to throw away what a queue has ready."""
    return commands.Queue.Purge(queue=name)
