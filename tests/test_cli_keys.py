"""`aqueue keys …`: keys that can be used as printed, counted jobs, and a retirement that changes nothing."""

import asyncio
import json
from pathlib import Path

import pytest
from support.commands import Report, answer, fail, failed_ids, push, refusal, run

import aqueue

pytest_plugins = ["support.command_fixtures"]
pytestmark = [pytest.mark.rule("CLI-1"), pytest.mark.rule("SIGN-3")]

OLD = "old=" + "b2xk" * 12
NEW = "new=" + "bmV3" * 12


@pytest.fixture(autouse=True)
def keyless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test says which keys there are."""
    for name in ("SIGNING_KEYS", "SIGNING_KEYS_FILE", "ENCRYPT", "ACCEPT_UNSIGNED"):
        monkeypatch.delenv(f"AQUEUE_{name}", raising=False)


def test_a_generated_key_is_a_keyring_as_it_is_printed() -> None:
    printed = run("keys", "generate", "--id", "2026-11").stdout

    keyring = aqueue.Keyring.parse(printed)

    assert keyring.active == "2026-11"
    assert len(keyring.keys["2026-11"]) == 32
    assert printed != run("keys", "generate", "--id", "2026-11").stdout


def test_a_generated_key_without_a_name_is_called_after_the_day() -> None:
    made = answer("keys", "generate")

    assert isinstance(made, dict)
    assert list(made) == ["id", "secret"]
    assert aqueue.Keyring.parse(f"{made['id']}={made['secret']}").active[:2] == "20"


def test_a_bad_key_id_is_refused_in_one_line() -> None:
    assert "not a key id" in refusal("keys", "generate", "--id", "a.b", status=1)


def test_the_inventory_counts_by_key_state_and_queue(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    push(url, Report(1), Report(2))
    push_with(OLD, url, Report(3), delay=60)
    fail(url, Report(4), queue="reports")

    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"{NEW},{OLD}")

    assert answer("keys", "inventory") == [
        {"key": "new", "waiting": 0, "delayed": 0, "leased": 0, "failed": 0},
        {"key": "old", "waiting": 0, "delayed": 1, "leased": 0, "failed": 0},
        {"key": None, "waiting": 2, "delayed": 0, "leased": 0, "failed": 1},
    ]
    lines = run("keys", "inventory", "reports").stdout.splitlines()
    assert lines[0].split() == ["KEY", "WAITING", "DELAYED", "LEASED", "FAILED"]
    assert [line.split() for line in lines[1:]] == [
        ["new", "0", "0", "0", "0"],
        ["old", "0", "0", "0", "0"],
        ["(unsigned)", "0", "0", "0", "1"],
    ]


def test_a_key_that_still_seals_something_is_not_retired(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    push_with(OLD, url, Report(1), delay=60)
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"{NEW},{OLD}")
    before = answer("keys", "inventory")

    said = refusal("keys", "retire", "old", status=1)

    assert said == "aqueue: 1 job is sealed by 'old': 0 waiting, 1 delayed, 0 leased, 0 failed\n"
    assert answer("keys", "inventory") == before


def test_a_failed_job_is_counted_until_it_is_dealt_with(url: str) -> None:
    fail(url, Report(1))

    assert "1 failed" in refusal("keys", "retire", "--unsigned", status=1)
    run("failed", "discard", *failed_ids())

    assert run("keys", "retire", "--unsigned").stdout == "every job is sealed: accept_unsigned can end\n"


def test_a_retired_key_may_go(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"{NEW},{OLD}")
    push_with(NEW, url, Report(1))

    assert run("keys", "retire", "old").stdout == (
        "old seals nothing any more: it can be taken out of every configuration\n"
    )
    assert answer("keys", "retire", "old") == {"key": "old", "retired": True}
    assert "active" in refusal("keys", "retire", "new", status=1)


@pytest.mark.parametrize("arguments", [(), ("old", "--unsigned")])
def test_retire_wants_one_thing_to_retire(url: str, arguments: tuple[str, ...]) -> None:
    assert "--unsigned" in refusal("keys", "retire", *arguments, status=2)


def test_keys_may_be_in_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text(f"# rotated in May\n{NEW}\n\n{OLD}\n")
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"@{tmp_path / 'keys'}")
    assert [use["key"] for use in inventory()] == ["new", "old", None]

    monkeypatch.delenv("AQUEUE_SIGNING_KEYS")
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS_FILE", str(tmp_path / "keys"))
    assert [use["key"] for use in inventory()] == ["new", "old", None]


def test_a_store_of_failed_jobs_elsewhere_is_counted_as_well(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"sqlite:///{tmp_path / 'failed.db'}"
    monkeypatch.setenv("AQUEUE_FAILED_STORE", elsewhere)
    fail(elsewhere, Report(1))

    assert inventory()[-1] == {"key": None, "waiting": 0, "delayed": 0, "leased": 0, "failed": 1}


def inventory() -> list[dict[str, object]]:
    counted = json.loads(run("keys", "inventory", "--json").stdout)
    assert isinstance(counted, list)
    return counted


def push_with(keys: str, url: str, *jobs: object, delay: float = 0) -> None:
    async def push_all() -> None:
        async with aqueue.connect(url, keyring=aqueue.Keyring.parse(keys)) as queue:
            await queue.push_many(jobs, delay=delay)

    asyncio.run(push_all())
