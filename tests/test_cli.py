"""The command line in this process: what it counts and clears, what it refuses, and how it says so."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.commands import Mail, Report, answer, fail, push, refusal, run

from aqueue.cli import main

pytest_plugins = ["support.command_fixtures"]
pytestmark = pytest.mark.rule("CLI-1")

DOCS = Path(__file__).parent.parent / "docs" / "cli.md"


def test_size_counts_what_waits_on_each_queue_in_the_order_asked(url: str) -> None:
    push(url, Report(1), Report(2))
    push(url, Report(3), queue="mails", delay=60)

    assert run("size", "mails", "default").stdout == "QUEUE    SIZE\nmails       1\ndefault     2\n"


def test_size_as_json_maps_each_queue_to_its_size(url: str) -> None:
    push(url, Report(1), Report(2))

    assert run("size", "default", "empty", "--json").stdout == '{"default": 2, "empty": 0}\n'


def test_without_a_name_size_and_stats_look_at_the_default_queue(url: str) -> None:
    push(url, Report(1))

    assert answer("size") == {"default": 1}
    assert answer("stats") == {
        "default": {
            "ready": 1,
            "delayed": 0,
            "leased": 0,
            "failed": 0,
            "oldest_age": pytest.approx(0, abs=60),
        }
    }


def test_stats_are_a_table_of_numbers_and_ages(url: str) -> None:
    push(url, Report(1), delay=60)
    fail(url, Mail("a@b.c"), queue="mails")

    lines = run("stats", "default", "mails").stdout.splitlines()

    assert lines[0].split() == ["QUEUE", "READY", "DELAYED", "LEASED", "FAILED", "OLDEST"]
    assert lines[1].split() == ["default", "0", "1", "0", "0", "-"]
    assert lines[2].split() == ["mails", "0", "0", "0", "1", "-"]


@pytest.mark.rule("NAME-1")
@pytest.mark.parametrize("command", [("size",), ("stats",)])
def test_a_bad_or_repeated_name_is_refused_in_one_line(url: str, command: tuple[str, ...]) -> None:
    assert "not a queue name" in refusal(*command, "fine", "not fine", status=1)
    assert "repeated" in refusal(*command, "twice", "twice", status=1)


# clear


@pytest.mark.rule("CLEAR-1")
def test_clear_discards_what_waits_on_every_queue_it_names(url: str) -> None:
    push(url, Report(1), Report(2))
    push(url, Report(3), queue="mails", delay=60)
    push(url, Report(4), queue="kept")

    assert answer("clear", "--queue", "default", "--queue", "mails", "--force") == {"default": 2, "mails": 1}
    assert answer("size", "default", "mails", "kept") == {"default": 0, "mails": 0, "kept": 1}


@pytest.mark.rule("CLEAR-1")
def test_clear_without_force_refuses(url: str) -> None:
    push(url, Report(1))

    assert "--force" in refusal("clear", "--queue", "default", status=1)
    assert answer("size") == {"default": 1}


@pytest.mark.rule("CLEAR-1", "NAME-1")
@pytest.mark.parametrize("spoiler", ["not a name", "default"])
def test_clear_checks_the_whole_list_before_it_touches_anything(url: str, spoiler: str) -> None:
    push(url, Report(1))

    refusal("clear", "--queue", "default", "--queue", spoiler, "--force", status=1)

    assert answer("size") == {"default": 1}


@pytest.mark.rule("CLEAR-1")
def test_clear_asks_for_the_capability_before_it_looks_at_the_names(odd_store: str) -> None:
    told = refusal("clear", "--url", odd_store, "--queue", "not a name", "--force", status=1)

    assert "can't clear" in told


def test_clear_in_words_is_a_table(url: str) -> None:
    push(url, Report(1))

    assert run("clear", "--queue", "default", "--force").stdout == "QUEUE    CLEARED\ndefault        1\n"


# migrate


def test_migrate_can_be_repeated(url: str) -> None:
    assert answer("migrate") == {"migrated": True}
    assert run("migrate").stdout.endswith("store is up to date\n")


# mistakes


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("size", "--nonsense"),
        ("clear",),
        ("failed", "show"),
        ("failed", "retry"),
        ("failed", "retry", "a", "--all"),
        ("failed", "retry", "a", "--queue", "default"),
        ("failed", "discard"),
        ("failed", "purge"),
        ("failed", "list", "--limit", "0"),
        ("size", "--url", "memory://", "--connection", "other"),
        ("worker",),
        ("worker", "no_colon"),
        ("worker", "app:worker", "--loop", "tokio"),
    ],
)
def test_a_wrong_use_is_one_line_and_status_2(url: str, args: tuple[str, ...]) -> None:
    assert "--help" in refusal(*args, status=2)


@pytest.mark.parametrize("args", [(), ("failed",)])
def test_no_command_shows_the_commands(args: tuple[str, ...]) -> None:
    result = run(*args)

    assert "Commands:" in result.output
    assert result.exit_code in (0, 2)  # 2 from click 8.2 on


def test_a_store_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AQUEUE_URL", raising=False)

    assert "AQUEUE_URL" in refusal("size", status=1)
    assert "AQUEUE_OTHER_URL" in refusal("size", "--connection", "other", status=1)


def test_a_named_connection_comes_from_its_own_variable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    push(url, Report(1))
    monkeypatch.setenv("AQUEUE_OTHER_URL", url)
    monkeypatch.setenv("AQUEUE_URL", "memory://")

    assert answer("size", "--connection", "other") == {"default": 1}
    assert answer("size") == {"default": 0}
    assert answer("size", "--url", url) == {"default": 1}


@pytest.mark.parametrize(
    "url",
    [
        "nonsense://bob:hunter2@host/",
        "memory://bob:hunter2@host/?password=hunter2",
        "sqlite://bob:hunter2@host/no/such/dir/x.db?token=hunter2",
        "postgres:bob:hunter2@host",
        "memory://bob:hunter2@host:hunter2/",
    ],
)
def test_a_secret_in_a_url_is_never_shown(url: str) -> None:
    told = refusal("size", "--url", url, status=1)

    assert "hunter2" not in told


def test_a_driver_is_quoted_without_the_secrets_it_quotes(odd_store: str) -> None:
    told = refusal("size", "--url", odd_store.replace("://", "://bob:hunter%2F2@"), status=1)

    assert "was never sent" in told
    assert "no route to … as bob" in told
    assert "hunter" not in told


@pytest.fixture
def odd_store(desk: Path) -> str:
    """A third party's store that can't be reached, and couldn't clear a queue either."""
    (desk / "oddstore.py").write_text(
        """
import time
from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.port import NotDispatched

class OddStore(MemoryBackend):
    clear = None

    async def open(self):
        raise NotDispatched from OSError(f"no route to {self.url.password} as {self.url.username}")

def from_url(url, options):
    store = OddStore(Shelf(), lease=options.lease, clock=time.time)
    store.url = url
    return store
"""
    )
    info = desk / "oddstore-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oddstore\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[aqueue.backends]\noddstore = oddstore:from_url\n")
    sys.path.insert(0, str(desk))
    return "oddstore://host"


