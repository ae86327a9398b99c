"""The names OpenTelemetry's messaging conventions give to things, and the few aqueue adds (TEL-1).

They are written out here because the package that holds them is a beta pinned to one exact API version.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SCOPE_NAME: Final = "aqueue"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

JOB_NAME: Final = "aqueue.job.name"
JOB_ATTEMPT: Final = "aqueue.job.attempt"
JOB_DELAY: Final = "aqueue.job.delay_s"
RETRY_DELAY: Final = "aqueue.retry.delay_s"
OUTCOME: Final = "aqueue.outcome"

EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

CREATE: Final = "create"
PUSH: Final = "push"
SEND: Final = "send"
RECEIVE: Final = "receive"
PROCESS: Final = "process"
SETTLE: Final = "settle"

SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
WAIT_DURATION: Final = "aqueue.job.wait.duration"
OUTCOMES: Final = "aqueue.job.outcomes"
ACTIVE_JOBS: Final = "aqueue.worker.active_jobs"
LEASES_LOST: Final = "aqueue.lease.lost"
STALE_SETTLEMENTS: Final = "aqueue.stale_settlements"

DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The bounds the conventions prescribe, in seconds; longer jobs need a View of the application's own."""

WAIT_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0),
)
"""Waiting is ours to bound: a backlog is counted in minutes and hours, so the scale goes to a day."""
