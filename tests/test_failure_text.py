"""What the failed store keeps of an error: always storable, always bounded (FAIL-3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aqueue.contract.failure import MAX_TEXT_BYTES, clean_text, error_text, error_traceback, error_type

ANY_TEXT = st.text(st.characters(), max_size=300)


@pytest.mark.rule("FAIL-3")
@given(ANY_TEXT, st.integers(40, 400))
def test_a_cleaned_text_can_be_stored_anywhere(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit)

    assert "\x00" not in cleaned
    assert len(cleaned.encode()) <= limit


@pytest.mark.rule("FAIL-3")
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=300))
def test_a_text_that_fits_is_kept_as_it_is(text: str) -> None:
    assert clean_text(text) == text


@pytest.mark.rule("FAIL-3")
@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert clean_text(clean_text(text, 100), 100) == clean_text(text, 100)


@pytest.mark.rule("FAIL-3")
@pytest.mark.parametrize("character", ["x", "é", "€", "🦆"])
def test_a_long_text_keeps_both_its_ends(character: str) -> None:
    cleaned = clean_text("begin " + character * 1_000_000 + " end")

    assert len(cleaned.encode()) <= MAX_TEXT_BYTES == 64 * 1024
    assert cleaned.startswith("begin " + character)
    assert cleaned.endswith(character + " end")
    assert "cut" in cleaned


class Outer:
    class Inner(Exception):
        pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.rule("FAIL-1")
def test_an_error_is_named_in_full() -> None:
    assert error_type(ValueError()) == "ValueError"
    assert error_type(Outer.Inner()) == f"{__name__}.Outer.Inner"


@pytest.mark.rule("FAIL-3")
def test_an_error_that_cant_be_printed_is_named() -> None:
    assert error_text(Unprintable()) == "<Unprintable whose text raised RuntimeError>"
    assert error_traceback(_raised(Unprintable()))


@pytest.mark.rule("FAIL-1")
def test_a_traceback_shows_the_causes() -> None:
    def fails() -> None:
        try:
            raise KeyError("the cause")
        except KeyError as cause:
            raise ValueError("the effect") from cause

    with pytest.raises(ValueError, match="the effect") as caught:
        fails()
    text = error_traceback(caught.value)

    assert "KeyError: 'the cause'" in text
    assert "ValueError: the effect" in text
    assert text.index("the cause") < text.index("the effect")


@pytest.mark.rule("FAIL-3")
def test_a_traceback_of_megabytes_is_cut() -> None:
    error = _raised(ValueError("x" * 5_000_000))

    assert len(error_traceback(error).encode()) <= MAX_TEXT_BYTES
    assert len(error_text(error).encode()) <= MAX_TEXT_BYTES


def _raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value
