"""What makes two jobs one, and for how long (UNIQUE-1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, cast

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

    def claim(self, job: object, name: str, args: bytes, delay: float) -> "Claim":
        """Return what a push of this job has to claim; `args` are its encoded arguments, `delay` seconds.

        Raises `InvalidQueueArgument` where `by` names an argument that the job has not, or gives no text.
        """
        key = self._key(job, name, args)
        if self.window is not None:
            return Claim(key, check_seconds(self.window, "window"), "")
        return Claim(key, delay + check_seconds(self.at_most, "at_most"), f"{self.until}:{key}")

    def _key(self, job: object, name: str, args: bytes) -> str:
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
        values = _encode([(each, arguments[each]) for each in chosen])
        return note_key("unique", name, "args", values.decode())


class Claim(NamedTuple):
    """The note of a key, for how many seconds it is taken at most, and what the envelope says of it."""

    key: str
    seconds: float
    freed: str


def key_to_free(metadata: Mapping[str, str], until: Until) -> str | None:
    """Return the key of the note that a job frees at this moment, if there is one."""
    moment, _, key = metadata.get(UNIQUE_KEY, "").partition(":")
    return key if moment == until else None
