"""The main job, `make demo`, as a newcomer runs it: on real files, and killed where it hurts."""

import asyncio
import contextlib
import inspect
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

import aqueue
from aqueue.testing import eventually
from examples.census.ledger import Totals
from examples.census.report import report
from examples.census.run import Result
from examples.census.settings import Settings
from examples.census.view import Progress

PROJECT = Path(__file__).parents[1]
BIG = 24  # files of real code, so that there is a half-way to be killed at
FEW_AT_ONCE = ("--concurrency", "8")
SLOW = 30.0  # seconds, for a machine that does other things too

BROKEN = {
    "syntax.py": b"def (:\n",
    "python2.py": b"print 'hello'\n",
    "coding.py": b"# coding: uft-8\n",
    "latin.py": b"name = 'caf\xe9'\n",
}


class Demo:
    """One start of the demo on a tree of files. What it printed is in `text`."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def text(self) -> str:
        return self._output.read_text()

    @property
    def worker(self) -> int:
        """The process id of its first worker."""
        return int(self._find(r"the worker is process (\d+)"))

    async def ends(self) -> int:
        async with asyncio.timeout(SLOW):
            return await self._process.wait()

    async def is_killed(self) -> None:
        self._process.kill()
        await self._process.wait()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def number(self, label: str) -> int:
        """Return the number that the final table gives for a label."""
        return int(self._find(rf"(?m)^  {label} +([\d,]+)").replace(",", ""))

    def _find(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found is not None, f"no {pattern} in:\n{self.text}"
        return found[1]


@asynccontextmanager
async def demo(tree: Path, state: Path, *options: str) -> AsyncIterator[Demo]:
    """Start the demo, and end it at the latest with the block."""
    descriptor, output = tempfile.mkstemp(dir=state.parent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.census", "--root", str(tree), "--state", str(state)),
        *("--lease", "2", *options),
        cwd=PROJECT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=descriptor,
        stderr=asyncio.subprocess.STDOUT,
    )
    os.close(descriptor)
    started = Demo(process, Path(output))
    try:
        yield started
    finally:
        if process.returncode is None:
            await started.is_killed()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with three good files, each kind of broken one, a missing one, and an installed package."""
    tree = tmp_path / "tree"
    (tree / "package").mkdir(parents=True)
    (tree / "empty.py").touch()
    (tree / "one.py").write_text("answer = 42\n")
    (tree / "package" / "two.py").write_text("def double(x):\n    return x * 2\n")
    for name, source in BROKEN.items():
        (tree / "package" / name).write_bytes(source)
    (tree / "gone.py").symlink_to(tree / "nowhere.py")
    (tree / "site-packages").mkdir()
    (tree / "site-packages" / "installed.py").write_text("not ours")
    (tree / "notes.txt").write_text("not Python")
    return tree


@pytest.fixture
def slow_tree(tree: Path) -> Path:
    """As `tree`, and takes a few seconds."""
    for number in range(BIG):
        shutil.copy(inspect.getfile(inspect), tree / f"big{number}.py")
    return tree


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def test_measures_every_file_and_keeps_the_error_of_each_broken_one(tree: Path, state: Path) -> None:
    async with demo(tree, state) as census:
        assert await census.ends() == 0, census.text

    assert census.number("files") == 3 + len(BROKEN) + 1
    assert census.number("measured") == 3
    assert census.number("lines") == 3
    assert census.number("retries") == 2 * (len(BROKEN) + 1)
    assert census.number("failed") == len(BROKEN) + 1
    failed = await failed_jobs(state)
    assert set(failed) == {"gone.py", *BROKEN}
    assert {job.error_type for name, job in failed.items() if name in BROKEN} == {"SyntaxError"}
    assert failed["gone.py"].error_type == "FileNotFoundError"
    assert "uft-8" in failed["coding.py"].error
    assert {job.attempts for job in failed.values()} == {3}
    assert {job.reason for job in failed.values()} == {"error"}


async def test_a_second_run_is_a_census_of_its_own(tree: Path, state: Path) -> None:
    async with demo(tree, state) as first:
        assert await first.ends() == 0, first.text
    (tree / "three.py").write_text("three = 3\n")

    async with demo(tree, state) as second:
        assert await second.ends() == 0, second.text

    assert second.number("measured") == first.number("measured") + 1
    assert second.number("failed") == first.number("failed") == len(await failed_jobs(state))


