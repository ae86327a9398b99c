"""Notes: each is a key of its own, which the server removes when its time is over (NOTE-1)."""

import math
from collections.abc import Sequence

from aqueue.backends.redis import scripts
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.link import Argument
from aqueue.backends.redis.transitions import by_place, microseconds
from aqueue.port import Answer, Note, NoteKey, Noting, Verdict

_WRITING, _READING = 0, 1
_FOR_EVER = -1


class Notes:
    """Reads and writes notes, which say `token:value`."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys

    async def read(self, keys: Sequence[NoteKey]) -> Sequence[Note | Exception]:
        """Read the notes, in a cluster each slot's in one script, else all in one."""
        if self._client.is_partitioned:
            return await by_place(keys, self._slot_of, self._read)
        return await self._read(self._slot_of(keys[0]), keys) if keys else []

    async def write(self, batch: Sequence[Noting]) -> Sequence[Answer]:
        """Write the notes with their jobs, in a cluster each slot's in one script, else all in one."""
        if self._client.is_partitioned:
            return await by_place(batch, lambda noting: self._slot_of(noting.at), self._write)
        return await self._write(self._slot_of(batch[0].at), batch) if batch else []

    async def _read(self, slot: int, keys: Sequence[NoteKey]) -> list[Note]:
        names = [self._keys.note(*at) for at in keys]
        reply = await self._client.run(_READ, names, (), slot=slot, lane=_READING)
        assert isinstance(reply, list)
        now, *said = reply
        return [_note(text, now / 1e6) for text in said]

    async def _write(self, slot: int, batch: Sequence[Noting]) -> list[Verdict]:
        names: list[bytes] = []
        arguments: list[Argument] = []
        for noting in batch:
            keys = self._keys.of(noting.at.queue)
            names += (self._keys.note(*noting.at), keys.pending, keys.delayed, keys.jobs)
            arguments += (keys.channel, *_arguments(noting))
        reply = await self._client.run(_WRITE, names, arguments, slot=slot, lane=_WRITING)
        assert isinstance(reply, list)
        return [Verdict.SETTLED if written else Verdict.STALE for written in reply]

    def _slot_of(self, at: NoteKey) -> int:
        return self._keys.of(at.queue).slot


def _note(text: bytes | None, now: float) -> Note:
    if text is None:
        return Note(None, "", now)
    token, _, value = text.partition(b":")
    return Note(value, token.decode(), now)


def _arguments(noting: Noting) -> list[Argument]:
    arguments: list[Argument] = [
        noting.expected,
        noting.token,
        int(noting.value is not None),
        noting.value or b"",
        _FOR_EVER if noting.seconds is None else math.ceil(noting.seconds * 1000),
        len(noting.messages),
    ]
    for message in noting.messages:
        arguments += (message.id, microseconds(message.delay), message.payload)
    return arguments


_READ = scripts.load("notes_read")
_WRITE = scripts.load("notes_write")
