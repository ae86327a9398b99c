"""Sending: batches of ten, side by side, each of them sent once (PUSH-3, PUSH-4)."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from aqueue.backends.sqs.bodies import MOST_BYTES, Body, body_of
from aqueue.backends.sqs.places import Places
from aqueue.backends.sqs.troubles import Unanswered, entry_trouble
from aqueue.errors import UnserializableJob
from aqueue.port import Message, Stored

MOST_ENTRIES = 10


class _Parcel(NamedTuple):
    """A message's position among those of its verb, and what is sent of it."""

    position: int
    body: Body


class Sending:
    """Stores messages, whatever their queues."""

    def __init__(self, places: Places) -> None:
        self._places = places

    async def push(self, batch: Sequence[Message]) -> list[Stored]:
        """Store each message; what went wrong with some is answered for these alone."""
        stored: list[Stored] = [None] * len(batch)
        queues: dict[str, list[_Parcel]] = {}
        for position, message in enumerate(batch):
            queues.setdefault(message.queue, []).append(_Parcel(position, body_of(message)))
        await asyncio.gather(*(self._push_to(queue, parcels, stored) for queue, parcels in queues.items()))
        return stored

    async def _push_to(self, queue: str, parcels: Sequence[_Parcel], stored: list[Stored]) -> None:
        try:
            most = (await self._places.of(queue)).most_bytes
        except Exception as error:  # noqa: BLE001 - it concerns this queue's messages, and no other's
            for parcel in parcels:
                stored[parcel.position] = error
            return
        fit = [parcel for parcel in parcels if parcel.body.size <= most]
        for parcel in parcels:
            if parcel.body.size > most:
                stored[parcel.position] = UnserializableJob(
                    f"the job takes {parcel.body.size} bytes with its attribute, and the queue {queue!r} "
                    f"holds at most {most} in a message: push a reference to the data instead"
                )
        await asyncio.gather(*(self._send(queue, batch, stored) for batch in _batches(fit)))

    async def _send(self, queue: str, parcels: Sequence[_Parcel], stored: list[Stored]) -> None:
        entries = [{"Id": str(parcel.position), **parcel.body.entry} for parcel in parcels]
        try:
            reply = await self._places.call(queue, "send_message_batch", Entries=entries)
        except Exception as error:  # noqa: BLE001 - it concerns this batch, and not its neighbours
            for parcel in parcels:
                stored[parcel.position] = error
            return
        told = {entry["Id"] for entry in reply.get("Successful", ())}
        troubles = {entry["Id"]: entry_trouble(entry) for entry in reply.get("Failed", ())}
        for parcel in parcels:
            id = str(parcel.position)
            if id not in told:
                stored[parcel.position] = troubles.get(id) or Unanswered("SQS did not say what became of it")


def _batches(parcels: Sequence[_Parcel]) -> list[list[_Parcel]]:
    """Cut into batches that SQS takes: ten entries, and a mebibyte in all."""
    batches: list[list[_Parcel]] = []
    size = 0
    for parcel in parcels:
        if not batches or len(batches[-1]) == MOST_ENTRIES or size + parcel.body.size > MOST_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(parcel)
        size += parcel.body.size
    return batches
