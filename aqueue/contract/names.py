"""What callers may ask for: names, delays, limits and ids (NAME-1, PUSH-1, POP-1).

Every check runs before telemetry, encoding or I/O and raises `InvalidQueueArgument`, so that a refused
call has certainly sent nothing.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from aqueue.errors import InvalidQueueArgument

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_queue_name(name: object) -> str:
    """Return the name, or refuse it (NAME-1)."""
    if not isinstance(name, str) or not _is_queue_name(name):
        raise InvalidQueueArgument(
            f"{name!r} is not a queue name: use 1 to 80 ASCII letters, digits, hyphens and underscores"
        )
    return name


def check_topic_name(name: object) -> str:
    """Return the name of a topic, which follows the rule for queues, or refuse it (TOPIC-1)."""
    if not isinstance(name, str) or not _is_queue_name(name):
        raise InvalidQueueArgument(
            f"{name!r} is not a topic name: use 1 to 80 ASCII letters, digits, hyphens and underscores"
        )
    return name


def check_queue_names(names: object) -> tuple[str, ...]:
    """Return the whole list checked; refuse a bad or a repeated name before any is acted on (NAME-1)."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidQueueArgument(f"queues must be a list of names, not {type(names).__name__}")
    checked = tuple(check_queue_name(name) for name in names)
    if len(set(checked)) != len(checked):
        repeated = sorted({name for name in checked if checked.count(name) > 1})
        raise InvalidQueueArgument(f"queue names repeated in one list: {', '.join(repeated)}")
    return checked


def check_seconds(value: object, what: str) -> float:
    """Return 0 or a positive finite number of seconds from a number or a timedelta."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidQueueArgument(f"{what} must be seconds or a timedelta, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidQueueArgument(f"{what} must be 0 or a positive finite number of seconds, not {value!r}")
    return seconds


def check_delay(delay: object, at: object, now: float, longest: float | None) -> float:
    """Return the delay in seconds that `delay` or `at` asks for (PUSH-1, PUSH-2)."""
    if type(delay) is int and delay == 0 and at is None:
        return 0.0
    seconds = check_seconds(delay, "delay")
    if at is not None:
        if delay != 0 and delay != timedelta():
            raise InvalidQueueArgument("give delay or at, not both")
        seconds = _seconds_until(at, now)
    if longest is not None and seconds > longest:
        raise InvalidQueueArgument(f"this backend delays a job by at most {longest:g} s, not {seconds:g} s")
    return seconds


def check_max_attempts(value: object) -> int | None:
    """Return None (the worker decides) or a whole number from 0 (PUSH-1)."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31 - 1:
        raise InvalidQueueArgument(f"max_attempts must be None or a whole number from 0, not {value!r}")
    return value


def check_limit(value: object) -> int:
    """Return how many deliveries a pop may take: a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidQueueArgument(f"limit must be a whole number from 1, not {value!r}")
    return value


def check_job_id(value: object) -> str:
    """Return an id the caller chose: 32 lower-case hexadecimal characters (PUSH-9)."""
    if not isinstance(value, str) or not is_job_id(value):
        raise InvalidQueueArgument("id must be 32 lower-case hexadecimal characters")
    return value


def is_job_id(text: str) -> bool:
    """Say whether a text is 32 lower-case hexadecimal characters."""
    try:
        return len(text) == 32 and bytes.fromhex(text).hex() == text
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _is_queue_name(name: str) -> bool:
    return _QUEUE_NAME.fullmatch(name) is not None


def _seconds_until(at: object, now: float) -> float:
    if not isinstance(at, datetime) or at.tzinfo is None or at.utcoffset() is None:
        raise InvalidQueueArgument("at must be an aware datetime: give it a time zone")
    return max(0.0, (at - datetime.fromtimestamp(now, UTC)).total_seconds())
