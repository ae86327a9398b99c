"""The public face: every promised name is there, and its signatures are the promised ones (FACE-1)."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

import aqueue
from aqueue import errors

pytestmark = pytest.mark.rule("FACE-1")

PACKAGE = Path(aqueue.__file__).parent

PROMISED = (
    *("job", "connect", "connect_from_env", "Queue", "Delivery", "QueueStats", "Keyring"),
    *("Handlers", "Worker", "Outcome", "Health", "Backoff", "Retry", "Snooze", "Discard"),
    *("Depends", "AppScope", "RequestScope", "ScopeProvider", "Sensitive", "JSON"),
    *("FailedJob", "FailedJobs", "Settlement", "Middleware", "CallNext"),
    *("JobSucceeded", "JobReleased", "JobFailed", "JobSettlementLost"),
    *("Subscriptions", "Topic", "UnknownTopic", "PublishManyError"),
    *("Dispatcher", "InvokeListener", "StopPropagation"),
    *("KeyInventory", "KeyUse", "KeyInUse"),
    *("Doctor", "Finding", "Severity", "Why", "Plight", "Examinable", "Findable"),
    *("Backend", "Capabilities", "Clearable", "KeepsFailed", "Browsable", "Transactional"),
)

SIGNATURES: dict[str, tuple[Callable[..., object], str]] = {
    "connect": (
        aqueue.connect,
        (
            "url, *, lease=60.0, keyring=None, accept_unsigned=False, failed=None, keep_failed=None, "
            "call_timeout=10.0, clock=None"
        ),
    ),
    "connect_from_env": (aqueue.connect_from_env, "name=None"),
    "Depends": (aqueue.Depends, "dependency=None, *, use_cache=True, scope=None"),
    "job": (
        aqueue.job,
        (
            "target=None, /, *, name=None, queue=None, max_attempts=None, backoff=None, timeout=None, "
            "aliases=(), middleware=()"
        ),
    ),
    "Queue.push": (
        aqueue.Queue.push,
        "self, job, *, queue=None, delay=0, at=None, max_attempts=None, id=None, connection=None",
    ),
    "Queue.push_many": (
        aqueue.Queue.push_many,
        "self, jobs, *, queue=None, delay=0, at=None, max_attempts=None, connection=None",
    ),
    "Queue.pop": (aqueue.Queue.pop, "self, *, timeout=0, queues=('default',)"),
    "Queue.pop_many": (aqueue.Queue.pop_many, "self, limit, *, timeout=0, queues=('default',)"),
    "Queue.ack": (aqueue.Queue.ack, "self, delivery"),
    "Queue.release": (aqueue.Queue.release, "self, delivery, *, delay=0, counted=True"),
    "Queue.fail": (aqueue.Queue.fail, "self, delivery, reason='error'"),
    "Queue.extend": (aqueue.Queue.extend, "self, delivery"),
    "Queue.size": (aqueue.Queue.size, "self, queue='default'"),
    "Queue.stats": (aqueue.Queue.stats, "self, queue='default'"),
    "Queue.clear": (aqueue.Queue.clear, "self, queue"),
    "Queue.migrate": (aqueue.Queue.migrate, "self"),
    "Queue.open": (aqueue.Queue.open, "self"),
    "Queue.aclose": (aqueue.Queue.aclose, "self"),
    "Worker": (
        aqueue.Worker.__init__,
        (
            "self, queue, handlers, *, queues=('default',), concurrency=10, max_attempts=0, "
            f"backoff={aqueue.Backoff.none()!r}, timeout=None, max_lost=5, renew=True, "
            "on_lease_lost='cancel', on_outage='resume', poll_timeout=1.0, grace=30.0, scope=None, "
            "middleware=(), trace='link', name=None"
        ),
    ),
    "Worker.run": (aqueue.Worker.run, "self"),
    "Worker.run_one": (aqueue.Worker.run_one, "self, timeout=None"),
    "Worker.run_all": (aqueue.Worker.run_all, "self"),
    "Worker.stop": (aqueue.Worker.stop, "self"),
    "Worker.health": (aqueue.Worker.health, "self"),
    "Worker.listen": (aqueue.Worker.listen, "self, event, listener"),
    "Handlers.add": (aqueue.Handlers.add, "self, *jobs"),
    "Handlers.on": (aqueue.Handlers.on, "self, target, handler=None, *, queue=None"),
    "Handlers.include": (aqueue.Handlers.include, "self, other"),
    "FailedJobs.list": (aqueue.FailedJobs.list, "self, *, queue=None, job=None, after=None, limit=100"),
    "FailedJobs.get": (aqueue.FailedJobs.get, "self, id"),
    "FailedJobs.count": (aqueue.FailedJobs.count, "self"),
    "FailedJobs.retry": (aqueue.FailedJobs.retry, "self, id"),
    "FailedJobs.retry_all": (aqueue.FailedJobs.retry_all, "self, *, queue=None, job=None"),
    "FailedJobs.groups": (aqueue.FailedJobs.groups, "self, *, queue=None, job=None, limit=1000"),
    "FailedJobs.discard": (aqueue.FailedJobs.discard, "self, id"),
    "FailedJobs.purge": (aqueue.FailedJobs.purge, "self, *, older_than=0"),
    "Retry": (aqueue.Retry.__init__, "self, after=None"),
    "Snooze": (aqueue.Snooze.__init__, "self, seconds"),
    "Discard": (aqueue.Discard.__init__, "self, reason=''"),
    "Keyring": (aqueue.Keyring.__init__, "self, active, keys"),
    "Subscriptions.subscribe": (aqueue.Subscriptions.subscribe, "self, topic, queue"),
    "Topic": (aqueue.Topic.__init__, "self, queue, subscriptions"),
    "Topic.publish": (
        aqueue.Topic.publish,
        "self, job, topic, *, delay=0, at=None, max_attempts=None, connection=None",
    ),
    "Dispatcher": (aqueue.Dispatcher.__init__, "self, queue=None"),
    "Dispatcher.listen": (
        aqueue.Dispatcher.listen,
        "self, event, listener=None, *, queued=False, queue=None",
    ),
    "Dispatcher.dispatch": (aqueue.Dispatcher.dispatch, "self, event"),
    "Keyring.parse": (aqueue.Keyring.parse, "text, *, encrypt=False"),
    "KeyInventory.inventory": (aqueue.KeyInventory.inventory, "self, queues=None"),
    "KeyInventory.retire": (aqueue.KeyInventory.retire, "self, key"),
    "AppScope": (aqueue.AppScope.__init__, "self, values=None, initializers=()"),
    "Backoff.none": (aqueue.Backoff.none, ""),
    "Backoff.fixed": (aqueue.Backoff.fixed, "seconds"),
    "Backoff.linear": (aqueue.Backoff.linear, "seconds"),
    "Backoff.exponential": (aqueue.Backoff.exponential, "base, cap"),
}

FIELDS = {
    "Delivery": "id name args job queue attempt lost max_attempts pushed_at metadata receipt",
    "QueueStats": "ready delayed leased failed oldest_age",
    "FailedJob": (
        "id name queue args attempts lost reason error_type error traceback pushed_at failed_at worker"
    ),
    "FailedGroup": "fingerprint name error_type error frame count first_at last_at example",
    "Health": "ok running last_claim last_error",
    "JobSucceeded": "id name queue attempt duration args error",
    "JobReleased": "id name queue attempt duration args error delay counted",
    "JobFailed": "id name queue attempt duration args error reason",
    "JobSettlementLost": "id name queue attempt duration args error operation stale",
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_imports_from_aqueue(name: str) -> None:
    assert name in aqueue.__all__
    assert getattr(aqueue, name) is not None


@pytest.mark.parametrize("name", aqueue.__all__)
def test_what_is_listed_is_there_and_documented(name: str) -> None:
    found = getattr(aqueue, name)

    assert inspect.getdoc(found) or get_args(found), f"aqueue.{name} says nothing"


def test_what_is_listed_is_what_type_checkers_see() -> None:
    """Names load late, so they are written twice: once to be found, once to be checked."""
    checked = [
        (alias.name, alias.asname, node.module)
        for block in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]

    assert sorted(name for name, _, _ in checked) == sorted(aqueue.__all__)
    assert [name for name, exported_as, _ in checked if name != exported_as] == []
    homes = {name: module for name, _, module in checked}
    assert {name: aqueue._HOME_OF[name] for name in aqueue.__all__} == homes


def test_every_error_that_callers_meet_can_be_imported_from_aqueue() -> None:
    public = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, errors.AqueueError)
        and value.__module__ == "aqueue.errors"
    }

    assert public - set(aqueue.__all__) <= {"JobSignal"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        aqueue.nothing  # noqa: B018 - reading it is the test


def test_all_names_are_listed_by_dir_and_by_a_star() -> None:
    assert set(aqueue.__all__) <= set(dir(aqueue))
    names = subprocess.run(
        [sys.executable, "-c", "from aqueue import *; print(*(name for name in dir() if name[0] != '_'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert set(names) == set(aqueue.__all__)


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_as_promised(name: str) -> None:
    """Keywords may be added at the end, and nothing renamed, removed or given another default."""
    function, promised = SIGNATURES[name]
    found = inspect.signature(function)
    bare = found.replace(
        parameters=[each.replace(annotation=each.empty) for each in found.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )

    shown = str(bare)[1:-1]
    assert shown == promised or shown.startswith(f"{promised}, ")
    assert all(
        each.kind is each.KEYWORD_ONLY for each in list(found.parameters.values())[_count_of(promised) :]
    )


@pytest.mark.parametrize("name", FIELDS)
def test_a_record_has_the_promised_fields(name: str) -> None:
    record = getattr(aqueue, name)
    annotations = {field for cls in record.__mro__ for field in getattr(cls, "__annotations__", {})}

    assert [field for field in FIELDS[name].split() if field not in annotations | set(dir(record))] == []


@pytest.mark.parametrize("name", ["push", "push_many", "pop", "pop_many", "ack", "release", "fail", "extend"])
def test_what_reaches_the_store_is_awaited(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(aqueue.Queue, name))


@pytest.mark.parametrize("name", ["stop", "health", "listen"])
def test_what_only_tells_the_worker_is_a_plain_call(name: str) -> None:
    assert not inspect.iscoroutinefunction(getattr(aqueue.Worker, name))


def test_the_outcomes_of_a_delivery_are_five() -> None:
    assert [each.name for each in aqueue.Outcome] == ["ACKED", "RELEASED", "FAILED", "LOST", "MALFORMED"]


def test_every_error_is_an_aqueue_error() -> None:
    stray = [
        name
        for name in aqueue.__all__
        if isinstance(value := getattr(aqueue, name), type)
        and issubclass(value, BaseException)
        and not issubclass(value, aqueue.AqueueError)
    ]

    assert not stray


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def _count_of(promised: str) -> int:
    return len([part for part in promised.split(", ") if part not in {"*", "/"} and part]) if promised else 0
