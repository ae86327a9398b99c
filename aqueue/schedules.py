"""`Schedule`: which job is pushed when (CRON-1). A plain value; `Scheduler` does the pushing."""

from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

from aqueue.contract.names import check_limit, check_max_attempts, check_queue_name, check_seconds
from aqueue.contract.schedule import Missed, Policy, Timetable, check_missed, timetable
from aqueue.contract.ticking import Rule
from aqueue.errors import InvalidQueueArgument
from aqueue.jobs import job_type

_LONGEST_NAME = 120
_SHORTEST_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job to be pushed at the times of an expression, once for each of them.

    `expression` has five fields as in crontab(5), or is `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`
    or an interval, `@every 90s`. `tz` is a zone's name or a `tzinfo`. The name is what all processes know the
    schedule by. `missed` says what is done about times that passed with nobody there: "skip" them, fire the
    last one "once", or catch up to a number of them. A time counts as missed when it is more than `grace`
    late; "once" also leaves it when the next one comes within the grace. `jitter` puts each job off by up to
    so much, by the same amount whoever pushes it. Durations are seconds or timedeltas.

    Raises `InvalidQueueArgument` for what is not valid, `InvalidJob` and `UnserializableJob` for a job that
    could not be pushed.
    """

    name: str
    expression: str
    _: KW_ONLY
    job: object
    tz: str | tzinfo = "UTC"
    queue: str | None = None
    missed: Missed = "once"
    grace: float | timedelta = 60.0
    jitter: float | timedelta = 0.0
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        self.times()
        if self.queue is not None:
            check_queue_name(self.queue)
        check_missed(self.missed)
        if check_seconds(self.grace, "grace") < _SHORTEST_GRACE:
            raise InvalidQueueArgument(f"grace must be at least {_SHORTEST_GRACE:g} second")
        check_seconds(self.jitter, "jitter")
        check_max_attempts(self.max_attempts)
        job_type(type(self.job)).codec.encode(self.job)

    def times(self) -> Timetable:
        """Return the times of this schedule."""
        return timetable(self.expression, _zone(self.tz))

    def rule(self) -> Rule:
        """Return what decides about its ticks."""
        grace = check_seconds(self.grace, "grace")
        return Rule(times=self.times(), policy=Policy(missed=self.missed, grace=grace))

    def upcoming(self, count: int, *, after: datetime) -> list[datetime]:
        """Return the next `count` times later than an aware datetime, in the schedule's own zone."""
        if not isinstance(after, datetime) or after.utcoffset() is None:
            raise InvalidQueueArgument("after must be an aware datetime: give it a time zone")
        zone, times = _zone(self.tz), self.times().after(after.timestamp())
        return [datetime.fromtimestamp(due, zone) for due in islice(times, check_limit(count))]


def _check_name(name: object) -> None:
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= _LONGEST_NAME
        or not name.isprintable()
        or name != name.strip()
    ):
        raise InvalidQueueArgument(
            f"{name!r} is not a schedule's name: use 1 to {_LONGEST_NAME} printable characters"
        )


def _zone(tz: object) -> tzinfo:
    if isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise InvalidQueueArgument(f"tz must be the name of a time zone, not {type(tz).__name__}")
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError):
        raise InvalidQueueArgument(
            f"there is no time zone {tz!r} here: names are those of the tz database, such as Europe/Warsaw"
        ) from None
