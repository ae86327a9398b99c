"""`aqueue doctor`: what it prints, its status, what it keeps to itself, and what it leaves alone."""

from pathlib import Path

import pytest
from servers import redis
from servers.reach import check_reachable
from support.commands import Report, answer, push, refusal, run

pytest_plugins = ["support.command_fixtures"]
pytestmark = pytest.mark.rule("CLI-1", "DOCTOR-1")


def test_a_store_without_problems_has_status_0_and_its_warnings_explained(tmp_path: Path) -> None:
    result = run("doctor", f"file://{tmp_path / 'jobs'}?fsync=none")

    lines = [line.split(None, 2) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (0, "")
    assert ["warning", "fsync", "none"] in lines
    assert "-> leave fsync=none out of the URL" in result.stdout


def test_as_json_every_finding_has_its_words(url: str) -> None:
    told = answer("doctor")

    assert isinstance(told, dict)
    assert told["ok"] is True
    assert {"check", "severity", "found", "meaning", "advice"} == set(told["findings"][0])
    assert {each["severity"] for each in told["findings"]} <= {"ok", "warning"}


def test_a_problem_is_status_1(tmp_path: Path) -> None:
    check_reachable("redis", redis.redis_missing())

    result = run("doctor", redis.shared_server().url)

    assert result.exit_code == 1
    assert "problem  persistence" in result.stdout
    assert result.stderr == ""


def test_a_store_out_of_reach_is_a_problem_and_its_password_is_not_told() -> None:
    result = run("doctor", "redis://:hidden-word@127.0.0.1:1")

    assert result.exit_code == 1
    assert result.stdout.startswith("problem  reachable")
    assert "hidden-word" not in result.stdout + result.stderr


def test_a_database_of_a_newer_aqueue_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    path = tmp_path / "jobs.db"
    run("migrate", "--url", f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO aqueue_schema VALUES (99, 0)")
        connection.commit()

    result = run("doctor", f"sqlite:///{path}")

    assert result.exit_code == 1
    assert "version 99" in result.stdout


def test_what_the_store_warns_of_when_it_opens_is_told_as_a_finding_alone(tmp_path: Path) -> None:
    result = run("doctor", f"sqlite:///{tmp_path / 'jobs.db'}?journal=wal")

    assert "journal" in result.stdout
    assert result.stderr == ""


def test_signing_keys_in_the_environment_are_seen(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generated = answer("keys", "generate", "--id", "k1")
    assert isinstance(generated, dict)
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"k1={generated['secret']}")

    told = answer("doctor")

    assert isinstance(told, dict)
    assert {
        "check": "signing",
        "severity": "ok",
        "found": "key k1",
        "meaning": "",
        "advice": "",
    } in told["findings"]


def test_jobs_are_left_alone(url: str) -> None:
    push(url, Report(1))

    run("doctor", "--queue", "default", "--queue", "other")

    assert answer("stats") == {
        "default": {
            "ready": 1,
            "delayed": 0,
            "leased": 0,
            "failed": 0,
            "oldest_age": pytest.approx(0, abs=60),
        }
    }


def test_a_probe_goes_there_and_back_on_a_queue_of_its_own(url: str) -> None:
    push(url, Report(1))

    result = run("doctor", "--probe")

    assert "pushed, taken and acknowledged" in result.stdout
    assert answer("size", "default", "aqueue-doctor") == {"default": 1, "aqueue-doctor": 0}


def test_a_probe_clears_away_what_an_earlier_one_left(url: str) -> None:
    push(url, Report(1), Report(2), queue="aqueue-doctor")

    assert "pushed, taken and acknowledged" in run("doctor", "--probe").stdout
    assert answer("size", "aqueue-doctor") == {"aqueue-doctor": 0}


def test_the_store_is_named_once(url: str) -> None:
    assert "once" in refusal("doctor", "memory://", "--url", "memory://", status=2)
    assert "not a queue name" in refusal("doctor", "--queue", "not fine", status=1)
