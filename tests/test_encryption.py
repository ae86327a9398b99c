"""Encrypted arguments: bound to their job and key, pinned on the wire, and an extra by name (SIGN-4)."""

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aqueue
from aqueue.contract.encryption import decrypted, encrypted, is_encrypted
from aqueue.contract.envelope import Envelope, Malformed, decode_envelope, encoded
from aqueue.contract.signing import Keyring
from aqueue.sealing import envelope_closer, envelope_opener

pytestmark = pytest.mark.rule("SIGN-4")

SECRET = b"s" * 32
RING = Keyring(active="a", keys={"a": SECRET, "b": b"t" * 32}, encrypt=True)
NONCE = bytes(range(12))


@aqueue.job(name="crypto.note")
class Note:
    text: str


class Pretend:
    """Stands for AES-GCM where only what is handed to a cipher matters."""

    def __init__(self) -> None:
        self.bound: list[bytes | None] = []

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes:
        self.bound.append(associated_data)
        return data[::-1]

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes:
        if associated_data != self.bound[0]:
            raise ValueError("bound to another job")
        return data[::-1]


def envelope(**changes: Any) -> Envelope:
    made = Envelope(1, "0" * 31 + "1", "note", 1_800_000_000.25, msgspec.Raw(b'{"text":"hi"}'), 3, {"k": "v"})
    return msgspec.structs.replace(made, **changes)


def aes() -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = RING.encryption_key("a")
    assert key is not None
    return AESGCM(key)


def test_the_wire_form_is_pinned() -> None:
    """Other versions must still decrypt what this one wrote: key, binding and encoding may not drift."""
    hidden = encrypted(envelope(), aes(), NONCE)

    assert bytes(hidden.args) == PINNED
    assert decrypted(hidden, aes()) == envelope()


PINNED = b'{"$aes":"AAECAwQFBgcICQoLbcj9XuuwVLUKApNkLZka04M2xOu_8m5JivM-puI="}'


@given(args=st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=5))
def test_what_was_encrypted_comes_back(args: dict[str, str]) -> None:
    close, open_ = envelope_closer(RING), envelope_opener(RING, accept_unsigned=False, clock=lambda: 0.0)
    made = envelope(args=msgspec.Raw(msgspec.json.encode(args)))

    assert open_(close(made)) == made


def test_equal_jobs_look_different_and_show_only_their_length() -> None:
    close = envelope_closer(RING)
    secret = b'{"text":"attack at dawn"}'
    stored = {close(envelope(args=msgspec.Raw(secret))) for _ in range(100)}

    assert len(stored) == 100
    assert len({len(payload) for payload in stored}) == 1
    assert not any(b"attack" in payload for payload in stored)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "0" * 31 + "2"},
        {"name": "not"},
        {"pushed_at": 1_800_000_000.5},
        {"max_attempts": None},
        {"max_attempts": 33},
        {"metadata": {}},
        {"metadata": {"k": "w"}},
        {"metadata": {"kv": ""}},
        {"metadata": {"k": "v", "l": ""}},
    ],
)
def test_the_ciphertext_is_bound_to_everything_else_of_its_job(changes: dict[str, Any]) -> None:
    hidden = encrypted(envelope(), aes(), NONCE)

    with pytest.raises(Malformed) as caught:
        decrypted(msgspec.structs.replace(hidden, **changes), aes())

    assert caught.value.reason == "signature"
    assert caught.value.__cause__ is None


def test_what_it_is_bound_to_can_not_be_read_in_two_ways() -> None:
    """Texts are told apart by their lengths, so none can take a character of its neighbour's."""
    cipher = Pretend()
    for made in (
        envelope(name="ab", max_attempts=None, metadata={"c": ""}),
        envelope(name="a", max_attempts=None, metadata={"bc": ""}),
        envelope(name="abc", max_attempts=None, metadata={"": ""}),
        envelope(name="abc", max_attempts=None, metadata={}),
        envelope(name="ab", max_attempts=None, metadata={"": "c"}),
    ):
        encrypted(made, cipher, NONCE)

    assert len(set(cipher.bound)) == 5


