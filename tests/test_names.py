"""What callers may ask for, as tables (NAME-1, PUSH-1, POP-1)."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aqueue.contract.names import (
    check_delay,
    check_job_id,
    check_limit,
    check_max_attempts,
    check_queue_name,
    check_queue_names,
    check_seconds,
)
from aqueue.errors import InvalidQueueArgument

NOW = 1_800_000_000.0


@pytest.mark.rule("NAME-1")
@pytest.mark.parametrize("name", ["a", "A-b_9", "-", "_", "0", "x" * 80])
def test_a_good_name_is_returned(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.rule("NAME-1")
@pytest.mark.parametrize(
    "name",
    ["", " ", "a ", "a b", "a.b", "a\n", "\na", "a\x00", "ä", "ａ", "٣", "x" * 81, "*", None, 1, b"a", ["a"]],  # noqa: RUF001 - look-alikes are the point
)
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="not a queue name"):
        check_queue_name(name)


@pytest.mark.rule("NAME-1")
@given(st.text(max_size=90))
def test_only_the_documented_characters_make_a_name(name: str) -> None:
    letters = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")

    if 1 <= len(name) <= 80 and set(name) <= letters:
        assert check_queue_name(name) == name
    else:
        with pytest.raises(InvalidQueueArgument):
            check_queue_name(name)


@pytest.mark.rule("NAME-1")
@pytest.mark.parametrize("names", [[], (), ["a"], ("a", "b"), ["high", "default", "low"]])
def test_a_list_of_names_keeps_its_order(names: list[str]) -> None:
    assert check_queue_names(names) == tuple(names)


@pytest.mark.rule("NAME-1")
@pytest.mark.parametrize(
    "names", ["default", None, {"a"}, {"a": 1}, iter(["a"]), 7, ["a", "b c"], ["a", None]]
)
def test_what_is_no_list_of_names_is_refused(names: object) -> None:
    with pytest.raises(InvalidQueueArgument):
        check_queue_names(names)


@pytest.mark.rule("NAME-1")
def test_a_repeated_name_is_named() -> None:
    with pytest.raises(InvalidQueueArgument, match="repeated in one list: a, c"):
        check_queue_names(["c", "a", "b", "a", "c"])


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        (0.0, 0.0),
        (5, 5.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
        (timedelta(), 0.0),
        (2**60, 2.0**60),
    ],
)
def test_seconds_come_from_numbers_and_timedeltas(value: object, seconds: float) -> None:
    assert check_seconds(value, "delay") == seconds


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.0001,
        math.nan,
        math.inf,
        -math.inf,
        True,
        False,
        "5",
        None,
        [],
        timedelta(seconds=-1),
        10**400,
        1j,
    ],
)
def test_what_is_no_length_of_time_is_refused(value: object) -> None:
    with pytest.raises(InvalidQueueArgument, match=r"^delay must be"):
        check_seconds(value, "delay")


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize(
    ("at", "delay"),
    [
        (datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=90), 90.0),
        (datetime.fromtimestamp(NOW, UTC), 0.0),
        (datetime.fromtimestamp(NOW, UTC) - timedelta(days=900), 0.0),
        (datetime.fromtimestamp(NOW, timezone(timedelta(hours=5, minutes=30))) + timedelta(seconds=1), 1.0),
        (datetime.min.replace(tzinfo=UTC), 0.0),
    ],
)
def test_a_due_time_becomes_a_delay(at: datetime, delay: float) -> None:
    assert check_delay(0, at, NOW, None) == delay


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize("at", [datetime(2999, 1, 1), "2999-01-01", NOW + 5, timedelta(seconds=5)])  # noqa: DTZ001 - to be refused
def test_a_due_time_must_be_aware(at: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="aware datetime"):
        check_delay(0, at, NOW, None)


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize("delay", [1, 0.5, timedelta(seconds=1)])
def test_a_delay_and_a_due_time_exclude_each_other(delay: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="not both"):
        check_delay(delay, datetime.fromtimestamp(NOW, UTC), NOW, None)


@pytest.mark.rule("PUSH-2")
def test_a_delay_is_held_to_the_stores_longest() -> None:
    late = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=901)

    assert check_delay(900, None, NOW, 900) == 900
    for delay, at in ((901, None), (900.001, None), (0, late)):
        with pytest.raises(InvalidQueueArgument, match="at most 900 s"):
            check_delay(delay, at, NOW, 900)


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize("value", [None, 0, 1, 25, 2**31 - 1])
def test_a_cap_on_attempts_is_returned(value: int | None) -> None:
    assert check_max_attempts(value) == value


@pytest.mark.rule("PUSH-1")
@pytest.mark.parametrize("value", [-1, 2**31, 1.0, math.inf, True, "3"])
def test_a_bad_cap_on_attempts_is_refused(value: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="max_attempts"):
        check_max_attempts(value)


@pytest.mark.rule("POP-1")
@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "1", math.inf])
def test_a_bad_limit_is_refused(value: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="limit"):
        check_limit(value)


@pytest.mark.rule("PUSH-9", "PUSH-10")
@pytest.mark.parametrize(
    "value", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 31 + "\n", 7, b"0" * 32, None, "٣" * 32]
)
def test_a_bad_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidQueueArgument, match="32 lower-case hexadecimal"):
        check_job_id(value)


@pytest.mark.rule("PUSH-9")
def test_a_good_id_is_returned() -> None:
    assert check_job_id("0123456789abcdef" * 2) == "0123456789abcdef" * 2
