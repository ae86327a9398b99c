"""The port: what a store must do to be an aqueue backend, and nothing it need not.

Five verbs in batches, `push`, `pop`, `ack`, `release` and `fail`, each one atomic step per item in the
store; beside them `extend`, `wait`, `stats` and the opening and closing. What only some stores can do is a
small protocol of its own. A backend translates these verbs into its store's primitives and does nothing
else: no retry, no logging, no polling loop, no spans, no policy. Its driver's errors pass through raw;
`Backend.faults` says what they mean and the queue translates them once.

Two promises every verb keeps:

* An item is answered only after the store holds the change (PUSH-3).
* Cancelling a verb abandons the connection it used, never the next caller's (PUSH-11, CALL-1).
"""

from aqueue.port.backend import (
    AcksAtOnce,
    Backend,
    Capabilities,
    Clearable,
    Fault,
    Faults,
    LeaseKind,
    NotDispatched,
    Refused,
    StoreOptions,
    Transactional,
)
from aqueue.port.browsing import Browsable, Findable, Found, Held, Standing
from aqueue.port.examining import Examinable, Examination, Finding, Severity, clock_ahead
from aqueue.port.failed import Dead, DeadLetters, KeepsFailed, Position
from aqueue.port.notes import KeepsNotes, Note, NoteKey, Noting
from aqueue.port.records import (
    Answer,
    FailedRecord,
    Failing,
    Message,
    QueueStats,
    Quiet,
    Receipt,
    Releasing,
    Reserved,
    Stored,
    Verdict,
)

__all__ = [
    "AcksAtOnce",
    "Answer",
    "Backend",
    "Browsable",
    "Capabilities",
    "Clearable",
    "Dead",
    "DeadLetters",
    "Examinable",
    "Examination",
    "FailedRecord",
    "Failing",
    "Fault",
    "Faults",
    "Findable",
    "Finding",
    "Found",
    "Held",
    "KeepsFailed",
    "KeepsNotes",
    "LeaseKind",
    "Message",
    "NotDispatched",
    "Note",
    "NoteKey",
    "Noting",
    "Position",
    "QueueStats",
    "Quiet",
    "Receipt",
    "Refused",
    "Releasing",
    "Reserved",
    "Severity",
    "Standing",
    "StoreOptions",
    "Stored",
    "Transactional",
    "Verdict",
    "clock_ahead",
]
