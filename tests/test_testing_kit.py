"""The tools that tests are made with: waiting, clocks, checks, and the demand for servers (CONF-1)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aqueue.testing import ManualClock, eventually
from aqueue.testing.contract import Check, Harness, all_checks, rule
from aqueue.testing.contract.raising import raises

ROOT = Path(__file__).parent.parent


async def test_eventually_waits_for_what_becomes_true() -> None:
    calls = iter([False, False, True])
    await eventually(lambda: next(calls))

    seen: list[int] = []

    async def three_seen() -> None:
        seen.append(1)
        assert len(seen) == 3, "not yet three"

    await eventually(three_seen)
    assert len(seen) == 3


async def test_eventually_gives_up_and_says_what_was_missing() -> None:
    async def never() -> None:
        raise AssertionError("the moon is not blue")

    with pytest.raises(AssertionError, match=r"not true within 0.05 s: the moon is not blue"):
        await eventually(never, 0.05)
    with pytest.raises(AssertionError, match="returned False"):
        await eventually(lambda: False, 0)


async def test_eventually_looks_once_even_without_time() -> None:
    await eventually(lambda: True, 0)


async def test_eventually_refuses_a_check_that_can_say_nothing() -> None:
    """An empty list would pass for "nothing to complain of" and for "nothing there yet"."""
    with pytest.raises(TypeError, match="not list"):
        await eventually(list)  # type: ignore[arg-type]  # wrong on purpose


async def test_eventually_passes_other_errors_on_at_once() -> None:
    empty: dict[str, bool] = {}

    with pytest.raises(KeyError):
        await eventually(lambda: empty["x"])


def test_a_manual_clock_moves_only_by_hand() -> None:
    clock = ManualClock(100.0)
    assert clock() == clock() == 100.0

    clock.advance(2.5)

    assert clock() == 102.5
    with pytest.raises(ValueError, match="advanced"):
        clock.advance(-1)


async def test_a_ticking_clock_also_runs_by_itself() -> None:
    clock = ManualClock(100.0, ticking=True)
    await eventually(lambda: clock() > 100.0)

    clock.advance(50)

    assert clock() > 150.0


def test_a_check_must_hold_its_call_to_raising() -> None:
    let_through = "dividing: it went through, though ZeroDivisionError was due"

    with pytest.raises(AssertionError, match=let_through), raises(ZeroDivisionError, "dividing"):
        pass
    with pytest.raises(KeyError), raises(ZeroDivisionError, "dividing"):
        raise KeyError("another error is not the one that was due")


@pytest.mark.rule("CONF-1")
async def test_a_check_carries_its_rules_and_its_promise() -> None:
    @rule("PUSH-3", "POP-1")
    async def something_holds(harness: Harness) -> None:
        """It does."""
        assert harness.url == "memory://x"

    assert isinstance(something_holds, Check)
    assert (something_holds.id, something_holds.promise) == ("PUSH-3-something_holds", "It does.")
    await something_holds(Harness("memory://x"))
    with pytest.raises(AssertionError):
        await something_holds(Harness("memory://y"))


@pytest.mark.rule("CONF-1")
def test_every_check_has_a_sentence_a_promise_and_a_name_of_its_own() -> None:
    checks = all_checks()

    assert len({check.id for check in checks}) == len(checks) > 100
    assert all(check.promise.endswith(".") and check.rules for check in checks)


@pytest.mark.rule("CONF-1")
def test_the_suite_needs_no_test_runner() -> None:
    program = "import sys, aqueue.testing.contract; sys.exit('pytest' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.mark.rule("CONF-1")
def test_requiring_a_store_nobody_knows_is_a_mistake() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/test_names.py"],
        cwd=ROOT,
        env={**os.environ, "AQUEUE_REQUIRE": "sqlite,reddis"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unknown stores: reddis; known: file, memory" in run.stderr + run.stdout
