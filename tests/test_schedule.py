"""When schedules are due: expressions, zones and daylight saving, missed times, jitter."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aqueue import InvalidJob, InvalidQueueArgument, Schedule, UnserializableJob, job
from aqueue.contract.occurrence import job_id_of, occurrence_at, occurrence_in, written
from aqueue.contract.schedule import Missed, Policy, Timetable, due_now, jitter_of, timetable
from aqueue.contract.ticking import (
    Plan,
    Rule,
    Ticked,
    after_pushing,
    paused,
    plan_for,
    plan_in_hand,
    resumed,
    ticked_in,
)
from aqueue.errors import JobReconstructionError

pytestmark = pytest.mark.rule("CRON-1")

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
DAY = 86_400


@job(name="tests.nightly")
class Nightly:
    depth: int = 1


def at(*parts: int, zone: tzinfo = UTC, fold: int = 0) -> float:
    return datetime(*parts, tzinfo=zone, fold=fold).timestamp()  # type: ignore[misc, arg-type]


def locally(dues: Iterable[int], zone: tzinfo) -> list[str]:
    return [f"{datetime.fromtimestamp(due, zone):%a %d %H:%M %Z}" for due in dues]


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 3 * * *", "2026-01-01 03:00"),
        ("*/15 * * * *", "2026-01-01 00:15"),
        ("5,10 8-10 * * mon-fri", "2026-01-01 08:05"),
        ("0 0 L * *", "2026-01-31 00:00"),
        ("0 12 * * 1#2", "2026-01-12 12:00"),
        ("0 0 13 * fri", "2026-01-02 00:00"),  # either day, as in crontab(5)
        ("@hourly", "2026-01-01 01:00"),
        ("@daily", "2026-01-02 00:00"),
        ("@midnight", "2026-01-02 00:00"),
        ("@weekly", "2026-01-04 00:00"),
        ("@Monthly", "2026-02-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
        ("@every 90s", "2026-01-01 00:01:30"),
        ("@every 1h30m", "2026-01-01 01:30"),
        ("@EVERY 2D", "2026-01-03 00:00"),  # counted from the epoch
        ("  0   3 * * *  ", "2026-01-01 03:00"),
    ],
)
def test_an_expression_is_due_when_it_says(expression: str, first: str) -> None:
    due = timetable(expression, UTC).next_after(at(2026, 1, 1))

    assert due == datetime.fromisoformat(first).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("@reboot", "push the job where your program starts"),
        ("@often", "@daily"),
        ("@every", "@every 90s"),
        ("@every 0s", "from 1 second"),
        ("@every 367d", "366 days"),
        ("@every 5", "@every 90s"),
        (f"@every {'9' * 5000}s", "@every 90s"),
        ("@every 1.5s", "@every 90s"),
        ("* * * *", "4 fields, not 5"),
        ("* * * * * *", "@every 10s"),
        ("", "0 fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 22-2 * * *", "write 22-2 as two ranges"),
        ("*/0 * * * *", "bad minute"),
        ("1;2 * * * *", "bad minute"),
        (None, "must be text"),
        (5, "must be text"),
    ],
)
def test_what_is_no_expression_is_refused_and_says_why(expression: Any, says: str) -> None:
    with pytest.raises(InvalidQueueArgument) as caught:
        timetable(expression, UTC)

    assert says in str(caught.value)


@given(
    st.one_of(
        st.text(), st.lists(st.text("0123456789*/,-#LW", max_size=6), min_size=5, max_size=5).map(" ".join)
    )
)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        times = timetable(text, BERLIN)
    except InvalidQueueArgument:
        return
    dues = list(islice(times.after(at(2026, 3, 1)), 3))
    assert all(later > earlier for earlier, later in pairwise(dues))


@dataclass(frozen=True)
class Change:
    """Days around a change of the clocks, and when each expression is due in them (case O-23)."""

    zone: ZoneInfo
    begin: float
    end: float
    due: dict[str, list[str]] = field(hash=False)


CHANGES = {
    "Berlin, spring": Change(
        BERLIN,
        at(2026, 3, 28, zone=BERLIN),
        at(2026, 3, 31, zone=BERLIN),
        {
            "0 9 * * *": ["Sat 28 09:00 CET", "Sun 29 09:00 CEST", "Mon 30 09:00 CEST"],
            "30 2 * * *": ["Sat 28 02:30 CET", "Sun 29 03:00 CEST", "Mon 30 02:30 CEST"],
            "30 1 * * *": ["Sat 28 01:30 CET", "Sun 29 01:30 CET", "Mon 30 01:30 CEST"],
            "0 12 * * 1": ["Mon 30 12:00 CEST"],
        },
    ),
    "Berlin, autumn": Change(
        BERLIN,
        at(2026, 10, 24, zone=BERLIN),
        at(2026, 10, 27, zone=BERLIN),
        {
            "0 9 * * *": ["Sat 24 09:00 CEST", "Sun 25 09:00 CET", "Mon 26 09:00 CET"],
            "30 2 * * *": ["Sat 24 02:30 CEST", "Sun 25 02:30 CEST", "Mon 26 02:30 CET"],
            "30 1 * * *": ["Sat 24 01:30 CEST", "Sun 25 01:30 CEST", "Mon 26 01:30 CET"],
            "0 12 * * 1": ["Mon 26 12:00 CET"],
        },
    ),
    "New York, spring": Change(
        NEW_YORK,
        at(2026, 3, 7, zone=NEW_YORK),
        at(2026, 3, 10, zone=NEW_YORK),
        {
            "0 9 * * *": ["Sat 07 09:00 EST", "Sun 08 09:00 EDT", "Mon 09 09:00 EDT"],
            "30 2 * * *": ["Sat 07 02:30 EST", "Sun 08 03:00 EDT", "Mon 09 02:30 EDT"],
            "30 1 * * *": ["Sat 07 01:30 EST", "Sun 08 01:30 EST", "Mon 09 01:30 EDT"],
            "0 12 * * 1": ["Mon 09 12:00 EDT"],
        },
    ),
    "New York, autumn": Change(
        NEW_YORK,
        at(2026, 10, 31, zone=NEW_YORK),
        at(2026, 11, 3, zone=NEW_YORK),
        {
            "0 9 * * *": ["Sat 31 09:00 EDT", "Sun 01 09:00 EST", "Mon 02 09:00 EST"],
            "30 2 * * *": ["Sat 31 02:30 EDT", "Sun 01 02:30 EST", "Mon 02 02:30 EST"],
            "30 1 * * *": ["Sat 31 01:30 EDT", "Sun 01 01:30 EDT", "Mon 02 01:30 EST"],
            "0 12 * * 1": ["Mon 02 12:00 EST"],
        },
    ),
}


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def process_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import time

    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("process_zone")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_clocks_gives_each_day_its_one_time(change: Change) -> None:
    for expression, due in change.due.items():
        times = timetable(expression, change.zone)

        assert locally(times.between(change.begin, change.end), change.zone) == due


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_minute_by_minute_it_fires_the_same_begun_today_or_the_day_before(change: Change) -> None:
    for expression in (*change.due, "*/15 * * * *"):
        times = timetable(expression, change.zone)
        expected = list(times.between(change.begin, change.end))
        for begun in (change.begin, change.begin + DAY + 120):
            fired = _fired(times, begun, change.end)

            assert fired == [due for due in expected if due > begun]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_quarter_of_an_hour_that_passes_fires_once(change: Change) -> None:
    dues = list(timetable("*/15 * * * *", change.zone).between(change.begin, change.end))

    assert [later - earlier for earlier, later in pairwise([change.begin, *dues])] == [900] * len(dues)


def _fired(times: Timetable, begin: float, end: float) -> list[int]:
    """Look once a minute, as a scheduler does, and return what it would push."""
    rule = Rule(times=times, policy=Policy(missed="once", grace=60))
    fired: list[int] = []
    ticked, now = plan_for(rule, None, begin).note, begin
    while now < end:
        now += 60
        plan = plan_for(rule, ticked, now)
        ticked = plan.note or ticked
        fired += plan.ticks
    return fired


FIELDS = st.tuples(
    st.sampled_from(["*", "*/15", "0", "30", "0,30", "59", "5-10"]),
    st.sampled_from(["*", "*/2", "1", "2", "3", "0", "1,2", "1-3", "23"]),
    st.sampled_from(["*", "*/2", "1", "25", "29", "8"]),
    st.sampled_from(["*", "3", "10,11"]),
    st.sampled_from(["*", "0", "1-5"]),
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Beirut", "America/Santiago"])
MOMENTS = st.integers(int(at(2026, 1, 1)), int(at(2026, 12, 31)))


@settings(deadline=None, max_examples=80)
@given(fields=FIELDS, zone=ZONES, moment=MOMENTS, days=st.integers(1, 3))
def test_it_is_due_in_exactly_the_minutes_that_match(
    fields: tuple[str, ...], zone: str, moment: int, days: int
) -> None:
    """Where no clock is changed: the minutes are tried one by one."""
    where = ZoneInfo(zone)
    begin, end = moment, moment + days * DAY
    assume(len({datetime.fromtimestamp(at, where).utcoffset() for at in (begin - DAY, end + DAY)}) == 1)

    dues = list(timetable(" ".join(fields), where).between(begin, end))

    assert dues == [
        minute
        for minute in range(-(-(begin + 1) // 60) * 60, end + 1, 60)
        if _matches(fields, datetime.fromtimestamp(minute, where))
    ]


@settings(deadline=None, max_examples=80)
@given(fields=FIELDS, zone=ZONES, moment=MOMENTS, other=st.integers(0, 4 * DAY))
def test_the_times_are_the_same_wherever_one_begins(
    fields: tuple[str, ...], zone: str, moment: int, other: int
) -> None:
    """Changes of the clocks included: each time comes once, in order, whoever looks from when."""
    times, end = timetable(" ".join(fields), ZoneInfo(zone)), moment + 5 * DAY

    dues = list(times.between(moment, end))

    assert all(later > earlier for earlier, later in pairwise([moment, *dues]))
    assert list(times.between(moment + other, end)) == [due for due in dues if due > moment + other]
    assert times.latest(moment, end, 7) == dues[-7:]


def _matches(fields: tuple[str, ...], when: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    days = (_allows(day, when.day, 1), _allows(weekday, when.isoweekday() % 7, 0))
    both = day.startswith("*") or weekday.startswith("*")
    return (
        _allows(minute, when.minute, 0)
        and _allows(hour, when.hour, 0)
        and _allows(month, when.month, 1)
        and (all(days) if both else any(days))
    )


def _allows(text: str, value: int, first: int) -> bool:
    for term in text.split(","):
        span, _, step = term.partition("/")
        low, _, high = span.partition("-")
        if low == "*":
            low, high = str(first), "99"
        if int(low) <= value <= int(high or low) and (value - int(low)) % int(step or 1) == 0:
            return True
    return False


HOUR = 3600
NOTHING = Plan((), None)
NO_TICKS: tuple[int, ...] = ()
HOURLY = timetable("@hourly", UTC)
MIDNIGHT = int(at(2026, 1, 1))


@pytest.mark.parametrize(
    ("missed", "down_until", "fires"),
    [
        ("skip", 1 + 55 / 60, []),
        ("once", 1 + 55 / 60, [1]),
        (2, 1 + 55 / 60, [1]),
        ("skip", 72.5, []),
        ("once", 72.5, [72]),
        (3, 72.5, [70, 71, 72]),
        (1, 72.5, [72]),
        ("skip", 1.001, [1]),
        ("once", 72.001, [72]),
        (2, 72.001, [70, 71, 72]),
    ],
)
def test_after_a_time_nobody_was_there_the_policy_is_all_that_happens(
    missed: Missed, down_until: float, fires: list[int]
) -> None:
    """Hourly, down since 00:55: a little over the time, an hour, three days (case O-24 b)."""
    policy = Policy(missed=missed, grace=60)
    seen, now = MIDNIGHT + 55 * 60, MIDNIGHT + down_until * HOUR

    due = due_now(HOURLY, policy, seen=seen, now=now, most=100)

    assert [(tick - MIDNIGHT) / HOUR for tick in due.ticks] == fires
    following = int(down_until) + 1
    later = due_now(HOURLY, policy, seen=due.seen, now=MIDNIGHT + following * HOUR, most=100)
    assert [(tick - MIDNIGHT) / HOUR for tick in later.ticks] == [following]


def test_nothing_is_caught_up_with_within_the_grace_of_the_next_time() -> None:
    policy = Policy(missed="once", grace=600)
    down_until = MIDNIGHT + HOUR + 55 * 60

    assert due_now(HOURLY, policy, seen=MIDNIGHT, now=down_until, most=100).ticks == NO_TICKS
    assert due_now(HOURLY, policy, seen=MIDNIGHT, now=MIDNIGHT + 2 * HOUR, most=100).ticks == (
        MIDNIGHT + 2 * HOUR,
    )


def test_what_is_on_time_is_fired_each_however_dense() -> None:
    times = timetable("@every 1s", UTC)
    policy = Policy(missed="skip", grace=10)

    due = due_now(times, policy, seen=MIDNIGHT, now=MIDNIGHT + 5.5, most=100)
    first = due_now(times, policy, seen=MIDNIGHT, now=MIDNIGHT + 5.5, most=2)
    rest = due_now(times, policy, seen=first.seen, now=MIDNIGHT + 5.5, most=100)

    assert due.ticks == tuple(MIDNIGHT + n for n in range(1, 6))
    assert first.ticks + rest.ticks == due.ticks


def test_a_schedule_nobody_looked_at_for_ten_years_costs_what_it_is_asked_for() -> None:
    times = timetable("@every 1s", UTC)
    policy = Policy(missed=1000, grace=60)

    due = due_now(times, policy, seen=0, now=MIDNIGHT, most=100)

    assert len(due.ticks) == 100
    assert due.ticks[0] == MIDNIGHT - 60 - 999


def rule(expression: str = "@hourly", *, missed: Missed = "once", grace: float = 60) -> Rule:
    return Rule(times=timetable(expression, UTC), policy=Policy(missed=missed, grace=grace))


def test_nothing_before_the_first_look_was_missed() -> None:
    begun = plan_for(rule(missed=5), None, MIDNIGHT + HOUR + 1)

    assert begun.ticks == NO_TICKS
    assert plan_for(rule(missed=5), begun.note, MIDNIGHT + HOUR + 2).ticks == NO_TICKS


def test_a_clock_that_is_set_back_fires_nothing_twice() -> None:
    ticked = Ticked(seen=MIDNIGHT, fingerprint=rule().fingerprint)
    fired = plan_for(rule(), ticked, MIDNIGHT + HOUR + 300)

    assert fired.ticks == (MIDNIGHT + HOUR,)
    for minutes in range(-5, 60):
        now = MIDNIGHT + HOUR + 60 * minutes
        assert plan_for(rule(), fired.note, now) == NOTHING


def test_changed_times_look_back_a_minute_and_miss_nothing_before() -> None:
    ticked = Ticked(seen=MIDNIGHT, fingerprint=rule().fingerprint, fired=MIDNIGHT)
    changed = rule("*/30 * * * *", missed=50)

    soon = plan_for(changed, ticked, MIDNIGHT + 5 * HOUR + 30)
    late = plan_for(changed, ticked, MIDNIGHT + 5 * HOUR + 90)

    assert soon.ticks == (MIDNIGHT + 5 * HOUR,)
    assert late.ticks == NO_TICKS
    assert late.note is not None
    assert late.note.fingerprint == changed.fingerprint
    assert plan_for(changed, late.note, MIDNIGHT + 5 * HOUR + 1800).ticks == (MIDNIGHT + 5 * HOUR + 1800,)


def test_two_versions_side_by_side_fire_a_time_they_share_once_and_lose_none() -> None:
    """While a deploy rolls, both look at the note in turn."""
    old, new = rule("0 * * * *"), rule("0,30 * * * *")
    fired: list[int] = []
    ticked = plan_for(old, None, MIDNIGHT + 1).note
    for second in range(2, 4 * HOUR, 7):
        plan = plan_for((old, new)[second % 2], ticked, MIDNIGHT + second)
        ticked = plan.note or ticked
        fired += plan.ticks

    assert fired == [MIDNIGHT + half * 1800 for half in range(1, 8)]


def test_what_passes_in_a_pause_was_not_missed() -> None:
    ticked = Ticked(seen=MIDNIGHT, fingerprint=rule().fingerprint)
    stopped = paused(rule(missed=9), ticked, MIDNIGHT + 1)

    assert plan_for(rule(missed=9), stopped, MIDNIGHT + 3 * HOUR) == NOTHING
    goes_on = resumed(rule(missed=9), stopped, MIDNIGHT + 3 * HOUR + 5)
    assert plan_for(rule(missed=9), goes_on, MIDNIGHT + 3 * HOUR + 6) == NOTHING
    assert plan_for(rule(missed=9), goes_on, MIDNIGHT + 4 * HOUR).ticks == (MIDNIGHT + 4 * HOUR,)


def test_a_schedule_can_be_paused_before_it_ever_ran() -> None:
    stopped = paused(rule(), None, MIDNIGHT)

    assert plan_for(rule(), stopped, MIDNIGHT + HOUR).ticks == NO_TICKS
    assert not resumed(rule(), None, MIDNIGHT).paused


def test_ticks_in_hand_are_pushed_by_one_and_after_its_lease_by_another() -> None:
    ticked = Ticked(seen=MIDNIGHT, fingerprint=rule().fingerprint)
    now = MIDNIGHT + HOUR

    taken = plan_in_hand(rule(), ticked, now, "a")
    assert taken.ticks == (now,)
    assert taken.note is not None
    assert taken.note.fired is None, "it is not pushed yet"
    assert plan_in_hand(rule(), taken.note, now + 1, "b") == NOTHING
    again = plan_in_hand(rule(), taken.note, now + 61, "b")
    assert again.ticks == (now,)
    assert again.note is not None
    assert after_pushing(again.note, "a", (now,)) is None, "it is in other hands"
    done = after_pushing(again.note, "b", (now,))
    assert done is not None
    assert (done.in_hand, done.fired) == ((), now)


def test_what_was_not_pushed_is_there_for_the_next_at_once() -> None:
    every = rule("@every 1s")
    ticked = Ticked(seen=MIDNIGHT, fingerprint=every.fingerprint)
    taken = plan_in_hand(every, ticked, MIDNIGHT + 2, "a").note
    assert taken is not None

    left = after_pushing(taken, "a", (MIDNIGHT + 1,))

    assert plan_in_hand(every, left, MIDNIGHT + 2, "b").ticks == (MIDNIGHT + 2,)


def test_a_note_that_cant_be_read_is_told_of() -> None:
    for value in (b"", b"{}", b'{"seen":"x","fingerprint":""}', b"\xff"):
        with pytest.raises(InvalidQueueArgument, match="can't be read"):
            ticked_in(value)


def test_jitter_is_spread_and_the_same_for_whoever_asks() -> None:
    jitters = [jitter_of("nightly", due, 30) for due in range(2000)]

    assert jitters == [jitter_of("nightly", due, 30) for due in range(2000)]
    assert all(0 <= jitter < 30 for jitter in jitters)
    assert 14 < sum(jitters) / 2000 < 16
    assert jitter_of("other", 1, 30) != jitter_of("nightly", 1, 30)


def test_a_fingerprint_changes_with_the_times_and_with_nothing_else() -> None:
    def of(expression: str, zone: tzinfo = BERLIN) -> str:
        return timetable(expression, zone).fingerprint

    assert of("0 3 * * mon") == of(" 0  3 * * MON")
    assert len({of("0 3 * * *"), of("0 4 * * *"), of("0 3 * * *", NEW_YORK), of("@every 1h")}) == 4
    assert of("@every 1h", BERLIN) == of("@every 1h", NEW_YORK), "an interval is counted from the epoch"


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": " x"},
        {"name": "x" * 121},
        {"name": "line\n"},
        {"name": 5},
        {"tz": "Europe/Nowhere"},
        {"tz": "../etc/passwd"},
        {"tz": ""},
        {"tz": 2},
        {"queue": "no spaces"},
        {"missed": "always"},
        {"missed": 0},
        {"missed": 1001},
        {"missed": True},
        {"missed": None},
        {"grace": 0.5},
        {"grace": float("nan")},
        {"jitter": -1},
        {"max_attempts": -1},
        {"expression": "@reboot"},
    ],
    ids=str,
)
def test_a_schedule_that_could_not_work_is_refused(options: dict[str, Any]) -> None:
    fit: dict[str, Any] = {"name": "nightly", "expression": "0 3 * * *", "job": Nightly()}
    Schedule(**fit)

    with pytest.raises(InvalidQueueArgument):
        Schedule(**{**fit, **options})


def test_a_schedule_of_what_is_no_job_or_cant_travel_is_refused() -> None:
    with pytest.raises(InvalidJob):
        Schedule("x", "@daily", job=object())
    with pytest.raises(InvalidJob):
        Schedule("x", "@daily", job=Nightly)
    with pytest.raises(UnserializableJob):
        Schedule("x", "@daily", job=Nightly(2**70))


def test_a_schedule_says_when_it_is_due_in_its_own_zone() -> None:
    schedule = Schedule("nightly", "0 3 * * *", tz="Europe/Warsaw", job=Nightly())

    first, second = schedule.upcoming(2, after=datetime(2026, 3, 28, 12, tzinfo=UTC))

    assert (first.isoformat(), second.isoformat()) == (
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T03:00:00+02:00",
    )
    with pytest.raises(InvalidQueueArgument, match="aware"):
        schedule.upcoming(1, after=datetime(2026, 3, 28))  # noqa: DTZ001 - that is what is refused
    with pytest.raises(InvalidQueueArgument):
        schedule.upcoming(0, after=datetime(2026, 3, 28, tzinfo=UTC))


def test_a_zone_may_be_given_as_it_is() -> None:
    fixed = Schedule("x", "0 3 * * *", tz=timezone(timedelta(hours=2)), job=Nightly())

    assert fixed.upcoming(1, after=datetime(2026, 1, 1, tzinfo=UTC))[0].isoformat() == (
        "2026-01-01T03:00:00+02:00"
    )


@pytest.mark.rule("OCC-1")
def test_an_occurrence_comes_back_as_it_was_written() -> None:
    occurrence = occurrence_at("nächtlich", at(2026, 3, 29, 1), "0123456789abcdef", trigger="f" * 32)

    assert occurrence_in({"aqueue.occurrence": written(occurrence)}) == occurrence
    assert occurrence_in({"other": "x"}) is None
    with pytest.raises(AttributeError):
        occurrence.schedule = "other"  # type: ignore[misc]


@pytest.mark.rule("OCC-1")
@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"schedule":"x","due_at":"2026-01-01T00:00:00","fingerprint":""}', '{"schedule":1}'],
)
def test_an_occurrence_that_cant_be_read_is_an_error_and_no_ordinary_job(text: str) -> None:
    with pytest.raises(JobReconstructionError):
        occurrence_in({"aqueue.occurrence": text})


@pytest.mark.rule("OCC-1")
def test_a_job_id_names_the_occurrence_and_its_queue() -> None:
    tick = occurrence_at("nightly", MIDNIGHT, "aaaa")
    changed: list[Callable[[], str]] = [
        lambda: job_id_of(msgspec.structs.replace(tick, schedule="other"), "q"),
        lambda: job_id_of(msgspec.structs.replace(tick, trigger="t"), "q"),
        lambda: job_id_of(occurrence_at("nightly", MIDNIGHT + 1, "aaaa"), "q"),
        lambda: job_id_of(tick, "other"),
    ]

    assert job_id_of(tick, "q") == job_id_of(occurrence_at("nightly", MIDNIGHT, "bbbb"), "q")
    assert len({job_id_of(tick, "q"), *(make() for make in changed)}) == 5
