"""What becomes of a delivery, and how long a retry waits, as tables (ATT-2, ATT-3, ATT-4, WORK-3)."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aqueue.contract.retry import Backoff, check_backoff, pause_after
from aqueue.contract.settlement import (
    ACK,
    Decision,
    Fail,
    Release,
    decision_after,
    is_handed_out_too_often,
    is_poison,
)
from aqueue.errors import Discard, InvalidQueueArgument, JobLost, Retry, Snooze

ERROR = ValueError("no")


def decide(
    error: BaseException | None, *, attempt: int = 1, max_attempts: int = 3, backoff: Any = None
) -> Decision:
    backoff = Backoff.fixed(7) if backoff is None else backoff
    return decision_after(error, attempt=attempt, max_attempts=max_attempts, backoff=backoff, chance=0.5)


@pytest.mark.rule("WORK-3")
@pytest.mark.parametrize("attempt", [1, 3, 99])
@pytest.mark.parametrize("max_attempts", [0, 1, 3])
def test_a_handler_that_returned_is_acked_whatever_the_attempt(attempt: int, max_attempts: int) -> None:
    assert decide(None, attempt=attempt, max_attempts=max_attempts) == ACK


@pytest.mark.rule("ATT-2")
@pytest.mark.parametrize(
    ("attempt", "max_attempts", "decision"),
    [
        (1, 0, Fail("error")),
        (1, 1, Fail("error")),
        (1, 2, Release(7.0)),
        (2, 2, Fail("error")),
        (1, 3, Release(7.0)),
        (2, 3, Release(7.0)),
        (3, 3, Fail("error")),
        (4, 3, Fail("error")),
        (500, 2**31 - 1, Release(7.0)),
    ],
)
def test_an_error_consults_the_cap(attempt: int, max_attempts: int, decision: Decision) -> None:
    assert decide(ERROR, attempt=attempt, max_attempts=max_attempts) == decision


@pytest.mark.rule("WORK-10", "ATT-2")
@pytest.mark.parametrize(
    "error", [TimeoutError(), KeyError("x"), BaseException(), ExceptionGroup("g", [ERROR])]
)
def test_every_kind_of_error_is_a_failure(error: BaseException) -> None:
    assert decide(error, attempt=3) == Fail("error")
    assert decide(error, attempt=1) == Release(7.0)


@pytest.mark.rule("ATT-4")
@pytest.mark.parametrize(
    ("signal", "decision"),
    [
        (Retry(), Release(7.0)),
        (Retry(after=30), Release(30)),
        (Retry(after=0), Release(0.0)),
        (Retry(after=-5), Release(0.0)),
        (Retry(after=math.nan), Release(0.0)),
        (Retry(after=math.inf), Release(0.0)),
        (Snooze(60), Release(60, counted=False)),
        (Snooze(-1), Release(0.0, counted=False)),
        (Snooze(math.nan), Release(0.0, counted=False)),
        (Discard("no longer wanted"), Fail("discarded")),
        (Discard(), Fail("discarded")),
        (JobLost("again"), Fail("lost")),
    ],
)
def test_a_signal_chooses_the_ending(signal: BaseException, decision: Decision) -> None:
    assert decide(signal) == decision


@pytest.mark.rule("ATT-4")
def test_a_snooze_never_uses_up_the_attempts_and_a_retry_does() -> None:
    assert decide(Snooze(1), attempt=99) == Release(1, counted=False)
    assert decide(Retry(after=1), attempt=3) == Fail("error")


@pytest.mark.rule("ATT-3")
@pytest.mark.parametrize(
    ("lost", "max_lost", "expected"),
    [
        (0, 5, False),
        (4, 5, False),
        (5, 5, True),
        (6, 5, True),
        (0, 0, False),
        (1_000, 0, False),
        (1, 1, True),
    ],
)
def test_too_many_lost_leases_are_poison(lost: int, max_lost: int, expected: bool) -> None:
    assert is_poison(lost, max_lost) is expected


@pytest.mark.rule("ATT-3")
@pytest.mark.parametrize(
    ("attempt", "max_attempts", "max_lost", "expected"),
    [
        (1, 0, 5, False),
        (5, 0, 5, False),
        (6, 0, 5, True),
        (8, 3, 5, False),
        (9, 3, 5, True),
        (1_000, 3, 0, False),
        (2, 0, 1, True),
    ],
)
def test_hand_outs_beyond_the_cap_and_the_lost_leases_are_poison(
    attempt: int, max_attempts: int, max_lost: int, expected: bool
) -> None:
    assert is_handed_out_too_often(attempt, max_attempts=max_attempts, max_lost=max_lost) is expected


@pytest.mark.rule("ATT-4")
@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff.none(), [0, 0, 0, 0]),
        (Backoff.fixed(5), [5, 5, 5, 5]),
        (Backoff.linear(5), [5, 10, 15, 20]),
        (Backoff.exponential(2, 10), [1, 2, 4, 5]),
        (lambda attempt: attempt * 100, [100, 200, 300, 400]),
    ],
)
def test_a_backoff_is_a_row_of_pauses(backoff: Any, pauses: list[float]) -> None:
    assert [pause_after(backoff, attempt, chance=0.5) for attempt in (1, 2, 3, 4)] == pauses


@pytest.mark.rule("ATT-4")
@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True), st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_exponential_growth_stays_within_its_cap_for_ever(
    attempt: int, chance: float, base: float, cap: float
) -> None:
    pause = pause_after(Backoff.exponential(base, cap), attempt, chance)

    assert 0 <= pause <= cap
    assert pause <= chance * base * 2.0 ** min(attempt - 1, 62) * 1.000001 + 1e-300


@pytest.mark.rule("ATT-4")
def test_full_jitter_spreads_over_the_whole_pause() -> None:
    backoff = Backoff.exponential(8, 1000)

    assert [pause_after(backoff, 3, chance) for chance in (0.0, 0.25, 0.999)] == [
        0.0,
        8.0,
        pytest.approx(31.968),
    ]


@pytest.mark.rule("ATT-4")
@pytest.mark.parametrize("nonsense", [-1, -math.inf, math.inf, math.nan])
def test_a_backoff_function_that_answers_nonsense_means_no_pause(nonsense: float) -> None:
    assert pause_after(lambda _: nonsense, 1, 0.5) == 0.0


@pytest.mark.rule("ATT-4")
@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "5", None, True])
def test_a_bad_length_is_refused(bad: Any) -> None:
    for make in (
        Backoff.fixed,
        Backoff.linear,
        lambda s: Backoff.exponential(s, 5),
        lambda s: Backoff.exponential(5, s),
    ):
        with pytest.raises(InvalidQueueArgument):
            make(bad)


@pytest.mark.rule("ATT-4")
def test_what_is_no_backoff_is_refused() -> None:
    for good in (Backoff.none(), abs):
        assert check_backoff(good) is good
    for bad in (5, None, "exponential"):
        with pytest.raises(InvalidQueueArgument, match="backoff"):
            check_backoff(bad)
