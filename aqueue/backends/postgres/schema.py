"""What the PostgreSQL store keeps, and the numbered steps that make it.

A ready job's `seq` is its place: jobs are handed out in its order, so a job that joins the end of its queue
again is given a new number, and one given back uncounted keeps its own. Ready, delayed and leased jobs have
an index each which holds nothing else, so that a pop costs the same however many jobs wait in the others
(POP-8). Times are seconds since 1970 by the server's clock, names compare byte by byte.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from aqueue.errors import InvalidQueueArgument, StoreRefused

READY, DELAYED, LEASED = 0, 1, 2

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_LONGEST_CHANNEL = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Where the tables are: `{table}_jobs`, `_failed`, `_notes` and `_schema`, in one schema."""

    schema: str = "public"
    table: str = "aqueue"

    def fill(self, template: str, **parts: str) -> str:
        """Return the statement with its parts, the quoted names and the server's clock in their places."""
        names = self._quoted()
        return template.format(**names, **{name: part.format(**names) for name, part in parts.items()})

    @property
    def channel(self) -> str:
        """The channel on which arrivals are announced."""
        name = f"{self.schema}.{self.table}"
        return name if len(name) <= _LONGEST_CHANNEL else f"aqueue.{sha256(name.encode()).hexdigest()[:40]}"

    @property
    def lock(self) -> int:
        """The key of the advisory lock under which the schema changes."""
        digest = sha256(f"aqueue schema {self.schema}.{self.table}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def _quoted(self) -> dict[str, str]:
        return {
            "now": "date_part('epoch', clock_timestamp())",
            "schema": f'"{self.schema}"',
            "jobs": f'"{self.schema}"."{self.table}_jobs"',
            "failed": f'"{self.schema}"."{self.table}_failed"',
            "notes": f'"{self.schema}"."{self.table}_notes"',
            "versions": f'"{self.schema}"."{self.table}_schema"',
            "places": f'"{self.schema}"."{self.table}_places"',
            "prefix": self.table,
        }


def identifier(text: str) -> str:
    """Return a name fit for a schema or a table; it goes into statements, so anything unusual is refused."""
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError("use letters, digits and underscores, 40 at most, not starting with a digit")
    return text


SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema};"
"""Needs the right to create schemas even where it exists, so it is taken only where it does not."""

VERSIONS = """
CREATE TABLE IF NOT EXISTS {versions} (
    version integer PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""

STEPS: tuple[str, ...] = (
    """
CREATE SEQUENCE {places};
CREATE TABLE {jobs} (
    seq bigint NOT NULL DEFAULT nextval('{places}'),
    queue text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    state smallint NOT NULL,  -- 0 ready, 1 delayed, 2 leased
    ready_at double precision NOT NULL,  -- since when, or when, it may be handed out
    attempts integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    token bigint,  -- the hand-out that holds it
    lease_until double precision,
    CONSTRAINT "{prefix}_held" PRIMARY KEY (queue, id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000
);
ALTER SEQUENCE {places} OWNED BY {jobs}.seq;
CREATE INDEX "{prefix}_ready" ON {jobs} (queue, seq) WHERE state = 0;
CREATE INDEX "{prefix}_delayed" ON {jobs} (queue, ready_at, seq) WHERE state = 1;
CREATE INDEX "{prefix}_leased" ON {jobs} (queue, lease_until) WHERE state = 2;
CREATE TABLE {failed} (
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    attempts integer NOT NULL,
    lost integer NOT NULL,
    reason text NOT NULL,
    error_type text NOT NULL,
    error text NOT NULL,
    traceback text NOT NULL,
    pushed_at double precision,
    failed_at double precision NOT NULL,
    worker text NOT NULL,
    delivery text NOT NULL,
    CONSTRAINT "{prefix}_failed_once" PRIMARY KEY (id, queue)
);
CREATE INDEX "{prefix}_failed_all" ON {failed} (failed_at, id);
CREATE INDEX "{prefix}_failed_queue" ON {failed} (queue, failed_at, id);
CREATE INDEX "{prefix}_failed_name" ON {failed} (name, failed_at, id);
CREATE INDEX "{prefix}_failed_queue_name" ON {failed} (queue, name, failed_at, id);
""",
    """
CREATE TABLE {notes} (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    token text COLLATE "C" NOT NULL,
    until double precision,  -- when it is over
    CONSTRAINT "{prefix}_noted" PRIMARY KEY (queue, key)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX "{prefix}_notes_end" ON {notes} (until) WHERE until IS NOT NULL;
""",
)
"""What brings the schema from each version to the next; a step that was released never changes."""

LOCK = "SELECT pg_advisory_xact_lock($1)"

VERSION = "SELECT coalesce(max(version), 0) FROM {versions}"

TAKEN = "INSERT INTO {versions} (version) VALUES ({version});"

HAS_SCHEMA = "SELECT to_regnamespace($1) IS NOT NULL"

HAS_VERSIONS = "SELECT to_regclass($1) IS NOT NULL"


def pending(version: int) -> list[tuple[int, str]]:
    """Return the steps that a schema of this version lacks; raise `StoreRefused` if it is a newer one."""
    if version > len(STEPS):
        raise StoreRefused(
            f"the database has aqueue's tables in version {version}, this aqueue knows {len(STEPS)}: "
            "upgrade aqueue-jobs"
        )
    return [(number, STEPS[number - 1]) for number in range(version + 1, len(STEPS) + 1)]


def script(names: Names, after: int = 0) -> str:
    """Return what `migrate` does from a version on, as text for people who apply it by hand."""
    if not 0 <= after <= len(STEPS):
        raise InvalidQueueArgument(f"there are schema versions 0 to {len(STEPS)}, not {after}")
    parts = ["BEGIN;", f"SELECT pg_advisory_xact_lock({names.lock});"]
    if after == 0 and names.schema != "public":
        parts.append(names.fill(SCHEMA))
    if after == 0:
        parts.append(names.fill(VERSIONS).strip())
    for number, step in pending(after):
        parts += [
            f"-- step {number}",
            names.fill(step).strip(),
            names.fill(TAKEN.replace("{version}", str(number))),
        ]
    return "\n".join([*parts, "COMMIT;", ""])
