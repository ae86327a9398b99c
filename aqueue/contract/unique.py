"""Unique pushes: one job at a time about one thing, decided in the store (UNIQUE-1).

While a key is taken, a push of the same key stores nothing and returns the id of the job that has it. A note
beside the queue says which one that is; it is written in one step with the job, so that no two pushes can
both find the key free. The envelope's metadata names the note, so whoever settles the job frees the key, and
needs to know nothing of the job's class.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast

import msgspec

from aqueue.contract.names import check_seconds
from aqueue.contract.notes import note_key
from aqueue.errors import InvalidQueueArgument

UNIQUE_KEY = "aqueue.unique"
"""The metadata key that names the note of a job's key, after the moment at which it is freed."""

Until = Literal["done", "started"]

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Unique:
    """How long a job keeps another of the same key from being pushed to the same queue (UNIQUE-1).

    `by` says what the key is made of, beside the job's name: the names of arguments, all of them by default,
    or a function of the job that gives a text. `until="done"` holds the key until the job was acked or set
    aside, through all its retries; `until="started"` until its first attempt begins, so that what is pushed
    meanwhile runs afterwards; `window`, instead, for so many seconds from the push, whatever becomes of the
    job. No key is held for longer than `at_most` seconds (a day) after the job is due: that bounds what a
    `clear` leaves behind. Durations are seconds or timedeltas.
    """

    by: Sequence[str] | Callable[[Any], str] | None = None
    until: Until = "done"
    window: float | timedelta | None = None
    at_most: float | timedelta = 86_400.0

    def __post_init__(self) -> None:
        if self.until not in {"done", "started"}:
            raise InvalidQueueArgument(f'until must be "done" or "started", not {self.until!r}')
        if isinstance(self.by, str):
            raise InvalidQueueArgument(f"by must be a list of arguments: [{self.by!r}]")
        for what in ("window", "at_most"):
            value = getattr(self, what)
            if value is not None and check_seconds(value, what) == 0:
                raise InvalidQueueArgument(f"{what} must be longer than 0 seconds")

    def key_of(self, job: object, name: str, args: bytes) -> str:
        """Return the key of the note about this job; `args` are its encoded arguments.

        Raises `InvalidQueueArgument` where `by` names an argument that the job has not, or gives no text.
        """
        if callable(self.by):
            text = self.by(job)
            if not isinstance(text, str):
                raise InvalidQueueArgument(f"by must give a text for job {name}, not {type(text).__name__}")
            return note_key("unique", name, "text", text)
        arguments = cast("dict[str, object]", msgspec.json.decode(args))
        chosen = sorted(arguments) if self.by is None else list(self.by)
        for argument in chosen:
            if argument not in arguments:
                raise InvalidQueueArgument(f"job {name} has no argument {argument!r} to be unique by")
        return note_key(
            "unique", name, "args", _encode([(each, arguments[each]) for each in chosen]).decode()
        )

    def seconds(self, delay: float) -> float:
        """Return for how long the key is held at most, from the push on, if the job is due in `delay`."""
        if self.window is not None:
            return check_seconds(self.window, "window")
        return delay + check_seconds(self.at_most, "at_most")

    def metadata(self, key: str) -> dict[str, str]:
        """Return what the envelope has to say, so that the key is freed in time."""
        return {} if self.window is not None else {UNIQUE_KEY: f"{self.until}:{key}"}
