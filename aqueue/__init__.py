"""aqueue: an asyncio job queue that fences every settlement.

Push typed jobs from anywhere, run them on workers beside the application or inside it, over the same
contract whatever the store. See `connect`, `job`, `Handlers` and `Worker`; errors are drawn in `aqueue.errors`.
"""

from aqueue.connection import connect, connect_from_env
from aqueue.contract.retry import Backoff
from aqueue.contract.signing import Keyring
from aqueue.delivery import Delivery
from aqueue.dependencies import Depends
from aqueue.errors import (
    AqueueError,
    ConnectionFailed,
    Discard,
    FailedStoreMissing,
    InvalidJob,
    InvalidQueueArgument,
    JobLost,
    JobReconstructionError,
    KeyringMissing,
    MalformedJobSettled,
    NotClearable,
    OutcomeUnknown,
    PublishNotConfirmed,
    PushManyError,
    QueueClosed,
    QueueUnavailable,
    Retry,
    Settlement,
    Snooze,
    StaleDelivery,
    StoreError,
    StoreRefused,
    UnhandledJob,
    UnknownEnvelopeVersion,
    UnresolvableParameter,
    UnserializableJob,
    Unsupported,
)
from aqueue.events import JobEvent, JobFailed, JobReleased, JobSettlementLost, JobSucceeded, Outcome
from aqueue.failed import FailedJob, FailedJobs
from aqueue.handlers import Handlers
from aqueue.jobs import JSON, FunctionJob, JobType, Sensitive, job
from aqueue.middleware import CallNext, Middleware
from aqueue.outage import Health
from aqueue.port import (
    Backend,
    Browsable,
    Capabilities,
    Clearable,
    KeepsFailed,
    QueueStats,
    Transactional,
)
from aqueue.queue import Queue
from aqueue.scope import AppScope, RequestScope, ScopeProvider
from aqueue.worker import Worker

__all__ = [
    "JSON",
    "AppScope",
    "AqueueError",
    "Backend",
    "Backoff",
    "Browsable",
    "CallNext",
    "Capabilities",
    "Clearable",
    "ConnectionFailed",
    "Delivery",
    "Depends",
    "Discard",
    "FailedJob",
    "FailedJobs",
    "FailedStoreMissing",
    "FunctionJob",
    "Handlers",
    "Health",
    "InvalidJob",
    "InvalidQueueArgument",
    "JobEvent",
    "JobFailed",
    "JobLost",
    "JobReconstructionError",
    "JobReleased",
    "JobSettlementLost",
    "JobSucceeded",
    "JobType",
    "KeepsFailed",
    "Keyring",
    "KeyringMissing",
    "MalformedJobSettled",
    "Middleware",
    "NotClearable",
    "Outcome",
    "OutcomeUnknown",
    "PublishNotConfirmed",
    "PushManyError",
    "Queue",
    "QueueClosed",
    "QueueStats",
    "QueueUnavailable",
    "RequestScope",
    "Retry",
    "ScopeProvider",
    "Sensitive",
    "Settlement",
    "Snooze",
    "StaleDelivery",
    "StoreError",
    "StoreRefused",
    "Transactional",
    "UnhandledJob",
    "UnknownEnvelopeVersion",
    "UnresolvableParameter",
    "UnserializableJob",
    "Unsupported",
    "Worker",
    "connect",
    "connect_from_env",
    "job",
]
