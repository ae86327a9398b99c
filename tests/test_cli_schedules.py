"""`aqueue schedules …`: schedules are listed, paused, resumed, triggered and previewed by name."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import answer, refusal, run

pytestmark = [pytest.mark.rule("CLI-1"), pytest.mark.rule("CRON-1")]

_MODULE = """
from aqueue import Schedule, Scheduler, Worker, connect, job

@job(name="cli.nightly")
class Nightly:
    async def handle(self) -> None: ...

def scheduler():
    nightly = Schedule("nightly", "0 3 * * *", tz="Europe/Warsaw", job=Nightly())
    hourly = Schedule("hourly", "@hourly", job=Nightly(), queue="hours")
    return Scheduler(connect("sqlite:///jobs.db"), [nightly, hourly])

def worker():
    made = scheduler()
    return Worker(made.queue, [Nightly], scheduler=made)

def no_scheduler():
    return Worker(connect("memory://"), [Nightly])
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "planned.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield "planned:scheduler"
    sys.path[:] = before
    sys.modules.pop("planned", None)


@pytest.mark.parametrize("target", ["planned:scheduler", "planned:worker"])
def test_schedules_are_listed(target: str) -> None:
    listed = answer("schedules", "list", target)
    table = run("schedules", "list", target).stdout.splitlines()

    assert isinstance(listed, list)
    assert [(each["name"], each["queue"], each["paused"], each["last_fired"]) for each in listed] == [
        ("nightly", "default", False, None),
        ("hourly", "hours", False, None),
    ]
    assert "T03:00:00" in listed[0]["next_due"]
    assert table[0].split() == ["NAME", "EXPRESSION", "ZONE", "QUEUE", "NEXT", "LAST", "PAUSED"]
    assert len(table) == 3


def test_a_pause_lasts_until_it_is_ended(module: str) -> None:
    assert answer("schedules", "pause", module, "nightly") == {"schedule": "nightly", "paused": True}
    assert _paused(module) == [True, False]
    assert run("schedules", "resume", module, "nightly").stdout == "nightly fires again\n"
    assert _paused(module) == [False, False]


def test_a_triggered_job_is_in_its_queue(module: str) -> None:
    id = run("schedules", "trigger", module, "hourly").stdout.strip()

    assert len(id) == 32
    assert json.loads(run("size", "--url", "sqlite:///jobs.db", "hours", "--json").stdout) == {"hours": 1}


def test_a_preview_shows_as_many_times_as_asked(module: str) -> None:
    lines = run("schedules", "preview", module, "nightly", "-n", "3").stdout.splitlines()

    assert len(lines) == 3
    assert all("T03:00:00+0" in line for line in lines)


def test_a_name_that_is_not_there_is_refused_in_one_line(module: str) -> None:
    for command in ("pause", "resume", "trigger", "preview"):
        assert "hourly, nightly" in refusal("schedules", command, module, "weekly", status=1)


def test_a_target_without_a_scheduler_is_refused_in_one_line() -> None:
    assert "not an aqueue.Scheduler" in refusal("schedules", "list", "planned:no_scheduler", status=2)


def _paused(module: str) -> list[bool]:
    listed = answer("schedules", "list", module)
    assert isinstance(listed, list)
    return [each["paused"] for each in listed]