async def test_the_commands_it_recommends_work(tree: Path, state: Path) -> None:
    async with demo(tree, state) as census:
        assert await census.ends() == 0, census.text
    commands = re.findall(r"(?m)^  \S*/aqueue (.*)$", census.text)

    assert len(commands) == 3
    for command in commands:
        process = await asyncio.create_subprocess_shell(
            f"{sys.executable} -m aqueue {command}", cwd=PROJECT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, command
        assert b"census" in output


@pytest.mark.rule("LEASE-2")
async def test_killing_the_worker_half_way_loses_no_file(slow_tree: Path, state: Path) -> None:
    async with demo(slow_tree, state, *FEW_AT_ONCE) as census:
        await eventually(lambda: measured(state) > 5, timeout=SLOW)
        os.kill(census.worker, signal.SIGKILL)
        assert await census.ends() == 0, census.text

    assert "the worker was killed" in census.text
    assert census.number("recovered") > 0
    assert census.number("measured") == 3 + BIG
    assert census.number("failed") == len(BROKEN) + 1
    assert census.number("lines") == 3 + BIG * lines_of(inspect.getfile(inspect))


@pytest.mark.rule("LEASE-2", "PUSH-10")
async def test_killing_everything_half_way_and_starting_again_loses_no_file(
    slow_tree: Path, state: Path
) -> None:
    async with demo(slow_tree, state, *FEW_AT_ONCE) as killed:
        await eventually(lambda: measured(state) > 5, timeout=SLOW)
        os.kill(killed.worker, signal.SIGKILL)
        await killed.is_killed()
    before = measured(state)

    async with demo(slow_tree, state, *FEW_AT_ONCE) as census:
        assert await census.ends() == 0, census.text

    assert "going on with census" in census.text
    assert census.number("pushes") <= 3 + BIG + len(BROKEN) + 1 - before
    assert census.number("measured") == 3 + BIG
    assert census.number("failed") == len(BROKEN) + 1


async def test_a_worker_goes_home_when_its_driver_is_killed(slow_tree: Path, state: Path) -> None:
    async with demo(slow_tree, state, *FEW_AT_ONCE) as census:
        await eventually(lambda: measured(state) > 5, timeout=SLOW)
        worker = census.worker
        await census.is_killed()

    await eventually(lambda: not is_running(worker), timeout=SLOW)


async def test_interrupted_it_says_how_to_go_on_and_does(slow_tree: Path, state: Path) -> None:
    async with demo(slow_tree, state, *FEW_AT_ONCE) as interrupted:
        await eventually(lambda: measured(state) > 5, timeout=SLOW)
        interrupted.interrupt()
        assert await interrupted.ends() == 130
    assert "start it again" in interrupted.text
    assert "Traceback" not in interrupted.text

    async with demo(slow_tree, state, *FEW_AT_ONCE) as census:
        assert await census.ends() == 0, census.text

    assert census.number("measured") == 3 + BIG


async def test_refuses_a_queue_that_a_worker_process_could_not_share(tree: Path, state: Path) -> None:
    async with demo(tree, state, "--url", "memory://") as census:
        assert await census.ends() == 2

    assert "name a queue that both can reach" in census.text


async def test_says_in_one_line_that_a_store_can_not_be_used(tree: Path, state: Path) -> None:
    async with demo(tree, state, "--url", "nosuch://host/") as census:
        assert await census.ends() == 1

    assert "unknown URL scheme 'nosuch'" in census.text
    assert "Traceback" not in census.text


def test_a_file_that_is_neither_measured_nor_failed_is_named(tmp_path: Path) -> None:
    totals = Totals(files=1, lines=1, tokens=1, nodes=1, retried=0, recovered=0)
    last = Progress(
        found=2, pushed=2, waiting=0, running=0, failed=0, totals=totals, seconds=1.0, handled_before=0
    )
    result = Result(last=last, push_seconds=0.1, failed=[], missing=["lost.py"])

    lines = list(report(result, Settings(url="sqlite:///jobs.db", state="."), tmp_path))

    assert any("MISSING" in line for line in lines)
    assert "  lost.py" in lines


async def failed_jobs(state: Path) -> dict[str, aqueue.FailedJob]:
    """Return what the failed store keeps, by the name of the file."""
    async with aqueue.connect(f"sqlite:///{state}/jobs.db") as queue:
        failed = await queue.failed.list(queue="census")
    return {Path(job.args["path"]).name: job for job in failed if job.args is not None}


def measured(state: Path) -> int:
    """Return how many files have been measured so far."""
    with results(state) as connection:
        return int(connection.execute("SELECT count(*) FROM measures").fetchone()[0])


@contextlib.contextmanager
def results(state: Path) -> Iterator[sqlite3.Connection]:
    path = state / "results.db"
    assert path.exists()
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as connection:
            yield connection
    except sqlite3.OperationalError as error:
        raise AssertionError(f"not readable yet: {error}") from error


def lines_of(path: str) -> int:
    return len(Path(path).read_bytes().splitlines())


def is_running(pid: int) -> bool:
    """A process that nobody has waited for yet is still listed, as a zombie."""
    status = Path(f"/proc/{pid}/stat")
    if status.parent.parent.joinpath("self").exists():
        return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
