"""The names of the keys. All of one queue's share a hash tag, so that they share a slot of a cluster."""

from typing import NamedTuple

from redis.crc import key_slot


class QueueKeys(NamedTuple):
    """The keys of one queue.

    * `pending`: a list of entries, `id:since`, the 16-digit microsecond since when it is ready; head first
    * `delayed`: a sorted set of ids by the time they are due
    * `leased`: a sorted set of receipts, `id:since:token` with 20 characters of token, by the lease's end
    * `jobs`: a hash of the sealed bytes by id; an id is held while it is here (PUSH-10)
    * `counts`: a hash of `attempts:lost` by id, for the few jobs that have any
    * `failed`, `failed_order`, `failed_names`: the failed jobs, see `lua/records.lua`
    * `channel`: where arrivals on an empty queue are announced
    * `note:…`: what a note says after its token and a colon; see `KeySpace.note`
    * `scratch`: three keys that exist only while a script runs
    """

    pending: bytes
    delayed: bytes
    leased: bytes
    jobs: bytes
    counts: bytes
    failed: bytes
    failed_order: bytes
    failed_names: bytes
    channel: bytes
    scratch: tuple[bytes, bytes, bytes]
    slot: int


class KeySpace:
    """The keys of all queues under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._queues: dict[str, QueueKeys] = {}
        self.registry = f"{prefix}:queues-with-failed-jobs".encode()
        """A set of queue names. It may name queues without failed jobs, and never misses one with some."""
        self.around_a_name = (f"{prefix}:{{".encode(), b"}:")
        """What stands before and after a queue's name in each of its keys."""

    def of(self, queue: str) -> QueueKeys:
        """Return the queue's keys."""
        keys = self._queues.get(queue)
        if keys is None:
            keys = self._queues[queue] = _made(f"{self._prefix}:{{{queue}}}:")
        return keys

    def note(self, queue: str, key: str) -> bytes:
        """Return the key of a note beside the queue's jobs."""
        return f"{self._prefix}:{{{queue}}}:note:{key}".encode()


def _made(stem: str) -> QueueKeys:
    def key(name: str) -> bytes:
        return (stem + name).encode()

    return QueueKeys(
        pending=key("pending"),
        delayed=key("delayed"),
        leased=key("leased"),
        jobs=key("jobs"),
        counts=key("counts"),
        failed=key("failed"),
        failed_order=key("failed-order"),
        failed_names=key("failed-names"),
        channel=key("arrivals"),
        scratch=(key("clearing-jobs"), key("clearing-counts"), key("clearing-old")),
        slot=slot_of(key("pending")),
    )


def slot_of(key: bytes) -> int:
    """Return the slot of a cluster that the key lives in."""
    return key_slot(key)
