"""Connection URLs: read to the last option, and their secrets never shown."""

from collections.abc import Callable

import pytest

from aqueue.backends.memory import MemoryBackend
from aqueue.connection import connect, connect_from_env, open_backend
from aqueue.errors import AqueueError, InvalidQueueArgument
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL, choice, parse_url

OPTIONS = StoreOptions(lease=60, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory://", StoreURL(scheme="memory")),
        ("memory://name", StoreURL(scheme="memory", hosts=(("name", None),))),
        ("SQLITE:///jobs.db", StoreURL(scheme="sqlite", path="/jobs.db")),
        ("sqlite:////var/a%20b.db", StoreURL(scheme="sqlite", path="//var/a b.db")),
        ("redis://h:6379/0", StoreURL(scheme="redis", hosts=(("h", 6379),), path="/0")),
        (
            "redis+sentinel://u:p@a:1,b:2,c/main?db=3",
            StoreURL(
                scheme="redis+sentinel", username="u", password="p", hosts=(("a", 1), ("b", 2), ("c", None)),
                path="/main", options={"db": "3"},
            ),
        ),
        (
            "amqp://guest:guest@h/%2F",
            StoreURL(scheme="amqp", username="guest", password="guest", hosts=(("h", None),), path="//"),
        ),
        ("postgresql://[::1]:5432/db", StoreURL(scheme="postgresql", hosts=(("::1", 5432),), path="/db")),
        ("postgresql://[fe80::1]/db", StoreURL(scheme="postgresql", hosts=(("fe80::1", None),), path="/db")),
        (
            "sqs://eu-central-1?endpoint=",
            StoreURL(scheme="sqs", hosts=(("eu-central-1", None),), options={"endpoint": ""}),
        ),
        ("redis://:secret@h", StoreURL(scheme="redis", password="secret", hosts=(("h", None),))),
        (
            "redis://u%40x:p%3A%2F%40w@h",
            StoreURL(scheme="redis", username="u@x", password="p:/@w", hosts=(("h", None),)),
        ),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(text: str, expected: StoreURL) -> None:
    assert parse_url(text) == expected


@pytest.mark.parametrize("text", ["", "memory", "memory:", "jobs.db", "/var/jobs.db", None, 7, b"memory://"])
def test_what_is_no_url_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(InvalidQueueArgument, match=r"sqlite:///jobs\.db"):
        parse_url(text)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("port", ["x", "-1", "65536", "6379x", "٣", "1 2"])
def test_a_bad_port_is_refused_without_repeating_it(port: str) -> None:
    with pytest.raises(InvalidQueueArgument, match="port") as caught:
        parse_url(f"redis://u:hunter2@host:{port}/0")

    assert "hunter2" not in str(caught.value)


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(InvalidQueueArgument, match="'a' is given twice"):
        parse_url("redis://h?a=1&b=2&a=3")


def test_options_are_read_and_unknown_ones_refused_with_the_known() -> None:
    url = parse_url("sqlite:///x?journal=WAL&wait=5")

    readers: dict[str, Callable[[str], object]] = {"journal": choice("wal", "delete"), "wait": int}
    assert url.read_options(readers) == {"journal": "wal", "wait": 5}
    with pytest.raises(
        InvalidQueueArgument, match=r"unknown option\(s\) in the sqlite:// URL: wait; known: journal, sync"
    ):
        url.read_options({"journal": str, "sync": str})
    with pytest.raises(InvalidQueueArgument, match="known: none"):
        url.read_options({})


def test_an_unusable_option_is_named_without_its_value() -> None:
    url = parse_url("sqlite:///x?journal=hunter2")

    with pytest.raises(
        InvalidQueueArgument, match="'journal' has an unusable value: use one of wal, delete"
    ) as caught:
        url.read_options({"journal": choice("wal", "delete")})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@h/0", "redis://:hunter2@h", "redis://hunter2@h", "redis://h?password=hunter2",
        "nowhere://user:hunter2@h", "memory://u:hunter2@x?nope=hunter2", "sqlite:///x?hunter2",
    ],
)  # fmt: skip
def test_a_secret_is_never_shown(text: str) -> None:
    url = parse_url(text)
    shown = [str(url), repr(url), f"{url}"]
    if "hunter2" not in url.options:  # an option's name is no secret, its value may be
        try:
            shown.append(repr(connect(text)))
        except AqueueError as error:  # no such scheme or option, or its driver is not installed
            shown += [str(error), repr(error), repr(error.__cause__)]

    assert not any("hunter2" in one for one in shown)


def test_a_queue_does_not_show_its_url() -> None:
    assert repr(connect("memory://hunter2")) == "<Queue on memory, closed>"


def test_an_unknown_scheme_lists_the_known() -> None:
    with pytest.raises(InvalidQueueArgument, match=r"unknown URL scheme 'kafka'; known: .*memory.*sqlite"):
        connect("kafka://h")


def test_an_option_no_backend_knows_is_refused_when_connecting() -> None:
    with pytest.raises(InvalidQueueArgument, match="unknown option"):
        connect("memory://x?lease=5")


def test_a_named_memory_is_shared_and_a_nameless_one_private() -> None:
    def shelf(url: str) -> object:
        backend = open_backend(url, OPTIONS)
        assert isinstance(backend, MemoryBackend)
        return backend._shelf

    assert shelf("memory://shared-by-name") is shelf("memory://shared-by-name")
    assert shelf("memory://") is not shelf("memory://")
    assert shelf("memory://") is not shelf("memory://shared-by-name")


def test_the_environment_names_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_URL", "memory://")
    monkeypatch.setenv("AQUEUE_LEDGER_URL", "memory://ledger")
    monkeypatch.setenv("AQUEUE_LEDGER_LEASE_SECONDS", "7.5")

    assert connect_from_env().lease == 60.0
    assert connect_from_env("ledger").lease == 7.5


@pytest.mark.parametrize(("name", "variable"), [(None, "AQUEUE_URL"), ("fast-lane", "AQUEUE_FAST_LANE_URL")])
def test_a_missing_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str | None, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)

    with pytest.raises(InvalidQueueArgument, match=f"set {variable} to a connection URL"):
        connect_from_env(name)


@pytest.mark.parametrize("text", ["soon", "nan", "-5", "0"])
def test_a_bad_lease_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AQUEUE_URL", "memory://")
    monkeypatch.setenv("AQUEUE_LEASE_SECONDS", text)

    with pytest.raises(InvalidQueueArgument):
        connect_from_env()


@pytest.mark.rule("CALL-1")
@pytest.mark.parametrize(
    "options",
    [
        {"call_timeout": 0},
        {"call_timeout": -1},
        {"lease": 0},
        {"lease": float("nan")},
        {"keep_failed": -1},
        {"keep_failed": True},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidQueueArgument):
        connect("memory://", **options)  # type: ignore[arg-type]  # wrong on purpose
