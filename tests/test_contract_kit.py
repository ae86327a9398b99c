"""The contract suite as others run it: as tests of their own, from the shell, and by hand (CONF-1).

The stranger's store is `examples/dbm_store.py`, installed here as a package would be: by an entry point.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.errors import InvalidQueueArgument
from aqueue.port import Message, StoreOptions
from aqueue.testing.contract import Check, Harness, all_checks, rule
from aqueue.testing.contract.places import Places
from aqueue.testing.contract.verdicts import Report, Verdict, examine, prove
from aqueue.urls import parse_url
from examples.dbm_store import from_url

pytestmark = pytest.mark.rule("CONF-1")

ROOT = Path(__file__).parents[1]
URL = "dbm://{folder}/jobs"


def dbm_places() -> Places:
    def opener(url: str, options: StoreOptions) -> object:
        return from_url(parse_url(url), options)

    return Places(URL, takes_clock=True, opener=opener)  # type: ignore[arg-type]  # it is one, and mypy knows


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which a package with the store is installed."""
    about = tmp_path / "site" / "dbmstore-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dbmstore\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[aqueue.backends]\ndbm = examples.dbm_store:from_url\n")
    return {**os.environ, "PYTHONPATH": f"{about.parent}:{ROOT}"}


def run(
    *arguments: str, env: dict[str, str], cwd: Path, status: int | None = 0
) -> "subprocess.CompletedProcess[str]":
    ran = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert status is None or ran.returncode == status, f"{ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
    return ran


def run_pytest(
    *arguments: str, env: dict[str, str], cwd: Path, status: int = 0
) -> "subprocess.CompletedProcess[str]":
    """Run pytest as in a project of somebody else's, where a warning is an error."""
    settings = () if "no:asyncio" in arguments else ("-o", "asyncio_default_fixture_loop_scope=function")
    return run(
        *("-m", "pytest", "-q", "--strict-markers", "-W", "error", *settings, *arguments),
        env=env,
        cwd=cwd,
        status=status,
    )


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    places = dbm_places()
    yield places
    places.close()


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
async def test_the_example_keeps_the_rule(check: Check, places: Places) -> None:
    await prove(check, places.harness())


def test_the_example_is_short() -> None:
    assert len((ROOT / "examples" / "dbm_store.py").read_text(encoding="utf-8").splitlines()) < 150


_SOME = "ATT-1 or DELAY-1 or NAME-1"


@pytest.mark.parametrize(
    "plugins", [[], ["-p", "no:asyncio"], ["-p", "no:asyncio", "-p", "no:anyio"]], ids=len
)
def test_the_suite_runs_by_one_option(
    plugins: Sequence[str], installed: dict[str, str], tmp_path: Path
) -> None:
    ran = run_pytest(
        *("--pyargs", "aqueue.testing.contract.pytest_checks"),
        *("--aqueue-url", URL, "--aqueue-takes-clock", "-k", _SOME, *plugins),
        env=installed,
        cwd=tmp_path,
    )

    assert f"{_matching(_SOME)} passed" in ran.stdout


@pytest.mark.parametrize("style", ["plain", "pytest-asyncio", "anyio"])
def test_the_suite_runs_beside_tests_of_ones_own(
    style: str, installed: dict[str, str], tmp_path: Path
) -> None:
    fixture = {
        "plain": "@pytest.fixture\ndef aqueue_harness(tmp_path):",
        "pytest-asyncio": "@pytest_asyncio.fixture\nasync def aqueue_harness(tmp_path):",
        "anyio": "@pytest.fixture\nasync def aqueue_harness(tmp_path, anyio_backend):",
    }[style]
    (tmp_path / "test_mine.py").write_text(
        f"""
import pytest
import pytest_asyncio
from aqueue.testing import ManualClock
from aqueue.testing.contract import Harness
from aqueue.testing.contract.pytest_checks import *

@pytest.fixture
def anyio_backend():
    return "asyncio"

{fixture}
    return Harness(f"dbm://{{tmp_path}}/jobs", clock=ManualClock(ticking=True))

@pytest.mark.{"anyio" if style == "anyio" else "asyncio"}
async def test_of_my_own(aqueue_harness):
    await (await aqueue_harness.queue()).push_many([])
    await aqueue_harness.aclose()
"""
    )

    ran = run_pytest("test_mine.py", "-k", f"of_my_own or {_SOME}", env=installed, cwd=tmp_path)

    assert f"{_matching(_SOME) + 1} passed" in ran.stdout


