"""The stored envelope, byte for byte: golden files pin it, and what is newer is refused (WIRE-1, MAL-1)."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aqueue.contract.envelope import Malformed, decode_envelope, encode_envelope
from aqueue.errors import UnknownEnvelopeVersion

GOLDEN = Path(__file__).parent / "golden"
ID = "0123456789abcdef0123456789abcdef"
EMPTY = {
    "id": ID,
    "name": "jobs.ping",
    "pushed_at": 1767225600.0,
    "args": b"{}",
    "max_attempts": None,
    "metadata": {},
}
FULL = {
    "id": "f" * 32,
    "name": "emails.welcome",
    "pushed_at": 1767225600.123456,
    "args": '{"email":"ünï@example.org","tags":["a",null,true],"n":-9223372036854775808}'.encode(),
    "max_attempts": 5,
    "metadata": {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "aqueue.sensitive": "email",
    },
}
PINNED = {"envelope-v1-empty.json": EMPTY, "envelope-v1-full.json": FULL}


def encode(**changes: Any) -> bytes:
    return encode_envelope(**{**EMPTY, **changes})


def changed(**changes: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(encode()), **changes})


@pytest.mark.rule("WIRE-1")
@pytest.mark.parametrize("name", PINNED)
def test_the_written_bytes_are_pinned(name: str) -> None:
    assert encode_envelope(**PINNED[name]) == (GOLDEN / name).read_bytes()  # type: ignore[arg-type]  # as above


@pytest.mark.rule("WIRE-1")
@pytest.mark.parametrize("name", PINNED)
def test_the_pinned_bytes_are_read(name: str) -> None:
    envelope = decode_envelope((GOLDEN / name).read_bytes())

    assert {
        field: getattr(envelope, field) for field in ("id", "name", "pushed_at", "max_attempts", "metadata")
    } == {field: value for field, value in PINNED[name].items() if field != "args"}
    assert bytes(envelope.args) == PINNED[name]["args"]


@pytest.mark.rule("WIRE-1")
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    st.floats(0, 4e9),
    st.none() | st.integers(0, 2**31 - 1),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    ),
)
def test_what_was_written_is_read(
    name: str, pushed_at: float, max_attempts: int | None, metadata: dict[str, str]
) -> None:
    envelope = decode_envelope(
        encode(name=name, pushed_at=pushed_at, max_attempts=max_attempts, metadata=metadata)
    )

    assert (envelope.name, envelope.pushed_at) == (name, pushed_at)
    assert (envelope.max_attempts, envelope.metadata) == (max_attempts, metadata)


@pytest.mark.rule("WIRE-1")
def test_what_a_newer_minor_writer_added_is_ignored() -> None:
    envelope = decode_envelope(changed(priority=5, extra={"deep": [1, 2]}))

    assert (envelope.id, envelope.name) == (ID, "jobs.ping")


@pytest.mark.rule("WIRE-1")
@pytest.mark.parametrize(
    "raw",
    [
        changed(v=2), changed(v=99), b'{"v":2}', b'{"v":7,"payload":[1,2,3]}',
        changed(v=2, id=None, args="x"),
    ],
)  # fmt: skip
def test_a_newer_version_is_refused_and_says_what_to_do(raw: bytes) -> None:
    with pytest.raises(UnknownEnvelopeVersion, match="upgrade the workers before the producers"):
        decode_envelope(raw)


@pytest.mark.rule("MAL-1")
@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{}", b"null", b"[]", b"1", b'""', b"{", b"}", b"\xff", b"\x00", b'{"v":1}', b"{'v':1}",
        encode()[:-1], encode() + b"x", encode() * 2, changed(v=0), changed(v=-1), changed(v="1"),
        changed(v=1.5), changed(v=True), changed(v=None), changed(id=""), changed(id=ID[:-1]),
        changed(id=ID.upper()), changed(id=7), changed(name=""), changed(name=None), changed(name=["x"]),
        changed(args=None), changed(args=[]), changed(args="{}"), changed(args=1), changed(pushed_at="now"),
        changed(pushed_at=None), changed(pushed_at=-1), changed(pushed_at=1e300), changed(pushed_at=True),
        changed(max_attempts=-1), changed(max_attempts=2**31), changed(max_attempts=1.5),
        changed(max_attempts="1"), changed(metadata=[]), changed(metadata=None), changed(metadata={"a": 1}),
        changed(metadata={"a": None}), encode(args=b'{"a":"\xff"}'), encode().replace(b"1767225600.0",
        b"NaN"), encode().replace(b"1767225600.0", b"Infinity"), encode().replace(b"1767225600.0",
        b"1e999"), b"[" * 1_000_000, b'{"v":' * 100_000,
    ],
    ids=range(51),
)  # fmt: skip
def test_what_cant_be_read_is_malformed_and_never_quoted(raw: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode_envelope(raw)

    assert caught.value.reason == "malformed"
    assert "jobs.ping" not in str(caught.value)
    assert caught.value.__cause__ is None, "the parser's error would quote the payload"


@pytest.mark.rule("MAL-1")
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    with pytest.raises((Malformed, UnknownEnvelopeVersion)):
        decode_envelope(raw)


@pytest.mark.rule("MAL-1")
@given(st.integers(0, 300), st.binary(min_size=1, max_size=4))
def test_no_damage_breaks_the_reader(position: int, junk: bytes) -> None:
    raw = (GOLDEN / "envelope-v1-full.json").read_bytes()
    damaged = raw[:position] + junk + raw[position + len(junk) :]

    try:
        envelope = decode_envelope(damaged)
    except (Malformed, UnknownEnvelopeVersion):
        return
    assert re.fullmatch("[0-9a-f]{32}", envelope.id)
