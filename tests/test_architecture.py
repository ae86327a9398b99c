"""The house keeps its plan: who may import whom, what the contract may not touch, what importing costs."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aqueue"

ERRORS = frozenset({"errors"})
CONTRACT = frozenset({"contract"})
JOBS = frozenset({"jobs", "payloads"})
PORT = frozenset({"port"})
URLS = frozenset({"urls"})
TELEMETRY = frozenset({"telemetry"})
QUEUE = frozenset(
    {
        *("queue", "store", "coalesce", "pusher", "popper", "settler", "failed", "notes", "delivery"),
        *("connection", "topics", "sealing", "inventory", "environment", "claims", "ids"),
        *(
            "doctor",
            "diagnosis",
            "queue_options",
            "results",
            "progress",
            "plans",
            "chains",
            "batches",
            "endings",
        ),
    }
)
WORKER = frozenset(
    {
        *("worker", "shift", "crew", "runner", "running", "lease", "outage", "watchdog", "threads", "events"),
        *("handling", "handlers", "routes", "scope", "dependencies", "middleware", "inline"),
        *("dispatcher", "listeners", "event_wire", "limits", "circuit", "heartbeat"),
        *("schedules", "ticker", "scheduler", "occurrences", "occurrence_notes"),
    }
)
BELOW_QUEUE = ERRORS | CONTRACT | JOBS | PORT | URLS | TELEMETRY

LAYERS = {
    **dict.fromkeys(ERRORS, frozenset[str]()),
    **dict.fromkeys(PORT, PORT),
    **dict.fromkeys(URLS, ERRORS),
    **dict.fromkeys(CONTRACT, ERRORS | CONTRACT),
    **dict.fromkeys(JOBS, ERRORS | CONTRACT | JOBS),
    **dict.fromkeys(TELEMETRY, ERRORS | CONTRACT | TELEMETRY),
    "backends": ERRORS | CONTRACT | PORT | URLS | {"backends"},
    **dict.fromkeys(QUEUE, BELOW_QUEUE | QUEUE),
    **dict.fromkeys(WORKER, BELOW_QUEUE | QUEUE | WORKER),
    # A URL may ask for a queue that handles its jobs itself.
    "connection": BELOW_QUEUE | QUEUE | {"inline", "handlers", "middleware", "scope"},
    "inline": BELOW_QUEUE | QUEUE | WORKER | {"backends"},
    "testing": BELOW_QUEUE | QUEUE | WORKER | {"testing"},
    "integrations": BELOW_QUEUE | QUEUE | WORKER | {"integrations"},
    "cli": BELOW_QUEUE | QUEUE | WORKER | {"cli"},
    "__main__": frozenset({"cli"}),
    "__init__": BELOW_QUEUE | QUEUE | WORKER,
}

NOT_SANS_IO = {
    *(
        "asyncio",
        "anyio",
        "threading",
        "multiprocessing",
        "concurrent",
        "subprocess",
        "signal",
        "contextvars",
    ),
    *("time", "random", "secrets", "uuid1", "os", "pathlib", "io", "tempfile", "shutil", "socket", "ssl"),
    *("selectors", "http", "urllib", "logging", "warnings", "importlib", "pickle", "sqlite3"),
}
THIRD_PARTY_OF_THE_CONTRACT = {"cronsim", "msgspec"}
DRIVERS = {
    *("redis", "hiredis", "asyncpg", "asyncmy", "aio_pika", "aiormq", "pamqp", "aiobotocore", "botocore"),
    *("sqlalchemy", "sqlite3", "_sqlite3"),
}
FRAMEWORKS = {"fastapi", "starlette", "litestar"}
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}


def _modules(under: Path = PACKAGE) -> list[Path]:
    return sorted(under.rglob("*.py"))


def _name(path: Path) -> str:
    """Return the dotted name below the package: `contract.codec`, `queue`, `cli`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every module that a file imports, wherever in the file, and the line."""
    package = ["aqueue", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*prefix, *([node.module] if node.module else [])])
            yield module, node.lineno
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno


def _parts_of_ours(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the first part below `aqueue` of each import of ours; names taken from it don't count twice."""
    own = {_name(module).partition(".")[0] for module in _modules()}
    for name, line in _imports(path):
        head, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if head == "aqueue" and part in own:
            yield part, line


