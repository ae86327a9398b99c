"""Crashes between any two steps: `python -m support.file_crashes HOW SCENARIO DIRECTORY`, a report as JSON.

Each scenario is prepared, and then done by a process that dies (`die`), or whose disk refuses once (`fail`)
or from then on (`full`), at the first step, at the second, and so on until it gets through. Whatever is left
must be what was there before or what should be there after.
"""

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aqueue.backends.file import clearing, failing, records
from aqueue.backends.file.disk import Disk
from aqueue.port import (
    FailedRecord,
    Failing,
    Message,
    NotDispatched,
    NoteKey,
    Noting,
    Refused,
    Releasing,
    Reserved,
)
from support.file_hand import Facts, Hand, facts, troubles

QUEUES = ("default", "Other")
_MOST_STEPS = 500
_BEFORE, _AFTER = 1_700_000_000.0, 1_700_000_100.0
DIED = 41


class DyingDisk(Disk):
    """A disk whose process is gone at its nth step."""

    def __init__(self, steps: int) -> None:
        super().__init__(syncs=True)
        self._left = steps

    def before(self, step: str, path: str) -> None:
        self._left -= 1
        if self._left < 0:
            os._exit(DIED)


class FullDisk(DyingDisk):
    """A disk that refuses its nth step, and if it `lasts` every later one that takes room."""

    def __init__(self, steps: int, *, lasts: bool) -> None:
        super().__init__(steps)
        self._lasts = lasts
        self.refused = False

    def before(self, step: str, path: str) -> None:
        self._left -= 1
        if self._left == -1 or (self._left < 0 and self._lasts and step not in {"unlink", "rmdir"}):
            self.refused = True
            raise OSError(errno.ENOSPC, "No space left on device", path)


@dataclass(frozen=True)
class Scenario:
    """`whole` says that all of it is one step; otherwise each job is one, or several that are `all_one`."""

    prepare: Callable[[Hand], list[Reserved]]
    act: Callable[[Hand, list[Reserved]], object]
    whole: bool = False
    all_one: bool = False


def id_of(number: int) -> str:
    return f"{number:032x}"


def message(number: int, queue: str = "default", *, delay: float = 0.0) -> Message:
    return Message(id_of(number), queue, f"payload {number}".encode(), delay)


def record_of(reserved: Reserved, reason: str = "error") -> FailedRecord:
    return FailedRecord(
        id=reserved.id, name="job", queue=reserved.queue, payload=reserved.payload, attempts=1, lost=0,
        reason=reason, delivery=f"{reserved.id} {reason}",
    )  # fmt: skip


def noting(key: str, value: bytes | None, number: int, *, expected: int = 0, jobs: bool = False) -> Noting:
    return Noting(
        at=NoteKey("default", key),
        value=value,
        token=id_of(number),
        expected=id_of(expected) if expected else "",
        messages=(message(50), message(51, delay=60.0)) if jobs else (),
    )


def nothing(_: Hand) -> list[Reserved]:
    return []


def waiting(hand: Hand) -> list[Reserved]:
    hand.push(*[message(number) for number in range(1, 4)], message(4, delay=50.0), message(5, "Other"))
    return []


def leased(hand: Hand) -> list[Reserved]:
    waiting(hand)
    return hand.pop("default", limit=2)


def failed(hand: Hand) -> list[Reserved]:
    taken = leased(hand)
    hand.fail(*[Failing(reserved, record_of(reserved)) for reserved in taken])
    hand.push(message(1))
    return hand.pop("default", limit=3)


def noted(hand: Hand) -> list[Reserved]:
    hand.write_notes(noting("a", b"first", 1))
    return []


def first_record(hand: Hand) -> FailedRecord:
    [record] = records.page(hand.directory.layout, queue="default", job=None, after=None, limit=1)
    return record


def every_record(hand: Hand) -> list[records.Found]:
    return list(records.records(hand.directory.layout, None))


