"""What a server's settings and state mean for jobs: read as far as is allowed, judged as facts (DOCTOR-1)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from asyncmy.errors import MySQLError

from aqueue.backends.mysql import migration
from aqueue.backends.mysql.connections import Row, Session
from aqueue.backends.mysql.literals import NOW, listed, name
from aqueue.backends.mysql.schema import STEPS, Names
from aqueue.backends.mysql.troubles import is_refusal, number
from aqueue.port import Examination, Finding, clock_ahead
from aqueue.port.examining import ok, problem, warning

_OLD_VIEW = 300.0
_NEARLY_FULL = 0.9
_LARGE = 16 * 1024 * 1024
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS \{(\w+)\}")
_KEY = re.compile(r"^\s*(?:UNIQUE )?KEY (\w+) \(", re.MULTILINE)

_VARIABLES = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format', 'innodb_doublewrite',
    'read_only', 'super_read_only', 'innodb_read_only', 'sql_mode', 'max_allowed_packet', 'max_connections',
    'tx_isolation', 'transaction_isolation')"""
_OUR_OWN = "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
_CONNECTED = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
_TABLES = """
SELECT table_name, engine FROM information_schema.tables
WHERE table_schema = CONVERT({schema} USING utf8mb4) AND table_name IN ({tables})"""
_INDEXES = """
SELECT DISTINCT table_name, index_name FROM information_schema.statistics
WHERE table_schema = CONVERT({schema} USING utf8mb4) AND table_name IN ({tables})"""
_OLDEST_VIEW = """
SELECT MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id <> CONNECTION_ID()"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What the server says. `variables` are its global ones, `isolation` is our own session's.

    `oldest_view` is in seconds, None where this user may not know. `indexes` and `wanted` are of our tables,
    written `table.index`.
    """

    version: str
    variables: Mapping[str, str]
    isolation: str
    schema: int
    engines: Mapping[str, str] = field(default_factory=dict)
    indexes: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    connections: int = 0
    oldest_view: float | None = None

    def is_on(self, variable: str) -> bool:
        """Whether a switch is on."""
        return self.variables.get(variable, "OFF").upper() in {"ON", "1"}

    def number(self, variable: str) -> int:
        """Return a number; 0 where there is none."""
        text = self.variables.get(variable, "")
        return int(text) if text.isdigit() else 0


async def examine(session: Session, names: Names) -> Examination:
    """Ask the server about itself and our tables."""
    tables = [f"{names.table}_{part}" for part in ("jobs", "failed", "notes")]
    of_ours = {
        "schema": name(names.schema),
        "tables": listed(f"CONVERT({name(table)} USING utf8mb4)" for table in tables),
    }
    our_own = _texts(await _rows(session, _OUR_OWN))
    indexes = await _rows(session, _INDEXES.format(**of_ours))
    oldest = await _allowed(session, _OLDEST_VIEW)
    facts = ServerFacts(
        version=session.version,
        variables=_texts(await _rows(session, _VARIABLES)),
        isolation=next(iter(our_own.values()), "unknown"),
        schema=await migration.version(session, names),
        engines=_texts(await _rows(session, _TABLES.format(**of_ours))),
        indexes=frozenset(".".join(map(_text, row)) for row in indexes),
        wanted=indexes_of(names),
        connections=int(_texts(await _rows(session, _CONNECTED)).get("Threads_connected", "0")),
        oldest_view=None if oldest is None else float(oldest[0][0] or 0),
    )

    async def now() -> float:
        return float((await _rows(session, f"SELECT {NOW}"))[0][0]) / 1e6

    return Examination(judged(facts), await clock_ahead(now))


def indexes_of(names: Names) -> frozenset[str]:
    """Return the indexes that the schema's steps make, as `table.index`."""
    wanted: set[str] = set()
    for statement in (each for step in STEPS for each in step):
        for part in _TABLE.findall(statement):
            wanted |= {f"{names.table}_{part}.{key}" for key in ("PRIMARY", *_KEY.findall(statement))}
    return frozenset(wanted)


def judged(facts: ServerFacts) -> list[Finding]:
    """Return what the facts mean."""
    return [
        ok("version", facts.version),
        *_schema(facts),
        *_durability(facts),
        *_writing(facts),
        _isolation(facts),
        _strictness(facts),
        _packets(facts),
        _view(facts.oldest_view),
        _connections(facts),
    ]


def _schema(facts: ServerFacts) -> list[Finding]:
    advice = "run `aqueue migrate`, or apply what `aqueue migrate --sql` prints"
    if facts.schema == 0:
        return [problem("schema", "no tables", "nothing can be pushed", advice)]
    if facts.schema < len(STEPS):
        found = f"version {facts.schema} of {len(STEPS)}"
        return [problem("schema", found, "what the newer steps are for fails", advice)]
    findings = [ok("schema", f"version {facts.schema}")]
    missing = sorted(facts.wanted - facts.indexes)
    if missing:
        advice = "make them as `aqueue migrate --sql` prints them"
        findings.append(problem("indexes", f"missing: {', '.join(missing)}", "pushes and pops fail", advice))
    strange = sorted(f"{table} ({engine})" for table, engine in facts.engines.items() if engine != "InnoDB")
    if strange:
        meaning = "without transactions and row locks, jobs are lost and run twice"
        findings.append(problem("engine", ", ".join(strange), meaning, "ALTER TABLE … ENGINE = InnoDB"))
    return findings


