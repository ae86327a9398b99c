"""What a database's settings and state mean for jobs: a few statements, judged as facts (DOCTOR-1)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from aqueue.backends.postgres import migration
from aqueue.backends.postgres.address import SETTINGS, Address
from aqueue.backends.postgres.schema import STEPS, Names
from aqueue.port import Examination, Finding, clock_ahead
from aqueue.port.examining import ok, problem, warning

_OLDEST, _NEWEST = 13, 18
_OLD_SNAPSHOT = 300.0
_MANY_DEAD = 50_000
_NEARLY_FULL = 0.9
_INDEX = re.compile(r'(?:CREATE INDEX|CONSTRAINT) "(\{prefix\}_\w+)"')

_SERVER = """
SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS in_recovery,
    current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('full_page_writes') AS full_page_writes, current_setting('autovacuum') AS autovacuum,
    current_setting('transaction_isolation') AS isolation,
    current_setting('max_connections')::int AS most_connections,
    (SELECT sum(numbackends) FROM pg_stat_database)::int AS connections,
    (SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()) AS oldest_snapshot,
    (SELECT max(date_part('epoch', clock_timestamp() - prepared)) FROM pg_prepared_xacts) AS oldest_prepared
"""

_TABLES = """
SELECT c.relname AS name, c.relpersistence = 'u' AS unlogged,
    coalesce(c.reloptions @> ARRAY['autovacuum_enabled=false'], false) AS unvacuumed,
    coalesce(pg_stat_get_live_tuples(c.oid), 0) AS live, coalesce(pg_stat_get_dead_tuples(c.oid), 0) AS dead
FROM pg_class c WHERE c.oid = ANY (ARRAY[to_regclass($1), to_regclass($2), to_regclass($3)])
"""

_INDEXES = """
SELECT i.relname AS name, x.indisvalid AS valid FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = ANY (ARRAY[to_regclass($1), to_regclass($2), to_regclass($3)])
"""

_KEPT = "SELECT current_setting('enable_seqscan')"
_PID = "SELECT pg_backend_pid()"
_NOW = "SELECT date_part('epoch', clock_timestamp())"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What is known of one of our tables."""

    name: str
    unlogged: bool = False
    unvacuumed: bool = False
    live: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What stands between: a pooler, whether it changes servers between statements, and what the URL says."""

    is_pooled: bool = False
    changes_servers: bool = False
    keeps_settings: bool = True
    is_declared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What the database says. `schema` is the version of our tables; `indexes` says which are valid."""

    server: Mapping[str, Any]
    schema: int
    tables: Sequence[TableFacts] = ()
    indexes: Mapping[str, bool] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    route: Route = Route()


async def examine(connection: asyncpg.Connection, address: Address) -> Examination:
    """Ask the database about itself, on this connection and, for a moment, on two more."""
    names, route = address.names, await _route(connection, address)
    if route.changes_servers and not route.is_declared:
        return Examination([_pooler(route)])  # statements made for such a connection would fail
    tables = [names.fill(table) for table in ("{jobs}", "{failed}", "{notes}")]
    [server] = await connection.fetch(_SERVER)
    facts = DatabaseFacts(
        server=dict(server),
        schema=await migration.version(connection, names),
        tables=[TableFacts(**row) for row in await connection.fetch(_TABLES, *tables)],
        indexes={row["name"]: row["valid"] for row in await connection.fetch(_INDEXES, *tables)},
        wanted=indexes_of(names),
        route=route,
    )
    return Examination(judged(facts), await clock_ahead(lambda: connection.fetchval(_NOW)))


def indexes_of(names: Names) -> frozenset[str]:
    """Return the names of the indexes that the schema's steps make."""
    return frozenset(
        found.replace("{prefix}", names.table) for step in STEPS for found in _INDEX.findall(step)
    )


def judged(facts: DatabaseFacts) -> list[Finding]:
    """Return what the facts mean."""
    return [
        _version(facts.server["version"]),
        *_schema(facts),
        *_durability(facts),
        _isolation(facts.server["isolation"]),
        *_vacuum(facts),
        _snapshot(facts.server),
        _pooler(facts.route),
        _connections(facts.server),
    ]


def _version(number: int) -> Finding:
    major = number // 10_000
    found = f"PostgreSQL {major}.{number % 10_000}"
    if major < _OLDEST:
        return problem("version", found, "too old for aqueue's statements", f"upgrade to {_OLDEST} or newer")
    if major > _NEWEST:
        return warning("version", found, f"newer than aqueue was tried on ({_NEWEST})")
    return ok("version", found)


def _schema(facts: DatabaseFacts) -> list[Finding]:
    advice = "run `aqueue migrate`, or apply what `aqueue migrate --sql` prints"
    if facts.schema == 0:
        return [problem("schema", "no tables", "nothing can be pushed", advice)]
    findings = [ok("schema", f"version {facts.schema}")]
    if facts.schema < len(STEPS):
        found = f"version {facts.schema} of {len(STEPS)}"
        findings = [problem("schema", found, "what the newer steps are for fails", advice)]
    else:
        bad = sorted(name for name in facts.wanted if not facts.indexes.get(name, False))
        if bad:
            meaning = "pops and pushes read whole tables, or fail"
            advice = "make them as `aqueue migrate --sql` prints them, or REINDEX what is invalid"
            findings.append(problem("indexes", f"missing or invalid: {', '.join(bad)}", meaning, advice))
    unlogged = sorted(table.name for table in facts.tables if table.unlogged)
    if unlogged:
        meaning = "a crash of the server empties them"
        found = f"unlogged: {', '.join(unlogged)}"
        findings.append(problem("tables", found, meaning, "ALTER TABLE … SET LOGGED"))
    return findings