@pytest.mark.parametrize("path", [pytest.param(path, id=_name(path)) for path in _modules()])
def test_a_module_imports_only_from_the_layers_below(path: Path) -> None:
    part = _name(path).partition(".")[0]
    assert part in LAYERS, f"{part} has no layer yet: give it one here and in docs/architecture.md"

    upward = [f"line {line}: {name}" for name, line in _parts_of_ours(path) if name not in LAYERS[part]]

    assert not upward


def test_one_backend_knows_nothing_of_another() -> None:
    strangers = []
    for path in _modules(PACKAGE / "backends"):
        family = _family(path.relative_to(PACKAGE / "backends").with_suffix("").parts[0])
        for name, line in _imports(path):
            found = re.match(r"aqueue\.backends\.(\w+)", name)
            if found and _family(found[1]) not in {family, "sql", "filesystem"}:
                strangers.append(f"{path.name}:{line}: {found[1]}")

    assert not strangers


def _family(module: str) -> str:
    """Return the backend that a file or folder belongs to: `_sqlite_jobs` belongs to `sqlite`."""
    first = module.lstrip("_").partition("_")[0]
    return _FAMILIES.get(first, first)


_FAMILIES = {"shelf": "memory"}
"""Files whose name doesn't begin with their backend's; `_sql` is for all that speak SQL, `_filesystem` for
all that keep files."""


def test_only_the_table_of_schemes_names_a_backend() -> None:
    naming = {
        _name(path)
        for path in _modules()
        if not _name(path).startswith("backends")
        and re.search(r"aqueue\.backends\.\w", path.read_text(encoding="utf-8"))
    }

    assert naming <= {"connection", "inline"}


def test_a_driver_is_imported_by_its_own_backend_alone() -> None:
    importers: dict[str, set[str]] = {}
    for path in _modules():
        for name, _ in _imports(path):
            importers.setdefault(name.partition(".")[0], set()).add(_owner(path))

    assert {driver: importers[driver] for driver in sorted(DRIVERS & set(importers))} == {
        "aiobotocore": {"backends.sqs"},
        "aiormq": {"backends.rabbitmq"},
        "asyncmy": {"backends.mysql"},
        "asyncpg": {"backends.postgres"},
        "botocore": {"backends.sqs"},
        "hiredis": {"backends.redis"},
        "pamqp": {"backends.rabbitmq"},
        "redis": {"backends.redis"},
        "sqlite3": {"backends.sqlite"},
    }


def test_web_frameworks_are_imported_by_their_integrations_alone() -> None:
    strangers = [
        f"{_name(path)}:{line}: {name}"
        for path in _modules()
        for name, line in _imports(path)
        if name.partition(".")[0] in FRAMEWORKS and not _name(path).startswith("integrations.")
    ]

    assert not strangers


def _owner(path: Path) -> str:
    """Return the part of the package that a module belongs to; of a backend, which one."""
    part, _, rest = _name(path).partition(".")
    return f"backends.{_family(rest.partition('.')[0])}" if part == "backends" else part


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=_name(path)) for path in _modules(PACKAGE / "contract")]
)
def test_the_contract_is_sans_io(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    waits = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor)
    ]
    clocks = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today", "uuid1", "uuid4"}
    ]
    calls = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print"}
    ]
    imported = [
        f"line {line}: {name}" for name, line in _imports(path) if name.partition(".")[0] in NOT_SANS_IO
    ]

    assert (waits, clocks, calls, imported) == ([], [], [], [])


def test_errors_and_contract_need_nothing_installed_but_msgspec() -> None:
    paths = [PACKAGE / "errors.py", *_modules(PACKAGE / "contract")]

    foreign = {
        head
        for path in paths
        for name, _ in _imports(path)
        if (head := name.partition(".")[0]) not in sys.stdlib_module_names and head != "aqueue"
    }

    assert foreign <= THIRD_PARTY_OF_THE_CONTRACT


@pytest.mark.rule("TEL-1")
def test_only_telemetry_imports_opentelemetry() -> None:
    importers = {
        _name(path)
        for path in _modules()
        if any(name.partition(".")[0] == "opentelemetry" for name, _ in _imports(path))
    }

    assert importers
    assert all(name.partition(".")[0] == "telemetry" for name in importers)


