"""Chains: jobs that follow each other, and how those to come travel with the one before them (CHAIN-1).

A step that waits for its turn is closed already, as any stored job is: sealed, and encrypted where that is
asked for. All of a chain's ids follow from its first, so that whoever pushes a step twice pushes one job.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from aqueue.contract.names import check_job_id, check_queue_name
from aqueue.errors import InvalidQueueArgument, JobReconstructionError

CHAIN_KEY = "aqueue.chain"
"""The metadata key of the steps that follow a job."""

BATCH_KEY = "aqueue.batch"
"""The metadata key of the batch that a job is counted in, and as which of its members."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A job whose turn is to come: its id, where it goes, with what delay in seconds, and its bytes."""

    id: str
    queue: str
    delay: float
    payload: bytes

    def __repr__(self) -> str:
        return f"Step({self.id!r}, {self.queue!r}, <{len(self.payload)} bytes>)"


def step_id(first: str, number: int) -> str:
    """Return the id of a chain's job by its number, from 0 for the first, whose id is the chain's.

    Raises `InvalidQueueArgument` for anything but a chain's id and a whole number from 0.
    """
    check_job_id(first)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidQueueArgument(f"a step's number is a whole number from 0, not {number!r}")
    return first if number == 0 else derived_id("chain", first, str(number))


def derived_id(*parts: str) -> str:
    """Return the id that follows from these texts."""
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def steps_text(steps: Sequence[Step]) -> str:
    """Return what travels in the metadata."""
    return msgspec.json.encode(steps).decode()


def steps_in(metadata: Mapping[str, str]) -> tuple[Step, ...]:
    """Return the steps that follow a job; raises `JobReconstructionError` where they can't be read."""
    text = metadata.get(CHAIN_KEY)
    if text is None:
        return ()
    try:
        steps = msgspec.json.decode(text, type=tuple[Step, ...])
        for step in steps:
            check_job_id(step.id)
            check_queue_name(step.queue)
    except (msgspec.MsgspecError, ValueError) as error:
        raise JobReconstructionError("the steps that follow this job can't be read") from error
    return steps
