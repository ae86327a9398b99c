"""An occurrence: the one time of a schedule that a job was pushed for (OCC-1)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

import msgspec

from aqueue.errors import JobReconstructionError

OCCURRENCE_KEY = "aqueue.occurrence"
"""The metadata key under which an occurrence travels, sealed with the rest of the envelope."""

_Due = Annotated[datetime, msgspec.Meta(tz=True)]


class Occurrence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One time of a schedule: it names the execution, whatever deliveries its job takes.

    `due_at` is in UTC. `fingerprint` changes with the schedule's expression or zone. `trigger` is "" for a
    time that came by itself, and for a job pushed by hand the id of that job.
    """

    schedule: str
    due_at: _Due
    fingerprint: str
    trigger: str = ""


def occurrence_at(schedule: str, due: float, fingerprint: str, *, trigger: str = "") -> Occurrence:
    """Return the occurrence of a schedule at a time, in seconds since the epoch."""
    at = datetime.fromtimestamp(due, UTC)
    return Occurrence(schedule=schedule, due_at=at, fingerprint=fingerprint, trigger=trigger)


def job_id_of(occurrence: Occurrence, queue: str) -> str:
    """Return the id of the job for this occurrence on a queue: the same one whoever pushes it, and when."""
    parts = ("schedule", queue, occurrence.schedule, occurrence.due_at.isoformat(), occurrence.trigger)
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def written(occurrence: Occurrence) -> str:
    """Return what travels in the metadata."""
    return msgspec.json.encode(occurrence).decode()


def occurrence_in(metadata: Mapping[str, str]) -> Occurrence | None:
    """Return the occurrence a job was pushed for, None for an ordinary job.

    Raises `JobReconstructionError` for one that can't be read, so that its job is not run as an ordinary one.
    """
    text = metadata.get(OCCURRENCE_KEY)
    if text is None:
        return None
    try:
        occurrence = msgspec.json.decode(text, type=Occurrence)
    except (msgspec.MsgspecError, ValueError) as error:
        raise JobReconstructionError("the occurrence that this job was pushed for can't be read") from error
    return msgspec.structs.replace(occurrence, due_at=occurrence.due_at.astimezone(UTC))
