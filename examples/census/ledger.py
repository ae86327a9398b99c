"""The results, in a small SQLite database of their own: they outlive every process that writes them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.census.measure import Measures

_SCHEMA = """
CREATE TABLE IF NOT EXISTS censuses (id TEXT PRIMARY KEY, place TEXT, finished INTEGER);
CREATE TABLE IF NOT EXISTS measures (
    census TEXT, path TEXT, lines INTEGER, tokens INTEGER, nodes INTEGER, PRIMARY KEY (census, path)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (
    census TEXT, what TEXT, key TEXT, PRIMARY KEY (census, what, key)
) WITHOUT ROWID;
"""
_TOTALS = """
SELECT count(*), total(lines), total(tokens), total(nodes),
    (SELECT count(*) FROM notes WHERE census = :census AND what = 'retried'),
    (SELECT count(*) FROM notes WHERE census = :census AND what = 'recovered')
FROM measures WHERE census = :census
"""


@dataclass(frozen=True, slots=True)
class Totals:
    """What is known of a census so far; `files` counts those measured."""

    files: int
    lines: int
    tokens: int
    nodes: int
    retried: int
    recovered: int


class Ledger:
    """Every write is idempotent, so a job that runs twice counts once.

    Each call opens a connection of its own: any thread of any process may call, and a killed one leaves
    nothing behind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._connection() as connection:
            connection.executescript(_SCHEMA)

    def begin(self, census: str, place: str) -> None:
        """Start a census; the results of those that are over make room for it."""
        with self._connection() as connection, connection:
            connection.execute("DELETE FROM censuses WHERE finished")
            for table in ("measures", "notes"):
                connection.execute(f"DELETE FROM {table} WHERE census NOT IN (SELECT id FROM censuses)")
            connection.execute("INSERT INTO censuses VALUES (?, ?, 0)", (census, place))

    def unfinished(self, place: str) -> str | None:
        """Return the census that was begun at this place but never came to its end."""
        query = "SELECT id FROM censuses WHERE place = ? AND NOT finished"
        with self._connection() as connection:
            row = connection.execute(query, (place,)).fetchone()
        return row[0] if row else None

    def finish(self, census: str) -> None:
        """Mark a census as complete: the next one starts anew."""
        with self._connection() as connection, connection:
            connection.execute("UPDATE censuses SET finished = 1 WHERE id = ?", (census,))

    def record(self, census: str, path: str, measures: Measures) -> None:
        """Keep the measures of one file, in place of any it had."""
        row = (census, path, measures.lines, measures.tokens, measures.nodes)
        with self._connection() as connection, connection:
            connection.execute("INSERT OR REPLACE INTO measures VALUES (?, ?, ?, ?, ?)", row)

    def note(self, census: str, what: str, key: str) -> None:
        """Remember that something happened, once for each key."""
        with self._connection() as connection, connection:
            connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?, ?)", (census, what, key))

    def measured(self, census: str) -> set[str]:
        """Return the paths of the files measured so far."""
        query = "SELECT path FROM measures WHERE census = ?"
        with self._connection() as connection:
            return {path for (path,) in connection.execute(query, (census,))}

    def totals(self, census: str) -> Totals:
        """Return the sums so far."""
        with self._connection() as connection:
            row = connection.execute(_TOTALS, {"census": census}).fetchone()
        return Totals(*(int(number) for number in row))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection:
            yield connection
