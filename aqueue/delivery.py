"""A delivery: one hand-out of a job to one worker."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import msgspec

from aqueue.contract.envelope import Envelope
from aqueue.contract.occurrence import Occurrence, occurrence_in
from aqueue.contract.results import standing_at
from aqueue.errors import JobReconstructionError
from aqueue.jobs import job_type
from aqueue.port import Receipt, Reserved
from aqueue.progress import Reporter

T = TypeVar("T")


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """What `pop` hands out; settle it with the queue it came from. Nothing in it can be changed.

    `reserved` is the port's record of this hand-out, `envelope` what of the job never changes.
    """

    reserved: Reserved
    envelope: Envelope
    _args: dict[str, Any] | None = None
    _reporter: Reporter | None = None

    def __repr__(self) -> str:
        return f"<Delivery {self.name} {self.id} on {self.queue!r}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """The job's id, the same through every retry and re-drive (PUSH-9)."""
        return self.envelope.id

    @property
    def name(self) -> str:
        """The job's wire name."""
        return self.envelope.name

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as plain JSON, decoded when first read; raises `JobReconstructionError`."""
        if self._args is not None:
            return self._args
        try:
            args: dict[str, Any] = msgspec.json.decode(self.envelope.args)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise JobReconstructionError(f"the arguments of job {self.name} are not JSON") from error
        msgspec.structs.force_setattr(self, "_args", args)
        return args

    def job(self, job_class: type[T]) -> T:
        """Return the job as this class; raises `JobReconstructionError` where it doesn't fit (ARG-5)."""
        declared = job_type(job_class)
        if self.name != declared.name and self.name not in declared.aliases:
            raise JobReconstructionError(f"this delivery holds a {self.name}, not a {declared.name}")
        return cast("T", declared.restore(self.raw_args))

    @property
    def raw_args(self) -> bytes:
        """The arguments as the JSON bytes that were pushed."""
        return bytes(self.envelope.args)

    @property
    def queue(self) -> str:
        """The queue it was taken from."""
        return self.reserved.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1 (ATT-1)."""
        return self.reserved.attempt

    @property
    def lost(self) -> int:
        """How many leases ran out since the last counted settlement (ATT-3)."""
        return self.reserved.lost

    @property
    def max_attempts(self) -> int | None:
        """The job's own cap, or None where the worker's default decides (ATT-2)."""
        return self.envelope.max_attempts

    @property
    def pushed_at(self) -> datetime:
        """When it was pushed, in UTC, by the pushing process's clock."""
        return datetime.fromtimestamp(self.envelope.pushed_at, UTC)

    @property
    def metadata(self) -> Mapping[str, str]:
        """What travels beside the arguments: the trace context and the like."""
        return self.envelope.metadata

    @property
    def occurrence(self) -> Occurrence | None:
        """The time of a schedule that it was pushed for, None for an ordinary job (OCC-1).

        Raises `JobReconstructionError` for one that can't be read.
        """
        return occurrence_in(self.envelope.metadata)

    async def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the job is, from 0 to 1, for `queue.progress(id)`; written now and then (RESULT-2).

        For a job whose results aren't kept nothing is written. Raises `InvalidQueueArgument`, and nothing
        that the store may raise.
        """
        standing = standing_at(fraction, text, self.attempt)
        if self._reporter is not None:
            await self._reporter.tell(standing)

    def report_to(self, reporter: Reporter) -> None:
        """Have `progress` tell this; the queue calls it before an attempt."""
        msgspec.structs.force_setattr(self, "_reporter", reporter)

    async def finish_reporting(self) -> None:
        """Have the last word of `progress` written; the queue calls it before it settles the job."""
        if self._reporter is not None:
            await self._reporter.finish()

    @property
    def receipt(self) -> Receipt:
        """Opaque proof of this hand-out, new each time (FENCE-1)."""
        return self.reserved.receipt

    @property
    def waited(self) -> float:
        """How long the job had been ready, in seconds by the store's clock."""
        return self.reserved.waited
