"""docs/contract.md and the tests name the same rules, and its table says what the stores say."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from backends import STORES

from aqueue.connection import open_backend
from aqueue.port import Backend, Browsable, Clearable, KeepsFailed, KeepsNotes, StoreOptions, Transactional

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")

_COLUMNS = {
    "memory": {"memory": "memory://"},
    "sqlite": {"sqlite": "sqlite:///jobs.db"},
    "file": {"file": "file:///jobs"},
    "redis": {
        "redis": "redis://host",
        "redis-cluster": "redis+cluster://host",
        "redis-sentinel": "redis+sentinel://host/service",
        "valkey": "redis://host",
    },
    "postgres": {"postgres": "postgresql://host/db", "pgbouncer": "postgresql://host/db?pgbouncer=true"},
    "mysql": {"mysql": "mysql://host/db"},
    "rabbitmq": {"rabbitmq": "amqp://host"},
    "rabbitmq, classic": {"rabbitmq-classic": "amqp://host?queue_type=classic"},
    "sqs": {"sqs": "sqs://eu-west-1", "sqs-moto": "sqs://host:5000?region=us-east-1"},
}
"""The table's columns, and which stores under test each of them speaks for."""

_ROWS: dict[str, Callable[[Backend], object]] = {
    "lease": lambda store: store.capabilities.lease.value,
    "shortest lease (s)": lambda store: store.capabilities.shortest_lease,
    "fenced settlements": lambda store: store.capabilities.fenced,
    "safe to push an id again": lambda store: store.capabilities.idempotent_push,
    "counts lost leases": lambda store: store.capabilities.counts_lost,
    "exact counts": lambda store: store.capabilities.exact_size,
    "first in, first out": lambda store: store.capabilities.ordered,
    "longest delay": lambda store: _span(store.capabilities.longest_delay),
    "longest lease": lambda store: _span(store.capabilities.longest_lease),
    "jobs per round trip": lambda store: store.capabilities.max_batch,
    "bytes per round trip": lambda store: store.capabilities.max_batch_bytes,
    "bytes per job": lambda store: store.capabilities.max_message_bytes,
    "can clear": lambda store: isinstance(store, Clearable),
    "keeps failed jobs": lambda store: isinstance(store, KeepsFailed),
    "can show what it holds": lambda store: isinstance(store, Browsable),
    "keeps notes": lambda store: isinstance(store, KeepsNotes),
    "`push(connection=…)`": lambda store: isinstance(store, Transactional),
}


@pytest.mark.parametrize("label", _ROWS)
def test_the_table_of_stores_is_true(label: str) -> None:
    options = StoreOptions(lease=60.0, clock=lambda: 0.0)
    true = {
        column: {_shown(_ROWS[label](open_backend(url, options))) for url in stores.values()}
        for column, stores in _COLUMNS.items()
    }

    assert {column: {cell} for column, cell in _written(label).items()} == true


@pytest.mark.rule("TOPIC-1")
def test_the_table_says_where_many_jobs_are_one_act() -> None:
    options = StoreOptions(lease=60.0, clock=lambda: 0.0)
    says = {
        frozenset({True}): "yes",
        frozenset({False}): "no",
        frozenset({True, False}): "yes, but not in a cluster",
    }
    true = {
        column: says[
            frozenset(open_backend(url, options).capabilities.atomic_push for url in stores.values())
        ]
        for column, stores in _COLUMNS.items()
    }

    assert _written("many jobs in one act") == true


def test_every_rule_of_the_page_is_named_by_a_test() -> None:
    assert _rules_of_the_page() - _rules_of_the_tests() == set()


def test_the_tests_name_no_rule_that_the_page_does_not_know() -> None:
    assert _rules_of_the_tests() - _rules_of_the_page() <= _OF_THE_WHOLE


_OF_THE_WHOLE = {"FACE-1"}
"""The public face: a rule about the project as a whole, not about what a queue or a worker does."""


@pytest.mark.rule("CONF-1")
def test_the_page_and_the_build_leave_no_store_out() -> None:
    known = {store.name for store in STORES}
    build = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    required = re.search(r"^export AQUEUE_REQUIRE=(\S+)$", build, re.MULTILINE)

    assert required is not None
    assert set(required[1].split(",")) == known
    assert {name for stores in _COLUMNS.values() for name in stores} == known


def _written(label: str) -> dict[str, str]:
    """Return a row of the table of stores by its columns."""
    lines = PAGE.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"| {label} |"))
    head = next(lines[number - 1] for number in range(at, 0, -1) if lines[number].startswith("|---"))
    return dict(zip(_cells(head), _cells(lines[at]), strict=True))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


_YEAR = 365 * 86_400


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "any"
    return f"{seconds / _YEAR:g} years" if seconds >= _YEAR else f"{seconds:.0f} s"


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _rules_of_the_page() -> set[str]:
    return set(re.findall(r"^- \*\*([A-Z]+-\d+)\*\*", PAGE, re.MULTILINE))


def _rules_of_the_tests() -> set[str]:
    """Return the ids in `@pytest.mark.rule(...)` of the tests, and in `@rule(...)` of the contract suite."""
    paths = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "aqueue" / "testing").rglob("*.py")]
    return {
        str(argument.value)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _called(node) == "rule"
        for argument in node.args
        if isinstance(argument, ast.Constant) and re.fullmatch(r"[A-Z]+-\d+", str(argument.value))
    }


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
