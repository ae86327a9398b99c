"""Where messages go: to their queue at once, up the ladder for a delay, or aside as failed."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from aqueue.backends.rabbitmq import names as naming
from aqueue.backends.rabbitmq import wire
from aqueue.backends.rabbitmq.declaring import Declarations
from aqueue.backends.rabbitmq.dialling import Line
from aqueue.backends.rabbitmq.names import Names
from aqueue.backends.rabbitmq.publishing import Publisher
from aqueue.backends.rabbitmq.wire import Letter
from aqueue.errors import PublishNotConfirmed
from aqueue.port import FailedRecord, Stored


class Posting(NamedTuple):
    """A job to be stored: on its queue, after a delay in seconds, with the counters it has by now."""

    id: str
    queue: str
    payload: bytes
    delay: float = 0.0
    attempts: int = 0
    lost: int = 0


class Outbox:
    """Stores messages on the connection for publishing, which the broker may block without blocking acks.

    What goes up a ladder has a channel of its own: if somebody deleted the ladder, publishing to it closes
    the channel, and only other delayed jobs may have been on it.
    """

    def __init__(
        self, line: Line, names: Names, *, confirm_timeout: float, clock: Callable[[], float]
    ) -> None:
        self._line = line
        self._names = names
        self._clock = clock
        self._declarations = Declarations(line, names)
        self._at_once = Publisher(line, confirm_timeout=confirm_timeout)
        self._delayed = Publisher(line, confirm_timeout=confirm_timeout)
        self._addresses: dict[str, bytes] = {}

    async def post(self, postings: Sequence[Posting]) -> list[Stored]:
        """Store each job and say what became of it, in order (PUSH-3)."""
        if not any(posting.delay for posting in postings):
            return await self._post_ready(postings)
        at_once = [place for place, posting in enumerate(postings) if not posting.delay]
        later = [place for place, posting in enumerate(postings) if posting.delay]
        answers: list[Stored] = [None] * len(postings)
        for places, post in ((at_once, self._post_ready), (later, self._post_delayed)):
            for place, answer in zip(places, await _each(post, [postings[p] for p in places]), strict=True):
                answers[place] = answer
        return answers

    async def set_aside(self, records: Sequence[FailedRecord]) -> list[Stored]:
        """Store each record on its queue's own failed queue, stamped with our time (FAIL-1)."""
        now = self._clock()
        await self._declarations.ensure({self._names.failed(record.queue) for record in records})
        letters = [
            Letter(
                self._address(self._names.failed(record.queue)),
                record.id,
                written(msgspec.structs.replace(record, failed_at=now)),
                record.attempts,
                record.lost,
                int(now * 1000),
            )
            for record in records
        ]
        answers = await self._at_once.publish(letters)
        self._forget_unconfirmed([record.queue for record in records], answers)
        return answers

    async def _post_ready(self, postings: Sequence[Posting]) -> list[Stored]:
        await self._declarations.ensure({self._names.ready(posting.queue) for posting in postings})
        now = int(self._clock() * 1000)
        letters = [
            Letter(
                self._address(self._names.ready(posting.queue)),
                posting.id, posting.payload, posting.attempts, posting.lost, now,
            )
            for posting in postings
        ]  # fmt: skip
        answers = await self._at_once.publish(letters)
        self._forget_unconfirmed([posting.queue for posting in postings], answers)
        return answers

    async def _post_delayed(self, postings: Sequence[Posting]) -> list[Stored]:
        longest: dict[str, int] = {}
        for posting in postings:
            longest[posting.queue] = max(longest.get(posting.queue, 0), _whole(posting.delay))
        for queue, seconds in longest.items():
            await self._declarations.ensure_ladder(queue, seconds)
        now = self._clock()
        letters = [self._delayed_letter(posting, _whole(posting.delay), now) for posting in postings]
        answers = await self._delayed.publish(letters)
        self._forget_unconfirmed([posting.queue for posting in postings], answers)
        return answers

    def _delayed_letter(self, posting: Posting, seconds: int, now: float) -> Letter:
        address = wire.address(self._names.entrance(posting.queue, seconds), naming.bits(seconds))
        due = int((now + seconds) * 1000)
        return Letter(address, posting.id, posting.payload, posting.attempts, posting.lost, due)

    def _address(self, name: str) -> bytes:
        address = self._addresses.get(name)
        if address is None:
            address = self._addresses[name] = wire.address("", name)
        return address

    def _forget_unconfirmed(self, queues: Sequence[str], answers: Sequence[Stored]) -> None:
        """Perhaps somebody has deleted what the message was sent to: it is declared before the next one."""
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, PublishNotConfirmed):
                self._declarations.forget(queue)


def written(record: FailedRecord) -> bytes:
    """Return a record as a message's body: a line of JSON about it, then its payload byte for byte."""
    about = msgspec.structs.replace(record, payload=b"")
    return msgspec.json.encode(about) + b"\n" + record.payload


def recorded(body: bytes) -> FailedRecord | None:
    """Return the record that a body holds, or None where nobody wrote one there."""
    about, line_end, payload = body.partition(b"\n")
    if not line_end:
        return None
    try:
        record = msgspec.json.decode(about, type=FailedRecord)
    except msgspec.MsgspecError:
        return None
    return msgspec.structs.replace(record, payload=payload)


async def _each(
    post: Callable[[Sequence[Posting]], Awaitable[list[Stored]]], postings: Sequence[Posting]
) -> list[Stored]:
    """Let an error of one half of a batch be the answer to that half alone."""
    if not postings:
        return []
    try:
        return await post(postings)
    except Exception as error:  # noqa: BLE001 - it is handed on, to those whom it concerns
        return [error] * len(postings)


def _whole(delay: float) -> int:
    """Return the delay in the ladder's unit; a delay is a floor, so it is never cut (DELAY-1)."""
    return math.ceil(delay)
