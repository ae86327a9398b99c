"""What failed jobs carry: a seal is checked before anything is read, and made anew for changes (SIGN-2)."""

import msgspec

from aqueue.contract.envelope import Envelope, Malformed
from aqueue.errors import AqueueError, JobReconstructionError
from aqueue.port import FailedRecord
from aqueue.sealing import CloseEnvelope, OpenEnvelope


class Payloads:
    """Opens records' payloads, and makes the payload of a job that was edited."""

    def __init__(self, open_envelope: OpenEnvelope, close_envelope: CloseEnvelope) -> None:
        self._open = open_envelope
        self._close = close_envelope

    def verified(self, record: FailedRecord) -> Envelope:
        """Return what the record's job carries; raise `JobReconstructionError` where that isn't certain."""
        try:
            envelope = self._open(record.payload)
            if envelope.id != record.id:
                raise Malformed("the envelope belongs to another job than its record")
        except AqueueError as error:
            raise JobReconstructionError(
                f"failed job {record.id} can't be put back: {error}; it stays in the failed store"
            ) from error
        return envelope

    def readable(self, record: FailedRecord) -> Envelope | None:
        """Return what can be shown, if anything: one unreadable record must not hide the others."""
        try:
            envelope = self._open(record.payload)
            msgspec.json.decode(envelope.args)
        except (AqueueError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return envelope

    def with_args(self, envelope: Envelope, args: bytes, metadata: dict[str, str]) -> bytes:
        """Return the payload of the same job, same id and time, with other arguments."""
        changed = msgspec.structs.replace(envelope, args=msgspec.Raw(args), metadata=metadata)
        return self._close(changed)
