"""What the MySQL store keeps, and the numbered steps that make it.

`at` orders the jobs of one state: by their place while they are ready, by when they are due while delayed, by
the end of their lease while leased. So one index holds each state of each queue in the order in which it is
looked through, and a pop costs the same however many jobs there are in the others (POP-8). `place` remembers
the place of a leased job, for a give-back. A place is the server's time when the job joined the end of its
queue; those that joined together are told apart by `seq`, which is the job's row for good.

Times are microseconds since 1970 by the server's clock. Names are bytes, since no text type of MySQL compares
every byte: even with the collation ascii_bin, 'a' equals 'a '.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from aqueue.errors import InvalidQueueArgument, StoreRefused

READY, DELAYED, LEASED = 0, 1, 2

LONGEST_NAME = 512
"""Of a failed job's name, in bytes, since it is in an index."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Where the tables are: `{table}_jobs`, `_failed`, `_notes` and `_schema`, in one database."""

    schema: str
    table: str = "aqueue"

    def fill(self, template: str, **parts: str) -> str:
        """Return the statement with the quoted names and its parts in their places; the others are left."""
        for place, text in {**self._quoted(), **parts}.items():
            template = template.replace(f"{{{place}}}", text)
        return template

    @property
    def lock(self) -> str:
        """The server-wide lock under which the tables change."""
        return f"aqueue.{sha256(f'{self.schema}.{self.table}'.encode()).hexdigest()[:40]}"

    def _quoted(self) -> dict[str, str]:
        return {
            "jobs": f"`{self.schema}`.`{self.table}_jobs`",
            "failed": f"`{self.schema}`.`{self.table}_failed`",
            "notes": f"`{self.schema}`.`{self.table}_notes`",
            "versions": f"`{self.schema}`.`{self.table}_schema`",
        }


def identifier(text: str) -> str:
    """Return a name fit for a table or a database; it goes into statements, so the unusual is refused."""
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError("use letters, digits and underscores, 40 at most, not starting with a digit")
    return text


_OPTIONS = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

VERSIONS = f"""
CREATE TABLE IF NOT EXISTS {{versions}} (
    version INT NOT NULL PRIMARY KEY,
    at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) {_OPTIONS}
"""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        f"""
CREATE TABLE IF NOT EXISTS {{jobs}} (
    seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    queue VARBINARY(80) NOT NULL,
    id VARBINARY(64) NOT NULL,
    state TINYINT NOT NULL,  -- 0 ready, 1 delayed, 2 leased
    at BIGINT NOT NULL,  -- its place, when it is due, or when its lease ends
    place BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,  -- since when it may be handed out
    attempts INT NOT NULL DEFAULT 0,
    lost INT NOT NULL DEFAULT 0,
    token BIGINT NULL,  -- the hand-out that holds it
    payload LONGBLOB NOT NULL,
    PRIMARY KEY (seq),
    UNIQUE KEY held (queue, id),
    KEY next (queue, state, at, seq)
) {_OPTIONS}
""",
        f"""
CREATE TABLE IF NOT EXISTS {{failed}} (
    id VARBINARY(255) NOT NULL,
    name VARBINARY({LONGEST_NAME}) NOT NULL,
    queue VARBINARY(80) NOT NULL,
    payload LONGBLOB NOT NULL,
    attempts INT NOT NULL,
    lost INT NOT NULL,
    reason LONGTEXT NOT NULL,
    error_type LONGTEXT NOT NULL,
    error LONGTEXT NOT NULL,
    traceback LONGTEXT NOT NULL,
    pushed_at DOUBLE NULL,
    failed_at BIGINT NOT NULL,
    worker LONGTEXT NOT NULL,
    delivery LONGBLOB NOT NULL,
    PRIMARY KEY (id, queue),
    KEY every (failed_at, id),
    KEY by_queue (queue, failed_at, id),
    KEY by_name (name, failed_at, id),
    KEY by_queue_and_name (queue, name, failed_at, id)
) {_OPTIONS}
""",
    ),
    (
        f"""
CREATE TABLE IF NOT EXISTS {{notes}} (
    queue VARBINARY(80) NOT NULL,
    name VARBINARY(120) NOT NULL,
    token VARBINARY(64) NOT NULL,
    until BIGINT NULL,  -- when it is over
    value LONGBLOB NOT NULL,
    PRIMARY KEY (queue, name),
    KEY ending (until)
) {_OPTIONS}
""",
    ),
)
"""What brings the tables from each version to the next; a step that was released never changes.

The server commits each statement by itself, so one that was interrupted is begun again: all are repeatable.
"""

VERSION = "SELECT COALESCE(MAX(version), 0) FROM {versions}"

TAKEN = "INSERT INTO {versions} (version) VALUES (%d) ON DUPLICATE KEY UPDATE version = version"


def pending(version: int) -> list[tuple[int, tuple[str, ...]]]:
    """Return the steps that tables of this version lack; raise `StoreRefused` if it is a newer one."""
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
    parts = [names.fill(VERSIONS)] if after == 0 else []
    for number, step in pending(after):
        parts += [f"-- step {number}\n{names.fill(step[0]).strip()}", *map(names.fill, step[1:])]
        parts.append(names.fill(TAKEN % number))
    return "".join(f"{part.strip()};\n" for part in parts)
