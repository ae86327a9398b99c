"""Unique pushes: one job at a time about one thing, decided in the store (UNIQUE-1).

While a key is taken, a push of the same key stores nothing and returns the id of the job that has it. A note
beside the queue says which one that is; it is written in one step with the job, so no two pushes can both
find the key free, and no key is taken by a job that is not there. The envelope's metadata names the note, so
whoever settles the job can free the key, and needs to know nothing of the job's class.
"""

from aqueue.contract.names import check_job_id
from aqueue.contract.unique import Claim, Until, key_to_free
from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument
from aqueue.notes import Change, Decision, Leave, Note, Notes
from aqueue.port import Message


class Claims:
    """The keys that jobs of a queue's store have taken."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def check_kept(self) -> None:
        """Raise `NotesMissing` on a store without notes."""
        self._notes.check_kept()

    async def push(self, message: Message, claim: Claim) -> str:
        """Store the message if its key is free, and return the id of the job that has the key now.

        Raises `NotesMissing` on a store without notes, else what `Notes.change` does.
        """

        def take(note: Note) -> Decision[str]:
            if note.value is not None:
                return Leave(_holder(note.value))
            value = message.id.encode()
            return Change(value=value, seconds=claim.seconds, messages=(message,), result=message.id)

        return await self._notes.change(message.queue, claim.key, take)

    async def free(self, delivery: Delivery, until: Until) -> None:
        """Free the key of a job for which this is the moment, if it has one and still holds it.

        It comes before the settlement: a crash between the two leaves a free key and a job that runs again,
        instead of a key that nobody holds.
        """
        key = key_to_free(delivery.envelope.metadata, until)
        if key is not None:
            await self._notes.change(delivery.queue, key, lambda note: _freed(note, delivery.id))


def _freed(note: Note, id: str) -> Decision[None]:
    if note.value is None or note.value != id.encode():
        return Leave(None)
    return Change(value=None, result=None)


def _holder(value: bytes) -> str:
    try:
        return check_job_id(value.decode())
    except UnicodeDecodeError:
        raise InvalidQueueArgument("the note of a unique key does not name a job") from None