def drained(hand: Hand, _: list[Reserved]) -> None:
    """The time has come for delayed jobs and lost leases alike."""
    hand.pop("default", "Other")


SCENARIOS = {
    "push one": Scenario(nothing, lambda hand, _: hand.push(message(1)), whole=True),
    "push one delayed": Scenario(waiting, lambda hand, _: hand.push(message(9, delay=5.0)), whole=True),
    "push many": Scenario(
        waiting, lambda hand, _: hand.push(message(6), message(7, "Other"), message(1)), whole=True
    ),
    "push dozens": Scenario(
        nothing, lambda hand, _: hand.push(*[message(number) for number in range(20, 29)]), whole=True
    ),
    "pop": Scenario(waiting, drained, all_one=True),
    "pop what was lost": Scenario(leased, drained, all_one=True),
    "ack": Scenario(leased, lambda hand, taken: hand.ack(*taken)),
    "release": Scenario(
        leased,
        lambda hand, taken: hand.release(Releasing(taken[0]), Releasing(taken[1], 30.0)),
    ),
    "give back": Scenario(
        leased,
        lambda hand, taken: hand.release(*[Releasing(reserved, counted=False) for reserved in taken]),
    ),
    "extend": Scenario(leased, lambda hand, taken: hand.extend(*taken)),
    "fail": Scenario(
        leased,
        lambda hand, taken: hand.fail(*[Failing(reserved, record_of(reserved)) for reserved in taken]),
        whole=True,
    ),
    "fail again": Scenario(
        failed,
        lambda hand, taken: hand.fail(*[Failing(each, record_of(each, "again")) for each in taken]),
        whole=True,
    ),
    "keep": Scenario(
        failed,
        lambda hand, taken: hand.do(
            lambda commit: failing.keep(commit, [record_of(each, "kept") for each in taken])
        ),
        whole=True,
    ),
    "retry": Scenario(
        failed,
        lambda hand, _: hand.do(lambda commit: failing.retry(commit, first_record(hand), message(2))),
        whole=True,
    ),
    "discard": Scenario(
        failed,
        lambda hand, _: hand.do(lambda commit: failing.discard(commit, first_record(hand))),
        whole=True,
    ),
    "purge": Scenario(
        failed, lambda hand, _: hand.do(lambda commit: failing.purge(commit, every_record(hand)))
    ),
    "clear": Scenario(
        leased, lambda hand, _: hand.do(lambda commit: clearing.clear(commit, "default")), whole=True
    ),
    "write a note": Scenario(
        noted, lambda hand, _: hand.write_notes(noting("a", b"second", 2, expected=1)), whole=True
    ),
    "write a note with jobs": Scenario(
        noted, lambda hand, _: hand.write_notes(noting("a", b"second", 2, expected=1, jobs=True)), whole=True
    ),
    "remove a note with jobs": Scenario(
        noted, lambda hand, _: hand.write_notes(noting("a", None, 2, expected=1, jobs=True)), whole=True
    ),
}


def try_out(how: str, scenario: Scenario, place: Path) -> dict[str, object]:
    """Let it go wrong at every step in turn."""
    after = _result(scenario, place / "whole", Disk(syncs=True))[1]
    found: list[str] = []
    for steps in range(_MOST_STEPS):
        root = place / f"step-{steps}"
        try_at = _die_at if how == "die" else _fail_at
        is_through, problems = try_at(scenario, root, steps, after, lasts=how == "full")
        found += [f"step {steps}: {problem}" for problem in problems]
        if is_through:
            return {"steps": steps, "problems": found}
    raise AssertionError("it never got through")


def _result(scenario: Scenario, root: Path, disk: Disk) -> tuple[Facts, Facts]:
    hand = Hand(root, clock=lambda: _BEFORE)
    taken = scenario.prepare(hand)
    before = facts(root)
    acting = Hand(root, disk=disk, clock=lambda: _AFTER)
    scenario.act(acting, taken)
    acting.close()
    hand.close()
    return before, facts(root)


