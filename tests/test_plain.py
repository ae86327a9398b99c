"""The short way back must lead where the long one does."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aqueue.contract.codec import MAX_ARGS_BYTES
from aqueue.errors import JobReconstructionError
from aqueue.jobs import job, job_type


@job(name="plain.note")
class Note:
    text: str
    number: int = 3
    flag: bool = False


@job(name="plain.checked")
class Checked:
    text: str

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("empty")


@job(name="plain.number")
class Number:
    number: float


def the_long_way(raw: bytes) -> Any:
    try:
        return Note(**job_type(Note).codec.decode(raw))  # type: ignore[arg-type]  # whatever comes
    except JobReconstructionError:
        return JobReconstructionError


def restored(raw: bytes) -> Any:
    try:
        return job_type(Note).restore(raw)
    except JobReconstructionError:
        return JobReconstructionError


values = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**65), 2**65),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.just([]),
    st.just({"a": 1}),
)
names = st.sampled_from(["text", "number", "flag", "other"])


@pytest.mark.rule("ARG-1", "ARG-4", "ARG-5")
@given(st.dictionaries(names, values, max_size=4))
def test_both_ways_give_the_same_for_any_arguments(args: dict[str, object]) -> None:
    raw = msgspec.json.encode(args)

    assert repr(restored(raw)) == repr(the_long_way(raw))


@pytest.mark.rule("ARG-4")
@given(st.binary(max_size=40))
def test_both_ways_give_the_same_for_any_bytes(raw: bytes) -> None:
    assert repr(restored(raw)) == repr(the_long_way(raw))


@pytest.mark.rule("ARG-4")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"text":"a","text":"b"}',
        b'{"text":"\xff"}',
        b'{"text":"\\ud800"}',
        b'{"text":"a","number":1.0}',
        b'{"text":"a","number":9223372036854775808}',
        b'{"text":"a","flag":1}',
        b' {"text" : "a", "number":7 , "flag":true} ',
        b'{"text":"a"} x',
        b'["a"]',
        b"{" * 100_000,
    ],
)
def test_both_ways_give_the_same_for_odd_texts(raw: bytes) -> None:
    assert repr(restored(raw)) == repr(the_long_way(raw))


@pytest.mark.rule("ARG-4")
def test_the_short_way_is_bounded_too() -> None:
    raw = b'{"text":"' + b"a" * MAX_ARGS_BYTES + b'","number":1,"flag":true}'

    assert restored(raw) is JobReconstructionError


@pytest.mark.rule("ARG-5")
def test_only_plain_jobs_take_it_and_no_constructor_is_skipped_that_would_run() -> None:
    assert job_type(Note).is_plain
    assert not job_type(Number).is_plain
    assert not job_type(Checked).is_plain
    with pytest.raises(JobReconstructionError):
        job_type(Checked).restore(b'{"text":""}')


def test_a_job_that_took_it_is_like_any_other() -> None:
    note = Note("a", number=2, flag=True)
    again = job_type(Note).restore(job_type(Note).codec.encode(note))

    assert again == note
    assert hash(again) == hash(note)
    assert type(again) is Note
