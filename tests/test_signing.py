"""Keyrings: sealing, opening, rotating, and telling nothing (SIGN-1, SIGN-2)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aqueue.contract.envelope import Malformed
from aqueue.contract.signing import Keyring, key_id_of, open_without_keys
from aqueue.errors import InvalidQueueArgument, KeyringMissing

OLD, NEW = b"o" * 32, b"n" * 32
ENVELOPE = b'{"v":1,"id":"x"}'


def ring(active: str = "a", **keys: bytes | str) -> Keyring:
    return Keyring(active=active, keys=keys or {"a": OLD})


@pytest.mark.rule("SIGN-1")
@given(st.binary(max_size=300))
def test_what_was_sealed_opens_to_the_same_bytes(envelope: bytes) -> None:
    assert ring().open(ring().seal(envelope)) == envelope


@pytest.mark.rule("SIGN-1")
def test_a_sealed_payload_has_four_parts() -> None:
    sealed = ring("2026-11", **{"2026-11": NEW}).seal(ENVELOPE)

    assert re.fullmatch(rb"aq1\.2026-11\.[A-Za-z0-9_-]{43}\.\{.*\}", sealed)
    assert sealed.endswith(b"." + ENVELOPE)
    assert key_id_of(sealed) == "2026-11"
    assert key_id_of(ENVELOPE) is None


@pytest.mark.rule("SIGN-1")
def test_the_seal_is_pinned() -> None:
    """Other versions must still open what this one sealed: derivation, label and encoding may not drift."""
    assert ring().seal(ENVELOPE) == b"aq1.a.U-pyJd4lwATo4xeI4AiPaFVNr-dFF2ClB0SoZB0T08U." + ENVELOPE


@pytest.mark.rule("SIGN-2")
def test_a_rotated_keyring_opens_old_seals_and_makes_new_ones() -> None:
    sealed = ring("old", old=OLD).seal(ENVELOPE)
    both = ring("new", old=OLD, new=NEW)

    assert both.open(sealed) == ENVELOPE
    assert key_id_of(both.seal(ENVELOPE)) == "new"


@pytest.mark.rule("SIGN-2")
def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(Malformed, match="key 'old', which this keyring doesn't hold") as caught:
        ring("new", new=NEW).open(ring("old", old=OLD).seal(ENVELOPE))

    assert caught.value.reason == "signature"


@pytest.mark.rule("SIGN-2")
def test_a_key_of_the_same_name_is_not_the_same_key() -> None:
    with pytest.raises(Malformed, match="doesn't match"):
        ring("a", a=NEW).open(ring("a", a=OLD).seal(ENVELOPE))


@pytest.mark.rule("SIGN-1")
@pytest.mark.parametrize("position", range(len(ring().seal(ENVELOPE))))
@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_every_byte_is_covered(position: int, flip: int) -> None:
    sealed = bytearray(ring().seal(ENVELOPE))
    sealed[position] ^= flip

    with pytest.raises(Malformed) as caught:
        ring().open(bytes(sealed))
    assert caught.value.reason == "signature"


@pytest.mark.rule("SIGN-1")
@pytest.mark.parametrize(
    "change", [lambda s: s + b" ", lambda s: s[:-1], lambda s: s[1:], lambda s: b" " + s]
)
def test_nothing_can_be_added_or_taken_away(change: "object") -> None:
    with pytest.raises(Malformed):
        ring().open(change(ring().seal(ENVELOPE)))  # type: ignore[operator]  # each is a function of bytes


@pytest.mark.rule("SIGN-1")
def test_the_key_id_is_part_of_what_is_sealed() -> None:
    """Two ids may hold one secret; a seal under one must not pass for a seal under the other."""
    twins = ring("a", a=OLD, b=OLD)

    with pytest.raises(Malformed, match="doesn't match"):
        twins.open(twins.seal(ENVELOPE).replace(b"aq1.a.", b"aq1.b."))


@pytest.mark.rule("SIGN-2")
@pytest.mark.parametrize("payload", [ENVELOPE, b"", b"garbage", b"aq2.a.digest.{}"])
def test_the_unsealed_opens_only_where_it_was_allowed(payload: bytes) -> None:
    with pytest.raises(Malformed, match="not sealed") as caught:
        ring().open(payload)
    assert caught.value.reason == "signature"

    assert ring().open(payload, accept_unsigned=True) == payload


@pytest.mark.rule("SIGN-2")
@pytest.mark.parametrize(
    "payload", [b"aq1.", b"aq1.a.short.{}", b"aq1..x.{}", b"aq1.a b." + b"x" * 43 + b".{}"]
)
def test_a_damaged_seal_is_never_taken_for_unsealed(payload: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        ring().open(payload, accept_unsigned=True)
    assert caught.value.reason == "signature"


@pytest.mark.rule("SIGN-2")
def test_a_bad_seal_is_refused_although_unsigned_ones_are_accepted() -> None:
    with pytest.raises(Malformed):
        ring("a", a=NEW).open(ring("a", a=OLD).seal(ENVELOPE), accept_unsigned=True)


@pytest.mark.rule("SIGN-1")
def test_without_keys_the_sealed_is_a_mistake_of_set_up() -> None:
    with pytest.raises(KeyringMissing, match="connect"):
        open_without_keys(ring().seal(ENVELOPE))

    assert open_without_keys(ENVELOPE) == ENVELOPE


@pytest.mark.rule("SIGN-1")
@pytest.mark.parametrize("secret", [b"", b"x" * 31, "x" * 31, "é" * 15])
def test_a_short_secret_is_refused_and_not_shown(secret: bytes | str) -> None:
    with pytest.raises(InvalidQueueArgument, match="'a' has fewer than 32 bytes") as caught:
        ring("a", a=secret)

    assert "xxx" not in str(caught.value)


@pytest.mark.rule("SIGN-1")
def test_a_secret_may_be_text() -> None:
    assert ring("a", a="ü" * 16).open(ring("a", a=("ü" * 16).encode()).seal(ENVELOPE)) == ENVELOPE


@pytest.mark.rule("SIGN-1")
@pytest.mark.parametrize("key_id", ["", "a.b", "a b", "ä", "x" * 33, "a\n"])
def test_a_bad_key_id_is_refused(key_id: str) -> None:
    with pytest.raises(InvalidQueueArgument, match="not a key id"):
        Keyring(active=key_id, keys={key_id: OLD})


@pytest.mark.rule("SIGN-1")
def test_the_active_key_must_be_there() -> None:
    with pytest.raises(InvalidQueueArgument, match="'b' is not among"):
        Keyring(active="b", keys={"a": OLD})


@pytest.mark.rule("SIGN-1")
def test_a_keyring_shows_its_key_ids_and_no_secret() -> None:
    secret = "hunter2" * 6
    shown = f"{ring('a', a=secret)!r} {ring('a', a=secret)}"

    assert "'a'" in shown
    assert "hunter2" not in shown


@pytest.mark.rule("SIGN-1")
def test_changing_the_given_mapping_changes_no_keyring() -> None:
    keys: dict[str, bytes | str] = {"a": OLD}
    keyring = Keyring(active="a", keys=keys)
    keys["b"] = NEW

    with pytest.raises(Malformed):
        keyring.open(ring("b", b=NEW).seal(ENVELOPE))