def _die_at(
    scenario: Scenario, root: Path, steps: int, after: Facts, *, lasts: bool
) -> tuple[bool, list[str]]:
    survivor = Hand(root, clock=lambda: _BEFORE)
    taken = scenario.prepare(survivor)
    before = facts(root)
    child = os.fork()
    if child == 0:
        acting = Hand(root, disk=DyingDisk(steps), clock=lambda: _AFTER)
        scenario.act(acting, taken)
        acting.close()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, DIED}:
        return True, [f"the process ended with {status}"]
    survivor.look_after(*QUEUES)
    left = facts(root)
    problems = list(_wrong(scenario, before, after, left))
    if status == 0 and left != after:
        problems.append("it got through and did something else")
    return status == 0, problems + _aftermath(root, survivor, left)


def _fail_at(
    scenario: Scenario, root: Path, steps: int, after: Facts, *, lasts: bool
) -> tuple[bool, list[str]]:
    survivor = Hand(root, clock=lambda: _BEFORE)
    taken = scenario.prepare(survivor)
    before = facts(root)
    acting = Hand(root, clock=lambda: _AFTER)
    acting.directory.disk = disk = FullDisk(steps, lasts=lasts)
    error: Exception | None = None
    try:
        scenario.act(acting, taken)
    except (Refused, NotDispatched, OSError) as raised:
        error = raised
    acting.directory.disk = Disk(syncs=True)
    if isinstance(error, Refused | NotDispatched) and scenario.whole and facts(root) != before:
        return True, [f"{error!r}, but something was done"]
    survivor.look_after(*QUEUES)
    left = facts(root)
    problems = list(_wrong(scenario, before, after, left))
    acting.close()
    return not disk.refused, problems + _aftermath(root, survivor, left)


def _wrong(scenario: Scenario, before: Facts, after: Facts, left: Facts) -> list[str]:
    """Say what is neither as before nor as it should be after."""
    if scenario.whole and left not in (before, after):
        return [f"half of it was done: {left}"]
    if scenario.all_one:
        before, after, left = map(_without_places, (before, after, left))
    return [
        f"{key} is {left.get(key)}, not {before.get(key)} or {after.get(key)}"
        for key in before.keys() | after.keys() | left.keys()
        if left.get(key) not in (before.get(key), after.get(key))
    ]


def _without_places(found: Facts) -> Facts:
    """What was due may be ready and not taken yet: then its counters are the one or the other."""
    return {key: what[1:3] for key, what in found.items() if isinstance(what, tuple)}


def _aftermath(root: Path, survivor: Hand, left: Facts) -> list[str]:
    """Say what is not in order once somebody has opened the store anew; and what can't be done with it."""
    opener = Hand(root, clock=lambda: _AFTER)
    problems = troubles(root, living=(survivor, opener))
    if facts(root) != left:
        problems.append("opening it has changed what is in it")
    held = {(queue, id) for kind, queue, id in left if kind == "job"}
    for queue, id in held:
        opener.push(Message(id, queue, b"another"))
    if facts(root) != left:
        problems.append("an id that was held was stored again")
    later = Hand(root, clock=lambda: _AFTER + 1e6)
    taken = later.pop(*QUEUES)
    if sorted((each.queue, each.id) for each in taken) != sorted(held):
        problems.append(f"{len(taken)} of {len(held)} jobs were handed out")
    if any(each.attempt < 1 for each in taken):
        problems.append("a job can't be read")
    later.ack(*taken)
    if any(kind == "job" for kind, _, _ in facts(root)):
        problems.append("a job is left that was acked")
    for hand in (later, opener, survivor):
        hand.close()
    return problems + troubles(root)


if __name__ == "__main__":
    _, how, name, where = sys.argv
    sys.stdout.write(json.dumps(try_out(how, SCENARIOS[name], Path(where))))