def test_without_a_store_the_checks_fail_and_say_how_to_name_one(
    installed: dict[str, str], tmp_path: Path
) -> None:
    ran = run_pytest(
        *("--pyargs", "aqueue.testing.contract.pytest_checks", "-k", "NAME-1", "-x"),
        env=installed,
        cwd=tmp_path,
        status=pytest.ExitCode.TESTS_FAILED,
    )

    assert "which store? Give --aqueue-url" in ran.stdout


def test_the_plugin_loads_nothing_until_it_is_used(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    ours = {name for name in sys.modules if name.startswith('aqueue')}\n"
        "    plugin = 'aqueue.testing.pytest_plugin'\n"
        "    assert ours == {'aqueue', 'aqueue.testing', 'aqueue.testing.eventually', plugin}, ours\n"
        "    assert not {'anyio', 'msgspec', 'opentelemetry'} & set(sys.modules)\n"
    )

    run_pytest(
        *("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:randomly"),
        *("-p", "no:xdist", "-p", "no:hypothesispytest"),
        env=installed,
        cwd=tmp_path,
    )


def test_the_fixtures_work_in_any_test(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        """
import asyncio
import pytest
from aqueue import job
from aqueue.testing import assert_pushed, drain

@job
async def note(text: str) -> None: ...

async def scenario(queue, clock, effects):
    await queue.push(note.job("x"), delay=60)
    await assert_pushed(queue, note, delay=60)
    clock.advance(60)
    assert (await drain(queue, [note])).seconds == 0
    effects.record("done")
    assert effects.seen() == ("done",)

def test_plain(aqueue_queue, aqueue_clock, aqueue_effects):
    asyncio.run(scenario(aqueue_queue, aqueue_clock, aqueue_effects))

@pytest.mark.asyncio
async def test_asyncio(aqueue_queue, aqueue_clock, aqueue_effects):
    await scenario(aqueue_queue, aqueue_clock, aqueue_effects)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio(aqueue_queue, aqueue_clock, aqueue_effects):
    await scenario(aqueue_queue, aqueue_clock, aqueue_effects)
"""
    )

    ran = run_pytest("test_mine.py", env=installed, cwd=tmp_path)

    assert "3 passed" in ran.stdout


def test_the_shell_command_gives_a_verdict_for_each_rule(installed: dict[str, str], tmp_path: Path) -> None:
    ran = run(
        *("-m", "aqueue.testing.contract", URL, "--takes-clock", "--rule", "ATT-1", "--rule", "NAME-1"),
        env=installed,
        cwd=tmp_path,
    )

    lines = ran.stdout.splitlines()
    assert lines[0] == "dbm: the five verbs alone"
    assert any(line.startswith("NAME-1    holds   ") for line in lines)
    assert lines[-1] == f"{len(lines) - 2} of {len(lines) - 2} rules hold"
    assert ran.stderr == ""


def test_the_shell_command_speaks_json(installed: dict[str, str], tmp_path: Path) -> None:
    ran = run(
        *("-m", "aqueue.testing.contract", URL, "--takes-clock", "--json", "--rule", "NAME-1"),
        *("--at-once", "4"),
        env=installed,
        cwd=tmp_path,
    )

    said = json.loads(ran.stdout)
    assert (said["store"], said["holds"], said["abilities"]) == ("dbm", True, [])
    assert said["capabilities"]["immediate"] is True
    assert said["rules"]["NAME-1"]["holds"] is True
    assert said["rules"]["NAME-1"]["checks"] == len(_of_rule("NAME-1"))


