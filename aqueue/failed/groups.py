"""Failures of one kind counted together, in bounded memory (FAIL-4)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from aqueue.contract.fingerprint import Trouble
from aqueue.failed.shown import trouble
from aqueue.port import FailedRecord

OTHERS = Trouble(name="", error_type="", message="", frame="")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGroup:
    """Failed jobs that one trouble explains: the same job, error, words and place in the code (FAIL-4).

    `error` is what the failures have in common, so without numbers, ids and quoted text. `frame` is where in
    the application it was raised, "" where that isn't known. `example` is the id of the latest one. The group
    of what didn't fit into the limit has the fingerprint "".
    """

    fingerprint: str
    name: str
    error_type: str
    error: str
    frame: str
    count: int
    first_at: datetime
    last_at: datetime
    example: str


class Grouping:
    """Counts records by what kind of failure they tell of; at most `limit` kinds, the rest in one more."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tallies: dict[Trouble, _Tally] = {}

    def add(self, records: Iterable[FailedRecord]) -> None:
        """Count these records, which are younger than those counted before."""
        for record in records:
            kind = trouble(record)
            tally = self._tallies.get(kind)
            if tally is None:
                if len(self._tallies) >= self._limit:
                    kind = OTHERS
                tally = self._tallies.setdefault(kind, _Tally(first_at=record.failed_at))
            tally.count += 1
            tally.last_at = record.failed_at
            tally.example = record.id

    def groups(self) -> list[FailedGroup]:
        """Return the groups, the largest first, and last what didn't fit."""
        found = [_group(kind, tally) for kind, tally in self._tallies.items()]
        return sorted(found, key=lambda group: (not group.fingerprint, -group.count, group.first_at))


@dataclass(slots=True)
class _Tally:
    first_at: float
    last_at: float = 0.0
    count: int = 0
    example: str = ""


def _group(kind: Trouble, tally: _Tally) -> FailedGroup:
    return FailedGroup(
        fingerprint="" if kind is OTHERS else kind.fingerprint,
        name=kind.name,
        error_type=kind.error_type,
        error=kind.message,
        frame=kind.frame,
        count=tally.count,
        first_at=datetime.fromtimestamp(tally.first_at, UTC),
        last_at=datetime.fromtimestamp(tally.last_at, UTC),
        example=tally.example,
    )