def _durability(facts: DatabaseFacts) -> list[Finding]:
    server = facts.server
    findings = []
    if server["in_recovery"]:
        advice = "use the primary's address, or target_session_attrs=read-write in the URL"
        findings.append(problem("role", "a standby", "a standby takes no jobs", advice))
    if server["fsync"] == "off":
        meaning = "a crash of the machine may damage the whole database"
        findings.append(problem("fsync", "off", meaning, "set fsync = on"))
    if server["synchronous_commit"] == "off":
        meaning = "a crash of the server loses up to a second of what was pushed, acked and failed"
        findings.append(warning("synchronous_commit", "off", meaning, "set synchronous_commit = on"))
    if server["full_page_writes"] == "off":
        meaning = "a crash of the machine may damage pages that were half written"
        advice = "set full_page_writes = on, unless the file system writes whole pages"
        findings.append(warning("full_page_writes", "off", meaning, advice))
    return findings or [ok("durability", "fsync on, synchronous_commit " + server["synchronous_commit"])]


def _isolation(isolation: str) -> Finding:
    if isolation == "read committed":
        return ok("isolation", isolation)
    meaning = "aqueue's statements count on READ COMMITTED; under any other they fail when workers meet"
    advice = "ALTER ROLE … SET default_transaction_isolation = 'read committed' for aqueue's user"
    return problem("isolation", isolation, meaning, advice)


def _vacuum(facts: DatabaseFacts) -> list[Finding]:
    stopped = [table.name for table in facts.tables if table.unvacuumed]
    advice = "switch autovacuum on"
    if facts.server["autovacuum"] == "off" or stopped:
        found = "off" if facts.server["autovacuum"] == "off" else f"off for {', '.join(sorted(stopped))}"
        meaning = "dead rows are never removed: pops get slower and slower, and the tables grow"
        return [problem("autovacuum", found, meaning, advice)]
    return [_dead(table) for table in facts.tables if table.dead] or [ok("dead rows", "none")]


def _dead(table: TableFacts) -> Finding:
    found = f"{table.name}: {table.dead} dead, {table.live} live"
    if table.dead < _MANY_DEAD or table.dead < table.live:
        return ok("dead rows", found)
    meaning = "autovacuum does not keep up, or an old snapshot holds it back: pops get slower"
    return warning("dead rows", found, meaning, f"VACUUM {table.name}, and look at the oldest snapshot")


def _snapshot(server: Mapping[str, Any]) -> Finding:
    oldest = max(server["oldest_snapshot"] or 0.0, server["oldest_prepared"] or 0.0)
    found = f"{oldest:.0f} s old, of those this user may see"
    if oldest < _OLD_SNAPSHOT:
        return ok("oldest snapshot", found)
    meaning = "what jobs leave behind can't be removed while it is open, and pops get slower with it"
    advice = (
        "end the transaction: see pg_stat_activity by backend_xmin, and pg_prepared_xacts; read backups and "
        "reports from a standby"
    )
    return warning("oldest snapshot", found, meaning, advice)


def _pooler(route: Route) -> Finding:
    if not route.is_pooled:
        if not route.is_declared:
            return ok("pooler", "none")
        meaning = "pgbouncer=true in the URL gives up NOTIFY and prepared statements, and nothing needs it"
        return warning("pooler", "none", meaning, "take pgbouncer=true out of the URL")
    if route.is_declared:
        return ok("pooler", "pgbouncer=true", "arrivals are polled for")
    advice = "add pgbouncer=true to the URL, or connect to the server itself"
    if route.changes_servers:
        meaning = "prepared statements are mixed up, and no NOTIFY is ever heard: statements fail, jobs wait"
        return problem("pooler", "in transaction mode", meaning, advice)
    if not route.keeps_settings:
        meaning = "the pooler drops the settings that keep plans right: pops get slow as tables grow"
        return problem("pooler", "in session mode, and swallows settings", meaning, advice)
    return warning("pooler", "in session mode", "every worker keeps 6 of its server connections", advice)


def _connections(server: Mapping[str, Any]) -> Finding:
    most, used = server["most_connections"], server["connections"]
    found = f"{used} of {most}"
    if used < _NEARLY_FULL * most:
        return ok("connections", found)
    meaning = "new workers and producers will be refused; each process takes up to 6"
    advice = "raise max_connections, or use PgBouncer with pgbouncer=true"
    return warning("connections", found, meaning, advice)


async def _route(connection: asyncpg.Connection, address: Address) -> Route:
    """Find out what is in between, by connections that send each statement whole.

    A pooler tells its clients another process than the one that serves them. One that changes servers lends
    a connection's to the next that begins a transaction.
    """
    careful = replace(address, pgbouncer=True)
    one = await careful.connect()
    try:
        pid = await one.fetchval(_PID)
        if one.get_server_pid() == pid:
            return Route(is_declared=address.pgbouncer)
        other = await careful.connect()
        try:
            await other.execute("BEGIN")
            changes = await other.fetchval(_PID) == pid or await one.fetchval(_PID) != pid
        finally:
            other.terminate()
    finally:
        one.terminate()
    if changes or address.pgbouncer:
        return Route(is_pooled=True, changes_servers=changes, is_declared=address.pgbouncer)
    kept = await connection.fetchval(_KEPT) == SETTINGS["enable_seqscan"]
    return Route(is_pooled=True, keeps_settings=kept)
