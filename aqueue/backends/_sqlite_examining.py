"""What a SQLite database and its place mean for jobs: read on its thread, judged as facts (DOCTOR-1)."""

import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aqueue.backends._filesystem import PlaceFacts, facts_of
from aqueue.backends._filesystem import judged as place_judged
from aqueue.backends._sqlite_file import is_wal_safe
from aqueue.backends._sqlite_schema import STEPS
from aqueue.port import Examination, Finding
from aqueue.port.examining import ok, problem, warning

_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+)")
_LONG_WAL = 64 << 20
_SYNCHRONOUS = ("off", "normal", "full", "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What the file and the library say; `wal_bytes` is the length of the write-ahead log."""

    version: tuple[int, ...]
    journal: str
    synchronous: str
    place: PlaceFacts
    wal_bytes: int = 0
    missing: tuple[str, ...] = ()


def examine(connection: sqlite3.Connection, path: Path) -> Examination:
    """Look at the database and where it is."""
    has = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    wanted = {name for step in STEPS for statement in step for name in _INDEX.findall(statement)}
    wal = 0
    with suppress(OSError):
        wal = Path(f"{path}-wal").stat().st_size
    facts = DatabaseFacts(
        version=sqlite3.sqlite_version_info,
        journal=connection.execute("PRAGMA journal_mode").fetchone()[0],
        synchronous=_SYNCHRONOUS[connection.execute("PRAGMA synchronous").fetchone()[0]],
        place=facts_of(str(path.parent)),
        wal_bytes=wal,
        missing=tuple(sorted(wanted - has)),
    )
    return Examination(judged(facts))


def judged(facts: DatabaseFacts) -> list[Finding]:
    """Return what the facts mean."""
    return [
        *_journal(facts),
        _synchronous(facts),
        *_log(facts.wal_bytes),
        _indexes(facts.missing),
        *place_judged(facts.place),
    ]


def _journal(facts: DatabaseFacts) -> list[Finding]:
    version = f"SQLite {'.'.join(map(str, facts.version))}"
    if facts.journal == "wal" and not is_wal_safe(facts.version):
        meaning = "this SQLite can damage a WAL database that several connections write at once"
        advice = "use SQLite 3.51.3 or newer, or journal=rollback in the URL"
        return [problem("journal", f"wal, {version}", meaning, advice)]
    if facts.journal in {"off", "memory"}:
        meaning = "a crash damages the database"
        return [problem("journal", facts.journal, meaning, "take the application's PRAGMA journal_mode away")]
    return [ok("version", version), ok("journal", facts.journal)]


def _synchronous(facts: DatabaseFacts) -> Finding:
    if facts.synchronous in {"full", "extra"}:
        return ok("synchronous", facts.synchronous)
    meaning = "a power failure may lose the last pushes, acks and failures"
    if facts.journal != "wal":
        meaning += ", and in a rare case damages the database"
    advice = "leave synchronous=normal out of the URL"
    return warning("synchronous", facts.synchronous, meaning, advice)


def _log(size: int) -> list[Finding]:
    if size < _LONG_WAL:
        return []
    found = f"{size / 2**20:.0f} MiB"
    meaning = "somebody reads in one long transaction, so the write-ahead log can't be emptied and slows pops"
    return [warning("write-ahead log", found, meaning, "end the transaction, a backup's for one")]


def _indexes(missing: tuple[str, ...]) -> Finding:
    if not missing:
        return ok("schema", f"version {len(STEPS)}")
    advice = "restore the file, or make them as aqueue's migration does"
    return problem("indexes", f"missing: {', '.join(missing)}", "statements that name them fail", advice)
