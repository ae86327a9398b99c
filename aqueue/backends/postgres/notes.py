"""The verbs on notes: batches made into arrays, and rows into what the port speaks of."""

from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter

import asyncpg

from aqueue.backends._sql_forgetting import Forgetting
from aqueue.backends.postgres.jobs import payloads
from aqueue.backends.postgres.note_statements import NoteStatements
from aqueue.port import Answer, Note, NoteKey, Noting, Verdict

Fetch = Callable[..., Awaitable[list[asyncpg.Record]]]


class Notes:
    """Reads and writes notes with `fetch`; `channel` is where their jobs are announced."""

    def __init__(self, sql: NoteStatements, channel: str, fetch: Fetch) -> None:
        self._sql = sql
        self._channel = channel
        self._fetch = fetch
        self._forgetting = Forgetting()

    async def read(self, keys: Sequence[NoteKey]) -> list[Note]:
        """Read the notes in one statement."""
        rows = await self._fetch(self._sql.read, [at.queue for at in keys], [at.key for at in keys])
        return [Note(value, token or "", now) for value, token, now in rows]

    async def write(self, batch: Sequence[Noting], now: float) -> list[Answer]:
        """Write the notes in one statement, or in two where only some are expected there; see the statements.

        `now` is any clock, in seconds, that says when it is time to delete those that are over.
        """
        answers: list[Answer] = [Verdict.STALE] * len(batch)
        order = sorted(range(len(batch)), key=lambda index: batch[index].at)
        for is_there in (False, True):
            places = [index for index in order if bool(batch[index].expected) is is_there]
            if not places:
                continue
            limit = self._forgetting.due(len(places), now)
            values = arguments([batch[index] for index in places])
            rows = await self._fetch(self._sql.writes[is_there, limit > 0], self._channel, *values, limit)
            for place in map(itemgetter(0), rows):
                answers[places[place - 1]] = Verdict.SETTLED
        return answers


def arguments(batch: Sequence[Noting]) -> tuple[object, ...]:
    """Return the arrays that write a batch."""
    jobs = [(place, message) for place, noting in enumerate(batch, 1) for message in noting.messages]
    return (
        [noting.at.queue for noting in batch],
        [noting.at.key for noting in batch],
        [noting.expected for noting in batch],
        [noting.token for noting in batch],
        *payloads([noting.value or b"" for noting in batch]),
        [_lasts(noting) for noting in batch],
        [str(place) for place, _ in jobs],
        [message.id for _, message in jobs],
        *payloads([message.payload for _, message in jobs]),
        [str(message.delay) for _, message in jobs],
    )


def _lasts(noting: Noting) -> str:
    if noting.value is None:
        return "over"
    return "" if noting.seconds is None else str(noting.seconds)
