"""What makes two failures one kind: words without particulars, and the innermost frame of one's own code."""

import time
import traceback

import msgspec
import pytest

from aqueue.contract.fingerprint import innermost_frame, trouble_of, without_particulars

pytestmark = pytest.mark.rule("FAIL-4")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", ""),
        ("no data", "no data"),
        ("  a\n  b\t c ", "a b c"),
        ("user 7 not found", "user <n> not found"),
        ("user -7.5e not found", "user -<n>e not found"),
        ("at 2026-05-01T10:11:12.5Z", "at <n>Z"),
        ("10.0.0.7:5432 refused", "<n> refused"),
        ("table_12 is full", "table_<n> is full"),
        ("no such user: ann@example.com", "no such user: <address>"),
        ("key 'a b' is missing", "key <text> is missing"),
        ('key "a \\" b" is missing', "key <text> is missing"),
        ("key 'it\\'s' is missing", "key <text> is missing"),
        ("column `users` of «shop»", "column <text> of <text>"),
        ("can't open, won't try", "can't open, won't try"),
        ("O'Brien isn't here", "O'Brien isn't here"),
        ("''", "<text>"),
        ("job 0f8fad5b-d9cb-469f-a165-70867728950e", "job <id>"),
        ("job 0F8FAD5B-D9CB-469F-A165-70867728950E", "job <id>"),
        ("commit deadbeef1", "commit <id>"),
        ("<Foo object at 0x7f3A>", "<Foo object at <id>>"),
        ("deadbeef is a word, defaced too", "deadbeef is a word, defaced too"),
        ("12345678", "<n>"),
        ("naïve café 🦆9", "naïve café 🦆<n>"),
        ("\x00\ud800", "\x00\ud800"),
    ],
)
def test_a_message_keeps_its_words_and_loses_its_particulars(message: str, words: str) -> None:
    assert without_particulars(message) == words


def test_a_long_message_is_cut() -> None:
    assert without_particulars("x y " * 1000) == ("x y " * 75)[:299] + "…"


@pytest.mark.parametrize(
    "text", ["'", '"', "\\'", "a" * 20, "1.", "a@", "`", "0x", "deadbeef", " ", "«", "(a+"]
)
def test_no_message_takes_long(text: str) -> None:
    started = time.process_time()

    without_particulars(text * 100_000)
    innermost_frame(f'  File "{text * 20_000}", line 1, in x\n' * 3)

    assert time.process_time() - started < 5


def _frames(*places: str) -> str:
    parts = [place.rsplit(" ", 1) for place in places]
    lines = [
        f'  File "{path}", line {7 + at}, in {name}\n    code()' for at, (path, name) in enumerate(parts)
    ]
    return "\n".join(["Traceback (most recent call last):", *lines, "ValueError: no"])


OWN, LIBRARY = "/srv/shop/mail.py send", "/srv/.venv/lib/python3.12/site-packages/httpx/_client.py get"


CAUSED = "\n\nThe above exception was the direct cause of the following exception:\n\n"
MEANWHILE = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("", ""),
        ("no traceback at all", ""),
        (_frames(OWN), "shop/mail.py in send"),
        (_frames("/srv/shop/main.py run", OWN, LIBRARY), "shop/mail.py in send"),
        (_frames(OWN, "/usr/lib/python3.12/json/decoder.py raw_decode"), "shop/mail.py in send"),
        (_frames(OWN, "<frozen importlib._bootstrap> _load"), "shop/mail.py in send"),
        (
            _frames("C:\\shop\\mail.py send", "C:\\Python312\\Lib\\json\\decoder.py raw"),
            "shop/mail.py in send",
        ),
        (_frames(LIBRARY), "httpx/_client.py in get"),
        (_frames("mail.py <lambda>"), "mail.py in <lambda>"),
        (
            _frames("/srv/shop/cause.py inner") + CAUSED + _frames(OWN),
            "shop/mail.py in send",
        ),
        (
            _frames(OWN) + MEANWHILE + "KeyError: 1",
            "shop/mail.py in send",
        ),
    ],
)
def test_the_frame_is_the_innermost_own_one_of_the_error_itself(text: str, frame: str) -> None:
    assert innermost_frame(text) == frame


def test_a_frame_inside_an_exception_group_is_found() -> None:
    text = ""
    try:
        try:
            msgspec.json.decode(b"{")
        except msgspec.DecodeError as error:
            raise ExceptionGroup("some failed", [error]) from None
    except ExceptionGroup as error:
        text = "".join(traceback.format_exception(error))

    frame = innermost_frame(text)

    assert frame == "tests/test_failed_fingerprint.py in test_a_frame_inside_an_exception_group_is_found"


def _fingerprint(
    name: str = "n",
    reason: str = "error",
    error_type: str = "E",
    error: str = "no 1",
    traceback: str = _frames(OWN),
) -> str:
    trouble = trouble_of(name=name, reason=reason, error_type=error_type, error=error, traceback=traceback)
    return trouble.fingerprint


def test_a_fingerprint_is_the_same_for_other_numbers_lines_and_machines() -> None:
    elsewhere = _frames("/app/releases/77/shop/mail.py send").replace("line 7", "line 99")

    assert _fingerprint() == _fingerprint(error="no 22", traceback=elsewhere) == "9a9f03aa5fe1f492"


def test_a_fingerprint_differs_by_job_class_words_and_place() -> None:
    different = {
        _fingerprint(),
        _fingerprint(name="m"),
        _fingerprint(error_type="F"),
        _fingerprint(error="none"),
        _fingerprint(traceback=_frames("/srv/shop/mail.py receive")),
        _fingerprint(name="nE", error_type=""),
    }

    assert len(different) == 6


def test_a_failure_without_an_error_is_known_by_its_reason() -> None:
    assert _fingerprint(error="", reason="no such user 1") == _fingerprint(error="", reason="no such user 2")
    assert _fingerprint(error="", reason="lost") != _fingerprint(error="", reason="malformed")
