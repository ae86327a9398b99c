"""What is kept of how a job ended and how far it is, and for how long (RESULT-1, RESULT-2).

Both are envelopes under the job's own id, with a name that no job has. So a keyring seals and encrypts them
as it does jobs, and neither passes for a job, for the other, or for another job's.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from aqueue.contract.envelope import VERSION, Envelope
from aqueue.contract.failure import clean_text
from aqueue.contract.forms import MAX_DEPTH, Misfit, check_json
from aqueue.contract.names import check_seconds
from aqueue.contract.notes import LONGEST_NOTE
from aqueue.errors import InvalidQueueArgument

RESULTS_KEY = "aqueue.results"
"""The metadata key that says for how many seconds a job's result is kept."""

RESULT = "aqueue.result"
PROGRESS = "aqueue.progress"

LARGEST_RESULT = 512 * 1024

Keep = float | Literal[False] | None
"""How long results are kept: seconds, False for not at all, None for whatever is said elsewhere."""

State = Literal["done", "failed", "unfit"]

_LONGEST_TEXT = 1000


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job ended: with a value, with a failure, or with a value that has no wire form."""

    state: State
    value: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""
    error_type: str = ""
    error: str = ""


class Standing(msgspec.Struct, frozen=True):
    """How far a job said it is, from 0 to 1, in which attempt."""

    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)]
    text: str
    attempt: int


def check_results(value: object) -> Keep:
    """Return how long results are kept, or refuse it: seconds, a timedelta, False or None."""
    if value is None or value is False:
        return value
    seconds = check_seconds(value, "results")
    if not 0 < seconds <= LONGEST_NOTE:
        raise InvalidQueueArgument(f"results are kept for more than 0 s and at most 100 years, not {value!r}")
    return seconds


def check_fraction(value: object) -> float:
    """Return a number from 0 to 1, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidQueueArgument(f"progress is a number from 0 to 1, not {value!r}")
    return float(value)


def kept_for(metadata: Mapping[str, str]) -> float | None:
    """Return for how many seconds a job's result is kept, None for not at all."""
    try:
        seconds = float(metadata.get(RESULTS_KEY, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds <= LONGEST_NOTE else None


def ending_with(value: object) -> Ending:
    """Return the ending of a job that returned this; unfit is what is no JSON (ARG-1) or too large."""
    try:
        check_json(value, MAX_DEPTH)
        raw = msgspec.json.encode(value)
    except Misfit as misfit:
        return Ending("unfit", error=f"result{misfit.where}: {misfit.reason}")
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as error:
        return Ending("unfit", error=f"result: {type(error).__name__}")
    if len(raw) > LARGEST_RESULT:
        return Ending("unfit", error=f"result: it takes {len(raw)} bytes; at most {LARGEST_RESULT} are kept")
    return Ending("done", value=msgspec.Raw(raw))


def standing_at(fraction: object, text: object, attempt: int) -> Standing:
    """Return what is kept of a job's progress; a text is cleaned and cut."""
    if not isinstance(text, str):
        raise InvalidQueueArgument(f"a progress text is a str, not {type(text).__name__}")
    return Standing(check_fraction(fraction), clean_text(text, _LONGEST_TEXT), attempt)


def written(kept: Ending | Standing, *, id: str, now: float) -> Envelope:
    """Return the envelope to close; `now` is the store's time."""
    name = RESULT if isinstance(kept, Ending) else PROGRESS
    return Envelope(VERSION, id, name, now, msgspec.Raw(msgspec.json.encode(kept)), None, {})


def ending_in(envelope: Envelope, id: str) -> Ending | None:
    """Return the ending in an envelope; None for anything else, another job's ending included."""
    if (envelope.name, envelope.id) != (RESULT, id):
        return None
    try:
        return msgspec.json.decode(envelope.args, type=Ending)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None


def standing_in(envelope: Envelope, id: str) -> Standing | None:
    """Return the progress in an envelope; None for anything else, another job's included."""
    if (envelope.name, envelope.id) != (PROGRESS, id):
        return None
    try:
        return msgspec.json.decode(envelope.args, type=Standing)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
