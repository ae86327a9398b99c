"""Signing keys as they are written and configured: read strictly, at the edge alone, and never shown."""

import logging
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest

import aqueue
from aqueue import InvalidQueueArgument, Keyring, connect_from_env
from aqueue.contract.signing import written_key

pytestmark = pytest.mark.rule("SIGN-1")

SECRET = "c2VjcmV0" * 8
OTHER = "b3RoZXIh" * 8


@aqueue.job(name="env.note")
class Note:
    text: str


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own environment counts."""
    for name in ("SIGNING_KEYS", "SIGNING_KEYS_FILE", "ENCRYPT", "ACCEPT_UNSIGNED", "FAILED_STORE"):
        monkeypatch.delenv(f"AQUEUE_{name}", raising=False)
    monkeypatch.setenv("AQUEUE_URL", "memory://")


def test_keys_are_written_first_the_active_one() -> None:
    keyring = Keyring.parse(f"2026-11={SECRET}, 2026-05={OTHER}")

    assert keyring.active == "2026-11"
    assert keyring.keys == {"2026-11": b"secret" * 8, "2026-05": b"other!" * 8}
    assert not keyring.encrypt


@pytest.mark.parametrize(
    "text",
    [f"a={SECRET}\nb={OTHER}\n", f"\n  a={SECRET}==\r\n# b=old\n\n,b={OTHER},", f"a={SECRET},b={OTHER}"],
)
def test_lines_commas_and_remarks_are_all_fine(text: str) -> None:
    assert Keyring.parse(text) == Keyring(active="a", keys={"a": b"secret" * 8, "b": b"other!" * 8})


def test_what_was_written_is_read_again() -> None:
    secret = bytes(range(250, 256)) * 6

    assert Keyring.parse(written_key("k", secret)).keys["k"] == secret


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no signing key"),
        (" \n#a=x\n", "no signing key"),
        (SECRET, "id=secret"),
        (f"a b={SECRET}", "id=secret"),
        (f"={SECRET}", "id=secret"),
        (f"a={SECRET},a={OTHER}", "given twice"),
        ("a=", "not base64url"),
        (f"a={SECRET}!", "not base64url"),
        (f"a={SECRET}A", "not base64url"),
        (f"a={SECRET[:60]}+/==", "not base64url"),
        (f"a={SECRET} {OTHER}", "not base64url"),
        ("a=c2VjcmV0", "fewer than 32 bytes"),
    ],
)
def test_what_is_no_keyring_is_refused_and_not_repeated(text: str, problem: str) -> None:
    with pytest.raises(InvalidQueueArgument, match=problem) as caught:
        Keyring.parse(text)

    assert "c2VjcmV0" not in str(caught.value)
    assert caught.value.__cause__ is None


# -- the environment ------------------------------------------------------------------------------------


async def payload_of(queue: aqueue.Queue) -> bytes:
    async with queue:
        await queue.push(Note("hello"))
        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        assert delivery.job(Note) == Note("hello")
        return delivery.reserved.payload


async def test_connect_from_env_seals_with_the_first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"2026-11={SECRET},2026-05={OTHER}")

    assert (await payload_of(connect_from_env())).startswith(b"aq1.2026-11.")


@pytest.mark.parametrize("variable", ["AQUEUE_SIGNING_KEYS", "AQUEUE_SIGNING_KEYS_FILE"])
async def test_keys_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    (tmp_path / "keys").write_text(f"a={SECRET}\n")
    monkeypatch.setenv(variable, f"{'' if variable.endswith('FILE') else '@'}{tmp_path / 'keys'}")

    assert (await payload_of(connect_from_env())).startswith(b"aq1.a.")


async def test_a_named_connection_has_its_own_keys_or_those_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OWN", "COMMON", "NONE"):
        monkeypatch.setenv(f"AQUEUE_{name}_URL", "memory://")
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"all={SECRET}")
    monkeypatch.setenv("AQUEUE_OWN_SIGNING_KEYS", f"own={OTHER}")
    monkeypatch.setenv("AQUEUE_NONE_SIGNING_KEYS", "")

    assert (await payload_of(connect_from_env("own"))).startswith(b"aq1.own.")
    assert (await payload_of(connect_from_env("common"))).startswith(b"aq1.all.")
    assert (await payload_of(connect_from_env("none"))).startswith(b"{")


@pytest.mark.rule("SIGN-4")
async def test_arguments_are_encrypted_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"a={SECRET}")
    monkeypatch.setenv("AQUEUE_ENCRYPT", "true")

    payload = await payload_of(connect_from_env())

    assert b"hello" not in payload
    assert b'"$aes":' in payload


@pytest.mark.parametrize(("variable", "value"), [("ENCRYPT", "perhaps"), ("ACCEPT_UNSIGNED", "perhaps")])
def test_an_answer_that_is_no_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"a={SECRET}")
    monkeypatch.setenv(f"AQUEUE_{variable}", value)

    with pytest.raises(InvalidQueueArgument, match=f"AQUEUE_{variable} must be"):
        connect_from_env()


def test_encrypting_without_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_ENCRYPT", "1")

    with pytest.raises(InvalidQueueArgument, match="AQUEUE_SIGNING_KEYS"):
        connect_from_env()


@pytest.mark.rule("SIGN-2")
@pytest.mark.parametrize(
    ("said", "is_read"),
    [
        ("true", True),
        ("YES", True),
        ("false", False),
        ("", False),
        ("2125-01-01T00:00:00+00:00", True),
        ("2020-01-01T00:00:00+02:00", False),
    ],
)
async def test_the_cut_over_is_said_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, said: str, is_read: bool
) -> None:
    store = f"memory://{uuid4().hex}"
    monkeypatch.setenv("AQUEUE_URL", store)
    async with aqueue.connect(store) as plain:
        await plain.push(Note("unsealed"))
    monkeypatch.setenv("AQUEUE_SIGNING_KEYS", f"a={SECRET}")
    monkeypatch.setenv("AQUEUE_ACCEPT_UNSIGNED", said)

    async with connect_from_env() as queue:
        if is_read:
            assert await queue.pop(timeout=5) is not None
        else:
            with pytest.raises(aqueue.MalformedJobSettled):
                await queue.pop(timeout=5)


@pytest.mark.rule("SIGN-2")
@pytest.mark.parametrize("until", [datetime(2030, 1, 1), "tomorrow", 3])  # noqa: DTZ001 - naive is the point
def test_a_cut_over_without_a_clear_end_is_refused(until: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="accept_unsigned"):
        aqueue.connect("memory://", keyring=Keyring.parse(f"a={SECRET}"), accept_unsigned=until)  # type: ignore[arg-type]  # refused


async def test_another_store_for_the_failed_jobs_is_said_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AQUEUE_FAILED_STORE", "memory://failed-elsewhere")
    async with connect_from_env() as queue, aqueue.connect("memory://failed-elsewhere") as keeper:
        await queue.push(Note("bad"))
        delivery = await queue.pop(timeout=5)
        assert delivery is not None

        await queue.fail(delivery)

        assert await keeper.failed.count() == 1


# -- not one byte of a secret --------------------------------------------------------------------------


BROKEN = {
    "no separator": {"AQUEUE_SIGNING_KEYS": SECRET},
    "bad base64": {"AQUEUE_SIGNING_KEYS": f"a={SECRET}!"},
    "too short": {"AQUEUE_SIGNING_KEYS": "a=c2VjcmV0"},
    "twice": {"AQUEUE_SIGNING_KEYS": f"a={SECRET},a={SECRET}"},
    "a key where a path is due": {"AQUEUE_SIGNING_KEYS_FILE": f"a={SECRET}"},
    "a file of other bytes": {"AQUEUE_SIGNING_KEYS": "@binary"},
    "good keys, bad lease": {"AQUEUE_SIGNING_KEYS": f"a={SECRET}", "AQUEUE_LEASE_SECONDS": "0"},
    "good keys, bad answer": {"AQUEUE_SIGNING_KEYS": f"a={SECRET}", "AQUEUE_ENCRYPT": "perhaps"},
    "good keys, bad url": {"AQUEUE_SIGNING_KEYS": f"a={SECRET}", "AQUEUE_URL": "nothing://"},
}


@pytest.mark.parametrize("settings", BROKEN.values(), ids=BROKEN)
def test_no_error_shows_a_secret_even_to_a_tool_that_prints_variables(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\xff\xfe" + SECRET.encode())
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(InvalidQueueArgument) as caught:
        connect_from_env()

    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    ours = shown.partition("in connect_from_env")[2]
    assert ours
    assert "c2VjcmV0" not in ours
    assert "secretsecret" not in shown


def test_nothing_that_holds_keys_shows_them(caplog: pytest.LogCaptureFixture) -> None:
    keyring = Keyring.parse(f"a={SECRET}", encrypt=True)
    caplog.set_level(logging.DEBUG)
    queue = aqueue.connect("memory://", keyring=keyring)
    shows: list[Callable[[object], str]] = [repr, str, "{}".format]

    shown = [show(thing) for show in shows for thing in (keyring, keyring.keys, queue, queue.keys, [keyring])]
    logging.getLogger("application").debug("%s %r %s", keyring, keyring.keys, vars(queue))

    text = " ".join([*shown, caplog.text])
    assert "'a'" in text
    assert "secret" not in text.replace("secrets hidden", "")
    assert "c2VjcmV0" not in text
