"""What a queue's attributes mean for jobs: read from SQS, judged as facts (DOCTOR-1)."""

from collections.abc import Mapping, Sequence

import msgspec

from aqueue.backends.sqs.clients import Clients
from aqueue.backends.sqs.settings import Settings
from aqueue.backends.sqs.troubles import QueueGone, is_access_denied
from aqueue.port import Examination, Finding, Refused
from aqueue.port.examining import ok, problem, warning

_DAY = 86_400
_LONGEST_RETENTION = 14 * _DAY
_MANY_RECEIVES = 100
_MIB = 1 << 20


async def examine(clients: Clients, settings: Settings, queues: Sequence[str]) -> Examination:
    """Ask for each queue's attributes; one that is missing is not made."""
    findings: list[Finding] = []
    for queue in queues:
        findings += await _queue(clients, settings, queue)
    return Examination(findings)


def judged(queue: str, attributes: Mapping[str, str]) -> list[Finding]:
    """Return what a queue's attributes mean."""
    if attributes.get("FifoQueue") == "true":
        return [problem(f"queue {queue}", "FIFO", "aqueue refuses FIFO queues", "make a standard queue")]
    return [
        _redrive(queue, attributes.get("RedrivePolicy", "")),
        _retention(queue, int(attributes.get("MessageRetentionPeriod", 4 * _DAY))),
        _size(queue, int(attributes.get("MaximumMessageSize", _MIB))),
    ]


def missing(queue: str, *, creates: bool) -> Finding:
    """Return what it means that there is no such queue."""
    if creates:
        return ok(f"queue {queue}", "not there", "create=true makes it when it is first used")
    meaning = "pushes to it and pops from it are refused"
    return problem(f"queue {queue}", "not there", meaning, "create it, or add create=true to the URL")


def _redrive(queue: str, policy: str) -> Finding:
    """SQS moves a job to its own dead-letter queue without a word, where aqueue looks for none."""
    check = f"{queue}: RedrivePolicy"
    receives = _receives(policy)
    if receives is None:
        return ok(check, "none")
    found = f"maxReceiveCount {receives}"
    meaning = (
        "SQS moves a job that was handed out so often to its dead-letter queue, where aqueue doesn't look; "
        "every retry, give-back and postponement counts"
    )
    if receives < _MANY_RECEIVES:
        advice = "remove the policy, max_attempts and failed= do its work; or set 1000, the most there is"
        return problem(check, found, meaning, advice)
    return warning(check, found, meaning, "remove the policy: max_attempts and failed= do its work")


def _receives(policy: str) -> int | None:
    if not policy:
        return None
    try:
        return int(msgspec.json.decode(policy.encode())["maxReceiveCount"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


def _retention(queue: str, seconds: int) -> Finding:
    check, found = f"{queue}: MessageRetentionPeriod", f"{seconds / _DAY:.1f} days"
    if seconds >= _LONGEST_RETENTION:
        return ok(check, found)
    meaning = "SQS deletes a job that is older, whether it waits, is delayed or is being retried"
    advice = f"set {_LONGEST_RETENTION}, 14 days, which is the longest"
    return (problem if seconds < _DAY else warning)(check, found, meaning, advice)


def _size(queue: str, most: int) -> Finding:
    check, found = f"{queue}: MaximumMessageSize", f"{most / 1024:.0f} KiB"
    if most >= _MIB:
        return ok(check, found)
    return warning(check, found, "larger jobs are refused", f"set {_MIB}, unless that is meant")


async def _queue(clients: Clients, settings: Settings, queue: str) -> list[Finding]:
    try:
        place = await clients.call("get_queue_url", QueueName=settings.prefix + queue)
        url = place["QueueUrl"]
        told = await clients.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
    except QueueGone:
        return [missing(queue, creates=settings.creates)]
    except Refused as refused:
        if not is_access_denied(refused):
            raise
        meaning = "these keys may not look at the queue's attributes, so nobody can tell here"
        return [warning(f"queue {queue}", "can't be seen", meaning, "allow sqs:GetQueueAttributes")]
    attributes: dict[str, str] = told.get("Attributes", {})
    return judged(queue, attributes)