def _durability(facts: ServerFacts) -> list[Finding]:
    findings = []
    flush = facts.variables.get("innodb_flush_log_at_trx_commit", "1")
    if flush != "1":
        who = "server or machine" if flush == "0" else "machine"
        meaning = f"a crash of the {who} loses about a second of what was pushed, acked and failed"
        advice = "set innodb_flush_log_at_trx_commit = 1"
        findings.append(warning("innodb_flush_log_at_trx_commit", flush, meaning, advice))
    if facts.is_on("log_bin") and facts.variables.get("sync_binlog") != "1":
        found = facts.variables.get("sync_binlog", "unknown")
        meaning = "after a crash of the machine replicas may lack jobs that the primary has, or the reverse"
        findings.append(warning("sync_binlog", found, meaning, "set sync_binlog = 1"))
    if facts.variables.get("innodb_doublewrite", "ON").upper() in {"OFF", "0"}:
        meaning = "a crash of the machine may damage pages that were half written"
        findings.append(warning("innodb_doublewrite", "off", meaning, "set innodb_doublewrite = ON"))
    return findings or [ok("durability", f"innodb_flush_log_at_trx_commit {flush}")]


def _writing(facts: ServerFacts) -> list[Finding]:
    findings = []
    closed = [each for each in ("innodb_read_only", "super_read_only", "read_only") if facts.is_on(each)]
    if closed:
        meaning = "a server that is only read, such as a replica, takes no jobs"
        findings.append(problem("role", f"{closed[0]} is on", meaning, "use the primary's address"))
    if facts.is_on("log_bin") and facts.variables.get("binlog_format", "ROW").upper() == "STATEMENT":
        meaning = "InnoDB refuses to write under READ COMMITTED, which aqueue uses"
        advice = "set binlog_format = ROW, or MIXED"
        findings.append(problem("binlog_format", "STATEMENT", meaning, advice))
    return findings


def _isolation(facts: ServerFacts) -> Finding:
    if facts.isolation.upper() != "READ-COMMITTED":
        meaning = "aqueue asked for READ COMMITTED and did not get it: workers will wait for one another"
        return problem("isolation", facts.isolation, meaning, "look for a proxy that drops SET SESSION")
    common = facts.variables.get("transaction_isolation") or facts.variables.get("tx_isolation", "unknown")
    meaning = "" if common == facts.isolation else f"of aqueue's own connections; others have {common}"
    return ok("isolation", facts.isolation, meaning)


def _strictness(facts: ServerFacts) -> Finding:
    mode = facts.variables.get("sql_mode", "")
    if "STRICT_" in mode:
        return ok("sql_mode", "strict")
    meaning = "aqueue's own connections are strict; your transactions that push with connection= may not be"
    advice = "add STRICT_TRANS_TABLES to sql_mode, else values that don't fit are cut silently"
    return warning("sql_mode", mode or "empty", meaning, advice)


def _packets(facts: ServerFacts) -> Finding:
    most = facts.number("max_allowed_packet")
    found = f"{most / 2**20:.0f} MiB"
    if most >= _LARGE:
        return ok("max_allowed_packet", found)
    meaning = f"jobs of more than about {most / 2**21:.1f} MiB are refused, or can't be set aside"
    return warning("max_allowed_packet", found, meaning, "set max_allowed_packet = 16M or more")


def _view(oldest: float | None) -> Finding:
    if oldest is None:
        return ok("oldest transaction", "unknown", "this user may not know: it needs the PROCESS privilege")
    found = f"{oldest:.0f} s old"
    if oldest < _OLD_VIEW:
        return ok("oldest transaction", found)
    meaning = "what jobs leave behind can't be purged while it is open, and pops get slower with it"
    advice = "end it: see information_schema.innodb_trx; read backups and reports from a replica"
    return warning("oldest transaction", found, meaning, advice)


def _connections(facts: ServerFacts) -> Finding:
    most = facts.number("max_connections")
    found = f"{facts.connections} of {most}"
    if facts.connections < _NEARLY_FULL * most:
        return ok("connections", found)
    meaning = "new workers and producers will be refused; each process takes up to 5"
    return warning("connections", found, meaning, "raise max_connections")


async def _rows(session: Session, statement: str) -> Sequence[Row]:
    [answer] = await session.run(statement)
    return answer.rows


async def _allowed(session: Session, statement: str) -> Sequence[Row] | None:
    """Return what a statement finds; None where the server refuses it to this user."""
    try:
        return await _rows(session, statement)
    except MySQLError as error:
        if not is_refusal(number(error)):
            raise
        return None


def _texts(rows: Sequence[Row]) -> dict[str, str]:
    return {_text(row[0]): _text(row[1]) for row in rows}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
