"""The jobs that the checks push, and envelopes made by hand."""

from dataclasses import dataclass

from aqueue.contract.envelope import encode_envelope
from aqueue.contract.unique import Unique
from aqueue.jobs import job
from aqueue.port import Backend, Message

NOW = 1_800_000_000.0


@job(name="contract.note")
class Note:
    """A job with a text."""

    text: str


@job(name="contract.measure")
class Measure:
    """A job with a number."""

    value: float


@job(name="contract.capped", queue="capped", max_attempts=7)
class Capped:
    """A job that names its own queue and cap."""


@job(name="contract.renamed", aliases=["contract.once-called"])
class Renamed:
    """A job whose older name stays readable."""

    text: str


@job(name="contract.once", unique=Unique())
class Once:
    """A job of which there is one of each text."""

    text: str


@dataclass(frozen=True)
class NotAJob:
    """Looks like a job, and nobody declared it one."""

    text: str


def job_id(number: int) -> str:
    """Return a valid id made from a number."""
    return f"{number:032x}"


def envelope(id: str, *, name: str = "contract.note", args: bytes = b'{"text":"hand-made"}') -> bytes:
    """Return the bytes of an envelope that no queue made."""
    return encode_envelope(id=id, name=name, pushed_at=NOW, args=args, max_attempts=None, metadata={})


async def store_raw(backend: Backend, *payloads: bytes, queue: str = "default", first: int = 1) -> list[str]:
    """Store bytes as they are, under the ids `job_id(first)` and on, and return those."""
    ids = [job_id(number) for number in range(first, first + len(payloads))]
    answers = await backend.push(
        [Message(id, queue, payload) for id, payload in zip(ids, payloads, strict=True)]
    )
    assert list(answers) == [None] * len(payloads), f"the store did not take raw bytes: {answers}"
    return ids
