"""What a limit lets through, and when the turned away should come back: pure decisions on small states.

Each state is what a note says. Time comes in as the store's, in seconds. Those who are turned away get
places in a line, one place as long as one start takes on average, so that ten thousand waiting jobs come
back one after the other and not all at once.
"""

from typing import TypeVar

import msgspec
from msgspec.structs import replace

_PARTS = 100
_HOLD_AT_FIRST = 1.0
_WEIGHT_OF_THE_LAST = 0.2
_SHORTEST_LINE_STEP = 0.005


class Starts(msgspec.Struct, frozen=True, array_like=True):
    """How many started in each hundredth of a window, oldest first, and where the line of the others ends."""

    counts: tuple[tuple[int, int], ...] = ()
    line: float = 0.0


def take_start(state: Starts, now: float, *, limit: int, per: float) -> tuple[Starts, float]:
    """Count one more start, or turn it away: return the new state and the seconds to wait, 0 for go.

    In no window of `per` seconds do more than `limit` start, wherever it begins.
    """
    width = per / _PARTS
    counts = [(part, count) for part, count in state.counts if (part + 1) * width + per > now]
    if sum(count for _, count in counts) < limit:
        part = int(now / width)
        if counts and counts[-1][0] >= part:
            part, count = counts.pop()
        else:
            count = 0
        return Starts((*counts, (part, count + 1)), state.line), 0.0
    place = max(state.line, (counts[0][0] + 1) * width + per)
    return Starts(tuple(counts), place + per / limit), place - now


class Slots(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a slot until when, how long one is held on average, and where the line of the others ends."""

    holders: dict[str, float] = {}
    hold: float = _HOLD_AT_FIRST
    line: float = 0.0


def take_slot(state: Slots, now: float, holder: str, *, limit: int, lease: float) -> tuple[Slots, float]:
    """Take a slot until `now + lease`, or be turned away: return the new state and the seconds to wait."""
    holders = {other: until for other, until in state.holders.items() if until > now}
    if holder in holders or len(holders) < limit:
        holders[holder] = now + lease
        return replace(state, holders=holders), 0.0
    step = max(_SHORTEST_LINE_STEP, state.hold / limit)
    place = max(state.line, now + step)
    return Slots(holders, state.hold, place + step), place - now


def keep_slot(state: Slots, now: float, holder: str, *, lease: float) -> Slots:
    """Hold the slot for another `lease`; whoever still runs counts, even one whose slot was given away."""
    return replace(state, holders={**state.holders, holder: now + lease})


def leave_slot(state: Slots, holder: str, *, held: float) -> Slots:
    """Give the slot back after holding it for `held` seconds."""
    holders = {other: until for other, until in state.holders.items() if other != holder}
    hold = state.hold + _WEIGHT_OF_THE_LAST * (held - state.hold)
    return Slots(holders, hold, state.line)


class Circuit(msgspec.Struct, frozen=True, array_like=True):
    """When a dependency failed of late, until when it is left alone (0: it is not), and tried by somebody."""

    failures: tuple[float, ...] = ()
    open_until: float = 0.0
    trying_until: float = 0.0


def may_try(state: Circuit, now: float, *, patience: float) -> tuple[Circuit, float]:
    """Let a call through, or turn it away: return the new state and the seconds to wait.

    Once a circuit's time is over one call tries it, for at most `patience` seconds, while the others wait.
    """
    if state.open_until == 0:
        return state, 0.0
    waits = max(state.open_until, state.trying_until) - now
    if waits > 0:
        return state, waits
    return replace(state, trying_until=now + patience), 0.0


def after_failure(state: Circuit, now: float, *, failures: int, per: float, cool: float) -> Circuit:
    """Note a failure; the last of `failures` within `per` seconds opens the circuit for `cool` seconds."""
    recent = (*(at for at in state.failures if at > now - per), now)
    if state.open_until > 0 or len(recent) >= failures:
        return Circuit(open_until=max(state.open_until, now + cool))
    return Circuit(recent)


State = TypeVar("State", Starts, Slots, Circuit)


def state_of(kind: type[State], value: bytes | None) -> State:
    """Return what a note says; one that can't be read is one that says nothing."""
    if value is None:
        return kind()
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return kind()