# the documentation


def every_command(group: click.Command = main, path: str = "aqueue") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items() if isinstance(group, click.Group) else ():
        yield f"{path} {name}", command
        yield from every_command(command, f"{path} {name}")


def test_the_documentation_names_every_command_and_option() -> None:
    text = DOCS.read_text()

    for path, command in every_command():
        assert path in text
        for parameter in command.params:
            assert all(option in text for option in parameter.opts if option.startswith("-")), parameter


def test_the_examples_of_the_documentation_are_true(url: str) -> None:
    push(url, Report(1), Report(2))
    push(url, Report(3), delay=60)

    for command, shown in examples():
        if not command.startswith("worker"):
            told = run(*shlex.split(command))
            assert without_ages(told.output) == without_ages(shown), command


def examples() -> Iterator[tuple[str, str]]:
    """Each command of the documentation's console blocks, and what it is said to print."""
    for block in re.findall(r"```console\n(.*?)```", DOCS.read_text(), re.DOTALL):
        yield from re.findall(r"^\$ aqueue (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)


def without_ages(text: str) -> str:
    return re.sub(r"\d+\.\d s", "0.0 s", text)


def test_every_command_prints_json_on_request() -> None:
    for path, command in every_command():
        if not isinstance(command, click.Group):
            assert any("--json" in parameter.opts for parameter in command.params), path