@pytest.mark.parametrize(
    "args",
    [
        b'{"$aes":1}',
        b'{"$aes":"%"}',
        b'{"$aes":"AAAA"}',
        b'{"$aes":""}',
        b'{"$aes":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","x":1}',
        b'{"$aes":null}',
    ],
)
def test_a_damaged_ciphertext_is_refused_whatever_it_is(args: bytes) -> None:
    with pytest.raises(Malformed, match="can't be decrypted"):
        decrypted(envelope(args=msgspec.Raw(args)), aes())


def test_what_is_inside_must_be_arguments() -> None:
    hidden = encrypted(envelope(args=msgspec.Raw(b"[1]")), aes(), NONCE)

    with pytest.raises(Malformed):
        decrypted(hidden, aes())


def test_no_job_can_look_encrypted() -> None:
    assert not is_encrypted(envelope(args=msgspec.Raw(b"{}")))
    assert not is_encrypted(envelope(args=msgspec.Raw(b'{"aes":""}')))
    with pytest.raises((SyntaxError, TypeError, ValueError)):
        msgspec.defstruct("Job", [("$aes", str)])


def test_another_key_of_the_ring_opens_what_it_sealed() -> None:
    by_b = Keyring(active="b", keys=RING.keys, encrypt=True)
    stored = envelope_closer(by_b)(envelope())

    assert envelope_opener(RING, accept_unsigned=False, clock=lambda: 0.0)(stored) == envelope()


def test_the_seal_and_the_cipher_have_keys_of_their_own() -> None:
    key = RING.encryption_key("a")

    assert key not in (SECRET, None)
    assert key != RING.encryption_key("b")
    assert RING.encryption_key("c") is None
    assert RING.seal(b"") != Keyring(active="a", keys={"a": key or b""}).seal(b"")


def test_encrypted_arguments_without_a_seal_are_not_read() -> None:
    """Let in by `accept_unsigned`: nobody says which key they are for, and nobody has proved them."""
    stored = encoded(encrypted(envelope(), aes(), NONCE))
    opened = envelope_opener(RING, accept_unsigned=True, clock=lambda: 0.0)

    with pytest.raises(Malformed) as caught:
        opened(stored)
    assert caught.value.reason == "signature"
    assert decode_envelope(stored).id == envelope().id


# -- the extra ------------------------------------------------------------------------------------------


@pytest.fixture
def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the cipher fails as it does where the extra is not installed."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)


@pytest.mark.usefixtures("without_cryptography")
def test_encrypting_without_the_extra_names_the_pip_install() -> None:
    with pytest.raises(aqueue.QueueUnavailable, match=r"pip install 'aqueue-jobs\[crypto\]'"):
        aqueue.connect("memory://", keyring=RING)


async def test_reading_without_the_extra_leaves_the_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        aqueue.connect("memory://crypto-less", keyring=RING) as queue,
        aqueue.connect("memory://crypto-less", keyring=Keyring(active="a", keys=RING.keys)) as plain,
    ):
        await queue.push(Note("hidden"))
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
            with pytest.raises(aqueue.QueueUnavailable, match=r"aqueue-jobs\[crypto\]"):
                await plain.pop(timeout=1)

        delivery = await plain.pop(timeout=1)

    assert delivery is not None
    assert (delivery.job(Note), delivery.attempt) == (Note("hidden"), 1)


@pytest.mark.usefixtures("without_cryptography")
async def test_sealing_alone_needs_no_extra() -> None:
    async with aqueue.connect("memory://", keyring=Keyring(active="a", keys=RING.keys)) as queue:
        await queue.push(Note("sealed"))
        delivery = await queue.pop(timeout=1)

    assert delivery is not None
    assert delivery.job(Note) == Note("sealed")
