"""aqueue: an asyncio job queue that fences every settlement.

Push typed jobs from anywhere, run them on workers beside the application or inside it, over the same
contract whatever the store. See `connect`, `job`, `Handlers` and `Worker`; `aqueue.errors` draws the errors.

Names load when they are first used, so that `import aqueue` alone costs a program nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aqueue.batches import BatchCounts as BatchCounts
    from aqueue.circuit import CircuitBreaker as CircuitBreaker
    from aqueue.connection import connect as connect
    from aqueue.connection import connect_from_env as connect_from_env
    from aqueue.contract.flows import step_id as step_id
    from aqueue.contract.occurrence import Occurrence as Occurrence
    from aqueue.contract.retry import Backoff as Backoff
    from aqueue.contract.signing import Keyring as Keyring
    from aqueue.contract.unique import Unique as Unique
    from aqueue.delivery import Delivery as Delivery
    from aqueue.dependencies import Depends as Depends
    from aqueue.diagnosis import Plight as Plight
    from aqueue.diagnosis import Why as Why
    from aqueue.dispatcher import Dispatcher as Dispatcher
    from aqueue.doctor import Doctor as Doctor
    from aqueue.errors import AqueueError as AqueueError
    from aqueue.errors import ConnectionFailed as ConnectionFailed
    from aqueue.errors import Discard as Discard
    from aqueue.errors import FailedStoreMissing as FailedStoreMissing
    from aqueue.errors import InvalidJob as InvalidJob
    from aqueue.errors import InvalidQueueArgument as InvalidQueueArgument
    from aqueue.errors import JobLost as JobLost
    from aqueue.errors import JobReconstructionError as JobReconstructionError
    from aqueue.errors import KeyInUse as KeyInUse
    from aqueue.errors import KeyringMissing as KeyringMissing
    from aqueue.errors import MalformedJobSettled as MalformedJobSettled
    from aqueue.errors import NotClearable as NotClearable
    from aqueue.errors import NoteContended as NoteContended
    from aqueue.errors import NotesMissing as NotesMissing
    from aqueue.errors import OccurrenceLost as OccurrenceLost
    from aqueue.errors import OutcomeUnknown as OutcomeUnknown
    from aqueue.errors import PublishManyError as PublishManyError
    from aqueue.errors import PublishNotConfirmed as PublishNotConfirmed
    from aqueue.errors import PushManyError as PushManyError
    from aqueue.errors import QueueClosed as QueueClosed
    from aqueue.errors import QueueUnavailable as QueueUnavailable
    from aqueue.errors import ResultFailed as ResultFailed
    from aqueue.errors import ResultMissing as ResultMissing
    from aqueue.errors import ResultTimeout as ResultTimeout
    from aqueue.errors import Retry as Retry
    from aqueue.errors import Settlement as Settlement
    from aqueue.errors import Snooze as Snooze
    from aqueue.errors import StaleDelivery as StaleDelivery
    from aqueue.errors import StopPropagation as StopPropagation
    from aqueue.errors import StoreError as StoreError
    from aqueue.errors import StoreRefused as StoreRefused
    from aqueue.errors import UnhandledJob as UnhandledJob
    from aqueue.errors import UnknownEnvelopeVersion as UnknownEnvelopeVersion
    from aqueue.errors import UnknownSchedule as UnknownSchedule
    from aqueue.errors import UnknownTopic as UnknownTopic
    from aqueue.errors import UnresolvableParameter as UnresolvableParameter
    from aqueue.errors import UnserializableJob as UnserializableJob
    from aqueue.errors import Unsupported as Unsupported
    from aqueue.events import JobEvent as JobEvent
    from aqueue.events import JobFailed as JobFailed
    from aqueue.events import JobReleased as JobReleased
    from aqueue.events import JobSettlementLost as JobSettlementLost
    from aqueue.events import JobSucceeded as JobSucceeded
    from aqueue.events import Outcome as Outcome
    from aqueue.failed import FailedGroup as FailedGroup
    from aqueue.failed import FailedJob as FailedJob
    from aqueue.failed import FailedJobs as FailedJobs
    from aqueue.handlers import Handlers as Handlers
    from aqueue.inventory import KeyInventory as KeyInventory
    from aqueue.inventory import KeyUse as KeyUse
    from aqueue.jobs import JSON as JSON
    from aqueue.jobs import FunctionJob as FunctionJob
    from aqueue.jobs import JobType as JobType
    from aqueue.jobs import Sensitive as Sensitive
    from aqueue.jobs import job as job
    from aqueue.limits import ConcurrencyLimit as ConcurrencyLimit
    from aqueue.limits import RateLimit as RateLimit
    from aqueue.listeners import InvokeListener as InvokeListener
    from aqueue.middleware import CallNext as CallNext
    from aqueue.middleware import Middleware as Middleware
    from aqueue.occurrence_notes import OccurrenceNotes as OccurrenceNotes
    from aqueue.occurrences import OccurrenceDone as OccurrenceDone
    from aqueue.occurrences import OccurrenceLease as OccurrenceLease
    from aqueue.occurrences import OccurrenceRuntime as OccurrenceRuntime
    from aqueue.outage import Health as Health
    from aqueue.plans import Batch as Batch
    from aqueue.plans import Chain as Chain
    from aqueue.plans import batch as batch
    from aqueue.plans import chain as chain
    from aqueue.plans import step as step
    from aqueue.port import Backend as Backend
    from aqueue.port import Browsable as Browsable
    from aqueue.port import Capabilities as Capabilities
    from aqueue.port import Clearable as Clearable
    from aqueue.port import Examinable as Examinable
    from aqueue.port import Findable as Findable
    from aqueue.port import Finding as Finding
    from aqueue.port import KeepsFailed as KeepsFailed
    from aqueue.port import KeepsNotes as KeepsNotes
    from aqueue.port import QueueStats as QueueStats
    from aqueue.port import Severity as Severity
    from aqueue.port import Transactional as Transactional
    from aqueue.progress import Progress as Progress
    from aqueue.queue import Queue as Queue
    from aqueue.scheduler import Scheduler as Scheduler
    from aqueue.schedules import Schedule as Schedule
    from aqueue.scope import AppScope as AppScope
    from aqueue.scope import RequestScope as RequestScope
    from aqueue.scope import ScopeProvider as ScopeProvider
    from aqueue.scope import Sources as Sources
    from aqueue.ticker import ScheduleStatus as ScheduleStatus
    from aqueue.topics import Subscriptions as Subscriptions
    from aqueue.topics import Topic as Topic
    from aqueue.worker import Worker as Worker

_HOMES = {
    "aqueue.batches": ("BatchCounts",),
    "aqueue.circuit": ("CircuitBreaker",),
    "aqueue.connection": ("connect", "connect_from_env"),
    "aqueue.contract.occurrence": ("Occurrence",),
    "aqueue.contract.flows": ("step_id",),
    "aqueue.contract.retry": ("Backoff",),
    "aqueue.contract.signing": ("Keyring",),
    "aqueue.contract.unique": ("Unique",),
    "aqueue.delivery": ("Delivery",),
    "aqueue.dependencies": ("Depends",),
    "aqueue.diagnosis": ("Plight", "Why"),
    "aqueue.dispatcher": ("Dispatcher",),
    "aqueue.doctor": ("Doctor",),
    "aqueue.errors": (
        "AqueueError",
        "ConnectionFailed",
        "Discard",
        "FailedStoreMissing",
        "InvalidJob",
        "InvalidQueueArgument",
        "JobLost",
        "JobReconstructionError",
        "KeyInUse",
        "KeyringMissing",
        "MalformedJobSettled",
        "NotClearable",
        "NoteContended",
        "NotesMissing",
        "OccurrenceLost",
        "OutcomeUnknown",
        "PublishManyError",
        "PublishNotConfirmed",
        "PushManyError",
        "QueueClosed",
        "QueueUnavailable",
        "ResultFailed",
        "ResultMissing",
        "ResultTimeout",
        "Retry",
        "Settlement",
        "Snooze",
        "StaleDelivery",
        "StopPropagation",
        "StoreError",
        "StoreRefused",
        "UnhandledJob",
        "UnknownEnvelopeVersion",
        "UnknownSchedule",
        "UnknownTopic",
        "UnresolvableParameter",
        "UnserializableJob",
        "Unsupported",
    ),
    "aqueue.events": ("JobEvent", "JobFailed", "JobReleased", "JobSettlementLost", "JobSucceeded", "Outcome"),
    "aqueue.failed": ("FailedGroup", "FailedJob", "FailedJobs"),
    "aqueue.handlers": ("Handlers",),
    "aqueue.inventory": ("KeyInventory", "KeyUse"),
    "aqueue.jobs": ("JSON", "FunctionJob", "JobType", "Sensitive", "job"),
    "aqueue.limits": ("ConcurrencyLimit", "RateLimit"),
    "aqueue.listeners": ("InvokeListener",),
    "aqueue.middleware": ("CallNext", "Middleware"),
    "aqueue.occurrence_notes": ("OccurrenceNotes",),
    "aqueue.occurrences": ("OccurrenceDone", "OccurrenceLease", "OccurrenceRuntime"),
    "aqueue.outage": ("Health",),
    "aqueue.plans": ("Batch", "Chain", "batch", "chain", "step"),
    "aqueue.port": (
        "Backend",
        "Browsable",
        "Capabilities",
        "Clearable",
        "Examinable",
        "Findable",
        "Finding",
        "KeepsFailed",
        "KeepsNotes",
        "QueueStats",
        "Severity",
        "Transactional",
    ),
    "aqueue.progress": ("Progress",),
    "aqueue.queue": ("Queue",),
    "aqueue.scheduler": ("Scheduler",),
    "aqueue.schedules": ("Schedule",),
    "aqueue.scope": ("AppScope", "RequestScope", "ScopeProvider", "Sources"),
    "aqueue.ticker": ("ScheduleStatus",),
    "aqueue.topics": ("Subscriptions", "Topic"),
    "aqueue.worker": ("Worker",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list all the same; test_public_api holds it to the imports above


def __getattr__(name: str) -> object:
    """Load a public name's module when the name is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'aqueue' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
