"""When a schedule is due: cron expressions and intervals, and which of their times to act on (CRON-1).

Times are whole seconds since the epoch, and a time zone is an argument, so nothing here reads a clock or a
file. What daylight saving does to an expression is decided by cronsim, which follows Debian's cron.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

from cronsim import CronSim, CronSimError

from aqueue.errors import InvalidQueueArgument

Missed: TypeAlias = Literal["skip", "once"] | int
"""What becomes of times that nobody was there for: none, the last one, or the last so many of them."""

LARGEST_CATCH_UP = 1000

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = re.compile(r"@every\s+(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.IGNORECASE)
_UNITS = (86_400, 3600, 60, 1)
_LONGEST_INTERVAL = 366 * 86_400
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST_WINDOW = 3600.0


@dataclass(frozen=True, slots=True)
class Timetable:
    """The times of one expression in one zone; make it with `timetable`."""

    expression: str
    zone: tzinfo
    interval: int | None = None

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with anything that changes the times."""
        return sha256(f"{self.expression}\0{self.zone}".encode()).hexdigest()[:16]

    def after(self, moment: float) -> Iterator[int]:
        """Yield every due time later than the moment, each once, in order."""
        if self.interval is not None:
            return self._multiples_after(moment)
        return self._cron_after(moment)

    def next_after(self, moment: float) -> int | None:
        """Return the first due time later than the moment; None if there is none for 50 years."""
        return next(self.after(moment), None)

    def between(self, after: float, until: float) -> Iterator[int]:
        """Yield the due times later than `after` up to `until`, in order."""
        for due in self.after(after):
            if due > until:
                return
            yield due

    def latest(self, after: float, until: float, most: int) -> list[int]:
        """Return the last `most` due times later than `after` up to `until`, in order.

        It looks back over ever longer spans, so that a schedule nobody looked at for a year costs what it
        is asked for and not a year's times.
        """
        span = _FIRST_WINDOW
        while True:
            begin = max(after, until - span)
            found = list(self.between(begin, until))
            if len(found) >= most or begin <= after:
                return found[-most:]
            span *= 4

    def _multiples_after(self, moment: float) -> Iterator[int]:
        assert self.interval is not None
        due = (int(moment // self.interval) + 1) * self.interval
        while True:
            yield due
            due += self.interval

    def _cron_after(self, moment: float) -> Iterator[int]:
        """Go through cronsim's times, leaving out what is not later than the one before.

        In the second of two equal hours it begins with times of the first, and after an hour that was left
        out it may name one moment twice.
        """
        last = moment
        for tick in CronSim(self.expression, datetime.fromtimestamp(moment // 1, self.zone)):
            due = int(tick.timestamp())
            if due > last:
                yield due
                last = due


def timetable(expression: object, zone: tzinfo) -> Timetable:
    """Return the times of a cron expression of five fields, an alias such as `@daily`, or `@every 90s`.

    Raises `InvalidQueueArgument`, which says what is wrong with it.
    """
    if not isinstance(expression, str):
        raise InvalidQueueArgument(f"a schedule's expression must be text, not {type(expression).__name__}")
    text = " ".join(expression.split())
    if text.startswith("@"):
        return _of_alias(text, zone)
    return _of_fields(text, expression, zone)


def _of_alias(text: str, zone: tzinfo) -> Timetable:
    name = text.lower()
    if name in _ALIASES:
        return _of_fields(_ALIASES[name], text, zone)
    if name.partition(" ")[0] == "@every":
        return Timetable(name, UTC, _interval(text))
    if name == "@reboot":
        raise InvalidQueueArgument("@reboot is no time: push the job where your program starts")
    raise InvalidQueueArgument(f"{text!r} is not known: use @every 90s, {', '.join(sorted(_ALIASES))}")


def _interval(text: str) -> int:
    found = _EVERY.fullmatch(text)
    parts = found.groups() if found else ()
    seconds = sum(int(part or 0) * unit for part, unit in zip(parts, _UNITS, strict=False))
    if not 1 <= seconds <= _LONGEST_INTERVAL:
        raise InvalidQueueArgument(
            f"{text!r} is no interval: write @every 90s, 15m, 1h30m or 2d, from 1 second to 366 days"
        )
    return seconds


def _of_fields(text: str, written: str, zone: tzinfo) -> Timetable:
    fields = text.upper().split()
    if len(fields) != 5:
        raise InvalidQueueArgument(
            f"{written!r} has {len(fields)} fields, not 5: minute, hour, day of month, month, day of week"
            + ("; for seconds there is @every 10s" if len(fields) == 6 else "")
        )
    made = Timetable(" ".join(fields), zone)
    try:
        CronSim(made.expression, _SOME_DAY)
    except CronSimError as error:
        raise InvalidQueueArgument(
            f"{written!r} is not a cron expression: {str(error).lower()}{_hint(fields)}"
        ) from None
    except (AssertionError, TypeError, ValueError):
        raise InvalidQueueArgument(f"{written!r} is not a cron expression") from None
    return made


def _hint(fields: list[str]) -> str:
    for field in fields:
        around = re.search(r"(?<![\d#/])(\d+)-(\d+)", field)
        if around and int(around[1]) > int(around[2]):
            return f"; a range can't run past its end: write {around[0]} as two ranges with a comma"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done about times that have passed. `grace` is how many seconds late is still on time."""

    missed: Missed
    grace: float


class Due(NamedTuple):
    """The times to act on, oldest first, and up to when everything is decided then."""

    ticks: tuple[int, ...]
    seen: float


def due_now(times: Timetable, policy: Policy, *, seen: float, now: float, most: int) -> Due:
    """Say which times later than `seen` are to be acted on now, at most so many at a time.

    Those within the grace are on time, each of them. Of the older ones `skip` takes none and a number the
    last so many. `once` takes the last, unless something is on time or will be within the grace anyway.
    """
    first = times.next_after(seen)
    if first is None or first > now:
        return Due((), seen)
    late = now - policy.grace
    on_time = list(islice(times.between(max(seen, late), now), most))
    missed = _missed(times, policy, seen=seen, late=late, now=now, has_company=bool(on_time))
    ticks = tuple((missed + on_time)[:most])
    return Due(ticks, ticks[-1] if ticks else seen)


def _missed(
    times: Timetable, policy: Policy, *, seen: float, late: float, now: float, has_company: bool
) -> list[int]:
    if policy.missed == "skip" or seen >= late:
        return []
    if policy.missed != "once":
        return times.latest(seen, late, policy.missed)
    following = times.next_after(now)
    if has_company or (following is not None and following <= now + policy.grace):
        return []
    return times.latest(seen, late, 1)


def check_missed(missed: object) -> Missed:
    """Return the policy, or refuse it: "skip", "once", or a whole number from 1 to 1000."""
    match missed:
        case "skip" | "once":
            return missed
    if isinstance(missed, int) and not isinstance(missed, bool) and 1 <= missed <= LARGEST_CATCH_UP:
        return missed
    raise InvalidQueueArgument(
        f'missed must be "skip", "once" or a whole number from 1 to {LARGEST_CATCH_UP}, not {missed!r}'
    )


def jitter_of(name: str, due: int, longest: float) -> float:
    """Return from 0 to `longest` seconds: spread over names and times, and the same for whoever asks."""
    digest = sha256(f"{name}\0{due}".encode()).digest()
    return longest * int.from_bytes(digest[:8]) / 2**64
