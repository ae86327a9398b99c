"""Why a job is not running: the words as a table, the command, and what can't be known (WHY-1)."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.commands import Mail, Report, answer, fail, failed_ids, push, refusal, run

import aqueue
from aqueue import InvalidQueueArgument, Unsupported
from aqueue.diagnosis import Plight, explained
from aqueue.port import Found, QueueStats

pytest_plugins = ["support.command_fixtures"]
pytestmark = pytest.mark.rule("WHY-1")

ID = "0" * 31 + "1"


@pytest.mark.parametrize(
    ("found", "leased", "plight", "reason"),
    [
        (
            {"waited": 1.0},
            0,
            Plight.WAITING,
            "it is the next, ready for 1.0 s: no worker has come for it yet",
        ),
        (
            {"waited": 300.0},
            0,
            Plight.WAITING,
            (
                "it is the next, ready for 5.0 min: no worker holds any job of 'q': none seems to take jobs "
                "from it"
            ),
        ),
        (
            {"waited": 10.0, "ahead": 1},
            1,
            Plight.WAITING,
            "it is ready, and waits behind 1 job: workers hold 1 job of 'q' now",
        ),
        (
            {"waited": 10.0, "ahead": 17},
            4,
            Plight.WAITING,
            "it is ready, and waits behind 17 jobs: workers hold 4 jobs of 'q' now",
        ),
        (
            {"waited": 7200.0, "ahead": None},
            4,
            Plight.WAITING,
            "it has been ready for 2.0 h, with very many jobs before it: workers hold 4 jobs of 'q' now",
        ),
        (
            {"due_in": -9.0},
            0,
            Plight.WAITING,
            "its delay is over since 9.0 s: no worker holds any job of 'q': none seems to take jobs from it",
        ),
        (
            {"due_in": 90.0},
            0,
            Plight.DELAYED,
            "it is due in 90.0 s: pushed with a delay, or put off by a limit or Snooze",
        ),
        (
            {"due_in": 90.0, "attempts": 2},
            0,
            Plight.DELAYED,
            "it is due in 90.0 s: put back after 2 attempts, or put off by a limit or Snooze",
        ),
        (
            {"held_for": 30.0, "attempts": 2},
            1,
            Plight.LEASED,
            "a worker holds it, for attempt 3: its lease lasts for 30.0 s, unless it is renewed",
        ),
        (
            {"held_for": -12.0},
            0,
            Plight.LOST,
            (
                "its worker was lost in attempt 1: the lease ran out 12.0 s ago, and no worker has popped "
                "this queue since"
            ),
        ),
    ],
)
def test_what_is_known_is_said_in_words(
    found: dict[str, Any], leased: int, plight: Plight, reason: str
) -> None:
    stats = QueueStats(ready=1, delayed=0, leased=leased, failed=0)

    told = explained(ID, "q", Found(**found), stats)

    assert (told.plight, told.reason) == (plight, reason)


def test_a_place_far_back_in_the_line_is_not_counted_to_the_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    run("migrate", "--url", url)
    rows = ((number, "default", f"{number:032x}") for number in range(1, 100_103))
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.executemany(
            "INSERT INTO aqueue_jobs (seq, queue, id, payload, state, ready_at) VALUES (?, ?, ?, x'', 0, 0)",
            rows,
        )
        connection.commit()

    async def places() -> list[int | None]:
        async with aqueue.connect(url) as queue:
            return [(await queue.why(f"{number:032x}")).ahead for number in (1, 100_001, 100_102)]

    assert asyncio.run(places()) == [0, 100_000, None]


async def test_what_is_no_id_or_no_queue_is_refused() -> None:
    async with aqueue.connect("memory://") as queue:
        with pytest.raises(InvalidQueueArgument):
            await queue.why("no id")
        with pytest.raises(InvalidQueueArgument):
            await queue.why(ID, queues=["not fine"])


async def test_inline_stores_nothing_that_could_be_looked_for() -> None:
    async with aqueue.connect("inline://", handlers=[Report]) as queue:
        with pytest.raises(Unsupported, match="can't look for a job"):
            await queue.why(ID)


async def test_a_job_that_failed_elsewhere_is_found_in_the_failed_store(tmp_path: Path) -> None:
    async with aqueue.connect("memory://", failed=f"sqlite:///{tmp_path / 'failed.db'}") as queue:
        id = await queue.push(Report(1))
        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        await queue.fail(delivery)

        told = await queue.why(id)
        elsewhere = await queue.why(id, queues=["other"])

    assert (told.plight, told.queue) == (Plight.FAILED, "default")
    assert elsewhere.plight is Plight.UNKNOWN


# the command


def ids_of(url: str, *jobs: object, delay: float = 0) -> list[str]:
    async def act() -> list[str]:
        async with aqueue.connect(url) as queue:
            return await queue.push_many(jobs, delay=delay)

    return asyncio.run(act())


@pytest.mark.rule("CLI-1")
def test_the_command_says_it_in_one_line(url: str) -> None:
    _, id = ids_of(url, Report(1), Report(2))

    result = run("why", id)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "waiting on default: it is ready, and waits behind 1 job: no worker has come for it yet\n"
    )


@pytest.mark.rule("CLI-1")
def test_the_command_as_json_has_the_numbers(url: str) -> None:
    [id] = ids_of(url, Report(1), delay=600)

    told = answer("why", id, "--queue", "default")

    assert isinstance(told, dict)
    assert (told["id"], told["plight"], told["queue"], told["attempt"]) == (id, "delayed", "default", 1)
    assert 500 < told["due_in"] <= 600


@pytest.mark.rule("CLI-1")
def test_a_failed_job_is_explained_without_control_characters(url: str) -> None:
    fail(url, Mail("a@b.c"))
    [id] = failed_ids()

    told = answer("why", id)
    printed = run("why", id).stdout

    assert isinstance(told, dict)
    assert (told["plight"], told["error_type"], told["attempt"]) == ("failed", "ValueError", 1)
    assert told["failed_at"] is not None
    assert "\x1b" not in printed
    assert "aqueue failed show" in printed


@pytest.mark.rule("CLI-1")
def test_a_job_that_is_not_there_is_status_1_and_said_on_stdout(url: str) -> None:
    push(url, Report(1))

    result = run("why", ID)

    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("unknown: no job with this id")


@pytest.mark.rule("CLI-1")
def test_what_is_no_id_or_no_reachable_store_is_refused_in_one_line(url: str) -> None:
    assert "32 lower-case" in refusal("why", "abc", status=1)
    assert "never sent" in refusal("why", ID, "--url", "redis://127.0.0.1:1", status=1)