def test_a_broken_store_ends_with_status_1_and_says_what_it_broke(
    installed: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "miscounting.py").write_text(
        "from msgspec.structs import replace\n"
        "from examples.dbm_store import DbmBackend\n"
        "class Miscounting(DbmBackend):\n"
        "    async def pop(self, queues, limit):\n"
        "        taken = await super().pop(queues, limit)\n"
        "        return [replace(item, attempt=item.attempt + 1) for item in taken]\n"
        "def from_url(url, options):\n"
        "    return Miscounting(url.path, options)\n"
    )
    entry_points = next((tmp_path / "site").glob("*/entry_points.txt"))
    entry_points.write_text("[aqueue.backends]\ndbm = miscounting:from_url\n")
    command = ("-m", "aqueue.testing.contract", URL, "--takes-clock", "--rule", "ATT-1")

    text = run(*command, env=installed, cwd=tmp_path, status=1)
    said = json.loads(run(*command, "--json", env=installed, cwd=tmp_path, status=1).stdout)

    assert "ATT-1     BROKEN" in text.stdout
    assert re.fullmatch(r"(\d+) of (?!\1\b)\d+ rules hold", text.stdout.splitlines()[-1])
    broken = said["rules"]["ATT-1"]["broken"]
    assert not said["holds"]
    assert all(verdict["broken"] and verdict["promise"] for verdict in broken)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory://"], "the URL needs {place} or {folder}"),
        (["nosuch://{place}"], "unknown URL scheme 'nosuch'"),
        (["memory://{place}", "--rule", "PUSH-99"], "no check proves PUSH-99; known: ARG-1"),
        ([], "Missing argument 'URL'"),
    ],
)
def test_a_wrong_use_ends_with_status_2(
    arguments: Sequence[str], words: str, installed: dict[str, str], tmp_path: Path
) -> None:
    ran = run("-m", "aqueue.testing.contract", *arguments, env=installed, cwd=tmp_path, status=2)

    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_each_check_gets_a_place_of_its_own() -> None:
    places = Places("memory://{place}-{place}")
    urls = {places.harness().url for _ in range(3)}

    assert len(urls) == 3
    assert all(first == second for first, second in (url[9:].split("-") for url in urls))
    with pytest.raises(InvalidQueueArgument, match="an empty place of its own"):
        Places("memory://")


def test_directories_go_when_the_places_close() -> None:
    places = dbm_places()
    folders = [Path(places.harness().url.removeprefix("dbm://")).parent for _ in range(2)]
    assert all(folder.is_dir() for folder in folders)

    places.close()

    assert not any(folder.exists() for folder in folders)


class _Deaf(MemoryBackend):
    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        raise ValueError("not today")


async def test_whatever_a_store_raises_breaks_the_rule() -> None:
    checks = _of_rule("PUSH-9")

    def deaf() -> Harness:
        return Harness(
            "deaf://",
            opener=lambda _, options: _Deaf(Shelf(), lease=options.lease, clock=options.clock),
        )

    told: list[Verdict] = []
    report = await examine(deaf, checks, tell=told.append)

    assert not report.holds
    assert {verdict.broken for verdict in report.verdicts} == {"ValueError: not today"}
    assert [verdict.check for verdict in told] == [check.name for check in checks]
    assert next(iter(report.by_rule())) == "PUSH-9"


async def test_a_check_that_never_ends_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aqueue.testing.contract.verdicts.LONGEST_CHECK", 0.05)

    @rule("POP-1")
    async def waits_for_ever(harness: Harness) -> None:
        """It does."""
        await asyncio.Event().wait()

    report = await examine(lambda: Harness("memory://x"), [waits_for_ever])

    assert report.verdicts[0].broken == "AssertionError: it did not end within 0.05 s"


async def test_checks_side_by_side_are_reported_in_the_order_of_the_contract() -> None:
    checks = all_checks()[:12]
    places = Places("memory://{place}", takes_clock=True)

    report = await examine(places.harness, checks, at_once=12)

    assert isinstance(report, Report)
    assert report.holds
    assert [verdict.check for verdict in report.verdicts] == [check.name for check in checks]
    assert set(report.abilities) >= {"Clearable", "KeepsFailed", "Browsable", "KeepsNotes"}


def _of_rule(rule: str) -> list[Check]:
    return [check for check in all_checks() if rule in check.rules]


def _matching(expression: str) -> int:
    """Return how many checks `-k` selects with this expression, by their ids."""
    words = [word.lower() for word in expression.split(" or ")]
    return sum(any(word in check.id.lower() for word in words) for check in all_checks())
