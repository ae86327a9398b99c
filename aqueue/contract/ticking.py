"""What the note of a schedule says, and what to do about it now (CRON-1).

The note is the only memory that all schedulers share. Everything due at or before `seen` is decided and never
looked at again, so a clock that is set back, or another process that is late, finds nothing to do.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from aqueue.contract.schedule import Policy, Timetable, due_now
from aqueue.errors import InvalidQueueArgument

MOST_TICKS = 100
"""How many jobs one step pushes; more follow in the next."""

LOOK_BACK = 60.0
"""Seconds before a change of its times was noticed in which a schedule is still due by the new ones."""

HAND_LEASE = 60.0
"""Seconds in which whoever took ticks in hand has to push them, where that is not one step with the note."""


class Ticked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the note says. Times are seconds since the epoch by the clock of the store that keeps it.

    `fired` is the last time that got its job. `in_hand` are times that are decided but whose jobs may not be
    stored yet: `holder` pushes them, and after `until` whoever comes by.
    """

    seen: float
    fingerprint: str
    fired: float | None = None
    paused: bool = False
    in_hand: tuple[int, ...] = ()
    holder: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a schedule says about its ticks."""

    times: Timetable
    policy: Policy

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes the times."""
        return self.times.fingerprint


class Plan(NamedTuple):
    """Which ticks to push jobs for, and what the note is to say then; None leaves it as it is."""

    ticks: tuple[int, ...]
    note: Ticked | None


def plan_for(rule: Rule, ticked: Ticked | None, now: float, most: int = MOST_TICKS) -> Plan:
    """Decide what to do now, for `most` ticks at a time, where jobs and note are written in one step."""
    if ticked is None:
        return Plan((), first_seen(rule, now))
    if ticked.fingerprint != rule.fingerprint:
        ticked = replace(ticked, fingerprint=rule.fingerprint, seen=max(ticked.seen, now - LOOK_BACK))
        changed: Ticked | None = ticked
    else:
        changed = None
    if ticked.paused:
        return Plan((), changed)
    due = due_now(rule.times, rule.policy, seen=ticked.seen, now=now, most=most)
    if not due.ticks:
        return Plan((), changed)
    return Plan(due.ticks, replace(ticked, seen=due.seen, fired=due.ticks[-1]))


def plan_in_hand(rule: Rule, ticked: Ticked | None, now: float, holder: str, most: int = MOST_TICKS) -> Plan:
    """Decide what to take in hand now, where the jobs are pushed in a step after the note's."""
    if ticked is not None and ticked.in_hand:
        if ticked.until > now:
            return Plan((), None)
        return Plan(ticked.in_hand, replace(ticked, holder=holder, until=now + HAND_LEASE))
    plan = plan_for(rule, ticked, now, most)
    if plan.note is None or not plan.ticks:
        return plan
    assert ticked is not None
    taken = replace(plan.note, fired=ticked.fired, in_hand=plan.ticks, holder=holder, until=now + HAND_LEASE)
    return Plan(plan.ticks, taken)


def after_pushing(ticked: Ticked, holder: str, pushed: tuple[int, ...]) -> Ticked | None:
    """Say that these jobs are stored, and leave the other ticks in hand to whoever comes next.

    None where the ticks are in other hands by now.
    """
    if ticked.holder != holder:
        return None
    left = tuple(due for due in ticked.in_hand if due not in pushed)
    return replace(
        ticked,
        in_hand=left,
        fired=max(pushed) if pushed else ticked.fired,
        holder="",
        until=0.0,
    )


def paused(rule: Rule, ticked: Ticked | None, now: float) -> Ticked:
    """Say that nothing is due until `resumed`."""
    return replace(ticked or first_seen(rule, now), paused=True)


def resumed(rule: Rule, ticked: Ticked | None, now: float) -> Ticked:
    """Say that what is due from now on counts again; what passed meanwhile was not missed."""
    return replace(ticked or first_seen(rule, now), paused=False, seen=now)


def first_seen(rule: Rule, now: float) -> Ticked:
    """Say that the schedule begins now: nothing before was missed."""
    return Ticked(seen=now, fingerprint=rule.fingerprint)


def next_due(rule: Rule, ticked: Ticked | None, now: float) -> int | None:
    """Return when the schedule is due next, as if it were not paused."""
    return rule.times.next_after(max(now, ticked.seen if ticked is not None else now))


def ticked_in(value: bytes | None) -> Ticked | None:
    """Return what a note says; raises `InvalidQueueArgument` for one that can't be read."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Ticked)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidQueueArgument("the note of a schedule can't be read") from error


encode = msgspec.json.Encoder().encode