@pytest.mark.rule("PUSH-11")
def test_nothing_waits_with_wait_for() -> None:
    """On Python 3.11 it can swallow a cancellation; `asyncio.timeout` and anyio's scopes don't."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("aqueue", "examples", "benchmarks", "tests")
        for path in _modules(ROOT / folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "wait_for")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "wait_for" for alias in node.names))
    ]

    assert not found


@pytest.mark.rule("STOP-2")
def test_only_the_command_line_handles_signals() -> None:
    importers = {
        _name(path).partition(".")[0]
        for path in _modules()
        if any(name.partition(".")[0] == "signal" for name, _ in _imports(path))
    }

    assert importers <= {"cli"}


def test_files_are_named_for_their_idea() -> None:
    vague = [_name(path) for path in _modules() if path.stem.strip("_") in BANNED_NAMES]

    assert not vague


def test_one_idea_fits_in_one_file() -> None:
    long = {
        _name(path): lines
        for path in _modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }

    assert not long


def test_a_function_fits_on_a_screen() -> None:
    """Its signature aside: a fixed public face may take as many keywords as it promised."""
    long = [
        f"{_name(path)}.{node.name}: {lines} lines"
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.body[0].lineno + 1) > 50
    ]

    assert not long


@pytest.mark.parametrize("path", [pytest.param(path, id=_name(path)) for path in _modules()])
def test_what_is_public_says_its_promise(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert ast.get_docstring(tree) or not tree.body, "the module says nothing"
    assert not list(_silent(tree.body, ""))


def _silent(body: list[ast.stmt], where: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_") or _is_overload(node):
                continue
            if not ast.get_docstring(node):
                yield f"{where}{node.name} in line {node.lineno}"
            if isinstance(node, ast.ClassDef):
                yield from _silent(node.body, f"{node.name}.")


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Overloads describe one function, which says its promise itself; so does a property for its setter."""
    names = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Name)]
    setters = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Attribute)]
    return any(name.id == "overload" for name in names) or any(each.attr == "setter" for each in setters)


_PROBE = """
import json, os, signal, sys, threading

read = []
class Environment(type(os.environ)):
    def __getitem__(self, name):
        read.append(name)
        return super().__getitem__(name)
old = os.environ
os.environ = Environment(old._data, old.encodekey, old.decodekey, old.encodevalue, old.decodevalue)
os.getenv = os.environ.get
opened = []
watched = {"socket.__new__", "sqlite3.connect", "subprocess.Popen"}
sys.addaudithook(lambda event, args: opened.append(event) if event in watched else None)
handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

exec(sys.argv[1])

print(json.dumps({
    "modules": sorted(sys.modules),
    "environment": sorted({name for name in read if name.startswith("AQUEUE")}),
    "threads": threading.active_count(),
    "signals": handlers == {number: signal.getsignal(number) for number in handlers},
    "opened": opened,
}))
"""


def _after(statement: str) -> dict[str, object]:
    """Return what a fresh interpreter has loaded, read, started and opened after this statement."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROBE, statement],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AQUEUE_URL": "nonsense",
            "AQUEUE_LEASE_SECONDS": "nonsense",
        },
    )
    found: dict[str, object] = json.loads(ran.stdout)
    return found


@pytest.mark.rule("FACE-1")
@pytest.mark.parametrize(
    "statement",
    ["import aqueue", "from aqueue import Worker, connect, job, Handlers, Depends", "from aqueue import *"],
)
def test_importing_has_no_effects(statement: str) -> None:
    after = _after(statement)
    modules = after["modules"]
    assert isinstance(modules, list)
    roots = {name.partition(".")[0] for name in modules}

    assert not roots & DRIVERS
    assert not {name for name in modules if name.startswith(("opentelemetry.sdk", "aqueue.backends."))}
    assert not roots & ({"click", "pytest", "uvloop"} | FRAMEWORKS)
    assert (after["environment"], after["threads"], after["signals"], after["opened"]) == ([], 1, True, [])


@pytest.mark.rule("FACE-1")
def test_importing_the_package_alone_loads_almost_nothing() -> None:
    modules = _after("import aqueue")["modules"]
    assert isinstance(modules, list)

    assert [name for name in modules if name.startswith("aqueue")] == ["aqueue"]
    assert not {"asyncio", "anyio", "msgspec", "opentelemetry"} & set(modules)
