"""How a failed job gets back on its queue: once, however many ask for it at the same time (FAIL-2).

In one store it is one step of the store. From another store (`failed=`) it takes two, and the job comes
first, so that a crash between them can't lose it. That the two happen once is seen to by a note:

* beside the job's queue, where its store keeps notes: written in one step with the push, so that a second
  push of this failure does nothing, even after a crash;
* else beside the record, as a claim for a while: whoever didn't write it leaves the job to who did.

Where neither store keeps notes, calls of one process are told apart, and those of several may double it.
"""

import os
from contextlib import suppress

from aqueue.contract.notes import note_key
from aqueue.errors import StoreError
from aqueue.failed.pages import Pages
from aqueue.notes import Change, Decide, Leave, Note, Notes
from aqueue.port import FailedRecord, KeepsNotes, Message
from aqueue.store import Store

_KIND = "put-back"
_PUSHED = b"pushed"
_KNOWN_FOR = 3600.0
_CLAIMED_FOR = 120.0
"""Seconds: longer than two calls to stores may take."""


class Returns:
    """Puts records' jobs back from the store that keeps the records to the store that is their home."""

    def __init__(self, pages: Pages, store: Store, home: Store) -> None:
        self._pages = pages
        self._store = store
        self._home = home
        self._under_way: set[tuple[str, str]] = set()
        is_elsewhere = home is not store
        self._pushed = Notes(home) if is_elsewhere and isinstance(home.backend, KeepsNotes) else None
        self._claims = Notes(store) if is_elsewhere and isinstance(store.backend, KeepsNotes) else None

    async def put_back(self, record: FailedRecord, payload: bytes) -> bool:
        """Put the job back with this payload and remove the record; True for the one call that did.

        Cancelling the caller abandons only its waiting: what was begun is done whole.
        """
        message = Message(record.id, record.queue, payload)
        if self._home is self._store:
            keeper = self._pages.keeper()
            return await self._store.run("retry", lambda: keeper.failed_retry(record, message))
        place = (record.queue, record.id)
        if place in self._under_way:
            return False
        self._under_way.add(place)
        return await self._home.run_through(self._move(record, message))

    async def _move(self, record: FailedRecord, message: Message) -> bool:
        try:
            if self._pushed is not None:
                return await self._push_with_note(self._pushed, record, message)
            if self._claims is not None:
                return await self._push_under_claim(self._claims, record, message)
            await self._push(message)
            return await self._discard(record)
        finally:
            self._under_way.discard((record.queue, record.id))

    async def _push_with_note(self, notes: Notes, record: FailedRecord, message: Message) -> bool:
        def decide(note: Note) -> Change[bool] | Leave[bool]:
            if note.value is not None:
                return Leave(False)
            return Change(value=_PUSHED, seconds=_KNOWN_FOR, messages=(message,), result=True)

        is_ours = await notes.change(record.queue, _key(record), decide)
        await self._discard(record)
        return is_ours

    async def _push_under_claim(self, notes: Notes, record: FailedRecord, message: Message) -> bool:
        mine = os.urandom(16)
        found = await notes.change(record.queue, _key(record), _claim(mine))
        if found == _PUSHED:
            await self._discard(record)
        if found is not None:
            return False
        try:
            await self._push(message)
        except Exception:  # it came to nothing, or nobody knows: whoever wants may try again at once
            await self._turn_claim(notes, record, mine, into=None)
            raise
        try:
            await self._discard(record)  # it may be gone: the job has run and failed anew meanwhile
        except Exception:
            await self._turn_claim(notes, record, mine, into=_PUSHED)
            raise
        return True

    async def _turn_claim(
        self, notes: Notes, record: FailedRecord, mine: bytes, *, into: bytes | None
    ) -> None:
        """Say what became of a claim; if that fails it ends by itself, and the first error is raised."""

        def decide(note: Note) -> Change[None] | Leave[None]:
            is_ours = note.value == mine
            return Change(value=into, seconds=_KNOWN_FOR, result=None) if is_ours else Leave(None)

        with suppress(StoreError):
            await notes.change(record.queue, _key(record), decide)

    async def _push(self, message: Message) -> None:
        stored = await self._home.run("push", lambda: self._home.backend.push([message]))
        if stored[0] is not None:
            raise self._home.translated(stored[0], "push", message.id)

    async def _discard(self, record: FailedRecord) -> bool:
        keeper = self._pages.keeper()
        return await self._store.run("discard", lambda: keeper.failed_discard(record))


def _claim(mine: bytes) -> Decide[bytes | None]:
    """Write the claim and answer None, or answer what is there already."""

    def decide(note: Note) -> Change[bytes | None] | Leave[bytes | None]:
        if note.value is not None:
            return Leave(note.value)
        return Change(value=mine, seconds=_CLAIMED_FOR, result=None)

    return decide


def _key(record: FailedRecord) -> str:
    """Name this failure: the same job's next one has another delivery."""
    return note_key(_KIND, record.id, record.delivery, repr(record.failed_at))
