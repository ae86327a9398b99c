"""What settings mean: the doctor's judgement as tables, with no server and no loop (DOCTOR-1)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.doctored import of

from aqueue import doctor
from aqueue.backends import _filesystem as filesystem
from aqueue.backends import _sqlite_examining as sqlite
from aqueue.backends._filesystem import PlaceFacts
from aqueue.backends.file import examining as file
from aqueue.backends.mysql import examining as mysql
from aqueue.backends.mysql.schema import STEPS as MYSQL_STEPS
from aqueue.backends.mysql.schema import Names as MySQLNames
from aqueue.backends.postgres import examining as postgres
from aqueue.backends.postgres.schema import STEPS as POSTGRES_STEPS
from aqueue.backends.postgres.schema import Names as PostgresNames
from aqueue.backends.rabbitmq import examining as rabbitmq
from aqueue.backends.redis import examining as redis
from aqueue.backends.sqs import examining as sqs
from aqueue.port import Finding, Severity

pytestmark = pytest.mark.rule("DOCTOR-1")

OK, WARNING, PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM
DISK = PlaceFacts("ext4", 100 << 30, 1_000_000)


def bad(findings: Sequence[Finding]) -> set[str]:
    return {each.check for each in findings if each.severity is not OK}


# redis

SAFE_INFO = {
    "redis_version": "7.2.4",
    "role": "master",
    "aof_enabled": "1",
    "maxclients": "10000",
    "connected_clients": "3",
    "total_system_memory": "8000000000",
    "used_memory_rss": "1000000",
}
SAFE_SETTINGS = {"maxmemory-policy": "noeviction", "appendfsync": "always", "save": ""}


def redis_findings(info: dict[str, str] | None = None, **settings: str) -> list[Finding]:
    told = {name.replace("_", "-"): value for name, value in settings.items()}
    return redis.judged(
        redis.ServerFacts(info={**SAFE_INFO, **(info or {})}, settings={**SAFE_SETTINGS, **told})
    )


def test_a_redis_that_is_set_up_well_is_well() -> None:
    assert bad(redis_findings()) == set()


@pytest.mark.parametrize(
    ("policy", "info", "severity"),
    [
        ("noeviction", {"maxmemory": "1000000"}, OK),
        ("allkeys-lru", {"maxmemory": "1000000"}, PROBLEM),
        ("allkeys-random", {"evicted_keys": "5"}, PROBLEM),
        ("allkeys-lru", {}, WARNING),
        ("volatile-ttl", {"maxmemory": "1000000"}, WARNING),
    ],
)
def test_a_policy_that_deletes_whole_queues_is_a_problem(
    policy: str, info: dict[str, str], severity: Severity
) -> None:
    assert of(redis_findings(info, maxmemory_policy=policy), "maxmemory-policy").severity is severity


@pytest.mark.parametrize(
    ("aof", "settings", "severity"),
    [
        ("1", {"appendfsync": "always"}, OK),
        ("1", {"appendfsync": "everysec"}, WARNING),
        ("1", {"appendfsync": "no"}, WARNING),
        ("0", {"save": "3600 1 300 100"}, WARNING),
        ("0", {"save": ""}, PROBLEM),
    ],
)
def test_how_much_a_restart_loses_decides_about_persistence(
    aof: str, settings: dict[str, str], severity: Severity
) -> None:
    assert of(redis_findings({"aof_enabled": aof}, **settings), "persistence").severity is severity


def test_a_redis_that_hides_its_settings_is_judged_by_what_it_shows() -> None:
    info = {**SAFE_INFO, "aof_enabled": "0", "maxmemory_policy": "allkeys-lfu", "maxmemory": "1000"}

    findings = redis.judged(redis.ServerFacts(info=info))

    assert of(findings, "maxmemory-policy").severity is PROBLEM
    assert of(findings, "persistence").severity is WARNING


@pytest.mark.parametrize(
    ("info", "settings", "check", "severity"),
    [
        ({"role": "slave"}, {}, "role", PROBLEM),
        ({"rdb_last_bgsave_status": "err"}, {}, "persistence", PROBLEM),
        ({"aof_last_write_status": "err"}, {}, "persistence", PROBLEM),
        ({"connected_slaves": "2"}, {"min_replicas_to_write": "0"}, "replicas", WARNING),
        ({"connected_slaves": "2"}, {"min_replicas_to_write": "1"}, "replicas", OK),
        ({"maxmemory": "100", "used_memory": "95"}, {}, "memory", WARNING),
        ({"used_memory_rss": "7900000000"}, {}, "memory", WARNING),
        ({"connected_clients": "9900"}, {}, "connections", WARNING),
    ],
)
def test_what_else_a_redis_may_suffer_from(
    info: dict[str, str], settings: dict[str, str], check: str, severity: Severity
) -> None:
    assert of(redis_findings(info, **settings), check).severity is severity


def test_a_cluster_with_slots_that_nobody_serves_is_a_problem() -> None:
    whole = {"cluster_state": "ok", "cluster_slots_ok": "16384"}
    broken = {"cluster_state": "fail", "cluster_slots_ok": "10000"}

    assert of(redis.judged(redis.ServerFacts(info=SAFE_INFO, cluster=whole)), "cluster").severity is OK
    assert of(redis.judged(redis.ServerFacts(info=SAFE_INFO, cluster=broken)), "cluster").severity is PROBLEM


def test_what_all_servers_say_is_told_once_and_the_rest_with_their_names() -> None:
    same, own = Finding("a", OK, "x"), Finding("b", PROBLEM, "y", "m", "d")

    assert redis.merged([("one:1", [same, own]), ("two:2", [same])]) == [
        same,
        own._replace(found="y (one:1)"),
    ]


# postgresql

SAFE_SERVER: dict[str, Any] = {
    "version": 160_002,
    "in_recovery": False,
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "isolation": "read committed",
    "most_connections": 100,
    "connections": 10,
    "oldest_snapshot": None,
    "oldest_prepared": None,
}
POSTGRES_INDEXES = postgres.indexes_of(PostgresNames())


def postgres_findings(server: dict[str, Any] | None = None, **changes: Any) -> list[Finding]:
    facts: dict[str, Any] = {
        "schema": len(POSTGRES_STEPS),
        "indexes": dict.fromkeys(POSTGRES_INDEXES, True),
        "wanted": POSTGRES_INDEXES,
    }
    return postgres.judged(
        postgres.DatabaseFacts(server={**SAFE_SERVER, **(server or {})}, **{**facts, **changes})
    )


def test_a_postgresql_that_is_set_up_well_is_well() -> None:
    assert bad(postgres_findings()) == set()
    assert {"aqueue_held", "aqueue_ready", "aqueue_delayed", "aqueue_leased"} <= POSTGRES_INDEXES


@pytest.mark.parametrize(
    ("server", "check", "severity"),
    [
        ({"version": 120_017}, "version", PROBLEM),
        ({"version": 190_000}, "version", WARNING),
        ({"in_recovery": True}, "role", PROBLEM),
        ({"fsync": "off"}, "fsync", PROBLEM),
        ({"synchronous_commit": "off"}, "synchronous_commit", WARNING),
        ({"synchronous_commit": "remote_apply"}, "durability", OK),
        ({"full_page_writes": "off"}, "full_page_writes", WARNING),
        ({"autovacuum": "off"}, "autovacuum", PROBLEM),
        ({"isolation": "serializable"}, "isolation", PROBLEM),
        ({"connections": 95}, "connections", WARNING),
        ({"oldest_snapshot": 299.0}, "oldest snapshot", OK),
        ({"oldest_snapshot": 301.0}, "oldest snapshot", WARNING),
        ({"oldest_prepared": 86_400.0}, "oldest snapshot", WARNING),
    ],
)
def test_what_a_postgresql_may_suffer_from(server: dict[str, Any], check: str, severity: Severity) -> None:
    assert of(postgres_findings(server), check).severity is severity


@pytest.mark.parametrize("schema", range(len(POSTGRES_STEPS)))
def test_tables_that_are_missing_or_old_are_a_problem(schema: int) -> None:
    finding = of(postgres_findings(schema=schema), "schema")

    assert finding.severity is PROBLEM
    assert "aqueue migrate" in finding.advice


@pytest.mark.parametrize("is_there", [True, False])
def test_an_index_that_is_missing_or_invalid_is_a_problem(is_there: bool) -> None:
    indexes = dict.fromkeys(POSTGRES_INDEXES, True)
    if is_there:
        indexes["aqueue_ready"] = False
    else:
        del indexes["aqueue_ready"]

    finding = of(postgres_findings(indexes=indexes), "indexes")

    assert (finding.severity, finding.found) == (PROBLEM, "missing or invalid: aqueue_ready")


@pytest.mark.parametrize(
    ("table", "check", "severity"),
    [
        (postgres.TableFacts(name="jobs", unlogged=True), "tables", PROBLEM),
        (postgres.TableFacts(name="jobs", unvacuumed=True), "autovacuum", PROBLEM),
        (postgres.TableFacts(name="jobs", dead=60_000, live=100), "dead rows", WARNING),
        (postgres.TableFacts(name="jobs", dead=60_000, live=900_000), "dead rows", OK),
        (postgres.TableFacts(name="jobs", dead=4_000), "dead rows", OK),
    ],
)
def test_what_our_tables_may_suffer_from(table: postgres.TableFacts, check: str, severity: Severity) -> None:
    assert of(postgres_findings(tables=[table]), check).severity is severity


@pytest.mark.parametrize(
    ("route", "severity"),
    [
        ({}, OK),
        ({"is_declared": True}, WARNING),
        ({"is_pooled": True, "is_declared": True, "changes_servers": True}, OK),
        ({"is_pooled": True, "changes_servers": True}, PROBLEM),
        ({"is_pooled": True, "keeps_settings": False}, PROBLEM),
        ({"is_pooled": True}, WARNING),
    ],
)
def test_a_pooler_that_the_url_does_not_speak_of_is_noticed(
    route: dict[str, bool], severity: Severity
) -> None:
    assert of(postgres_findings(route=postgres.Route(**route)), "pooler").severity is severity


# mysql

SAFE_VARIABLES = {
    "innodb_flush_log_at_trx_commit": "1",
    "sync_binlog": "1",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "innodb_doublewrite": "ON",
    "read_only": "OFF",
    "sql_mode": "STRICT_TRANS_TABLES",
    "max_allowed_packet": str(64 << 20),
    "max_connections": "151",
    "transaction_isolation": "REPEATABLE-READ",
}
MYSQL_INDEXES = mysql.indexes_of(MySQLNames(schema="jobs"))


def mysql_findings(variables: dict[str, str] | None = None, **changes: Any) -> list[Finding]:
    facts: dict[str, Any] = {
        "version": "8.0.40",
        "isolation": "READ-COMMITTED",
        "schema": len(MYSQL_STEPS),
        "indexes": MYSQL_INDEXES,
        "wanted": MYSQL_INDEXES,
        "engines": {"aqueue_jobs": "InnoDB"},
        "oldest_view": 1.0,
    }
    return mysql.judged(
        mysql.ServerFacts(variables={**SAFE_VARIABLES, **(variables or {})}, **{**facts, **changes})
    )


def test_a_mysql_that_is_set_up_well_is_well() -> None:
    assert bad(mysql_findings()) == set()
    assert {"aqueue_jobs.held", "aqueue_jobs.next", "aqueue_failed.every"} <= MYSQL_INDEXES


@pytest.mark.parametrize(
    ("variables", "check", "severity"),
    [
        ({"innodb_flush_log_at_trx_commit": "2"}, "innodb_flush_log_at_trx_commit", WARNING),
        ({"innodb_flush_log_at_trx_commit": "0"}, "innodb_flush_log_at_trx_commit", WARNING),
        ({"sync_binlog": "0"}, "sync_binlog", WARNING),
        ({"sync_binlog": "0", "log_bin": "OFF"}, "durability", OK),
        ({"innodb_doublewrite": "OFF"}, "innodb_doublewrite", WARNING),
        ({"read_only": "ON"}, "role", PROBLEM),
        ({"binlog_format": "STATEMENT"}, "binlog_format", PROBLEM),
        ({"sql_mode": ""}, "sql_mode", WARNING),
        ({"max_allowed_packet": str(4 << 20)}, "max_allowed_packet", WARNING),
        ({"max_connections": "0"}, "connections", WARNING),
    ],
)
def test_what_a_mysql_may_suffer_from(variables: dict[str, str], check: str, severity: Severity) -> None:
    assert of(mysql_findings(variables), check).severity is severity


@pytest.mark.parametrize(
    ("changes", "check", "severity"),
    [
        ({"schema": 0}, "schema", PROBLEM),
        ({"schema": 1}, "schema", PROBLEM),
        ({"indexes": MYSQL_INDEXES - {"aqueue_jobs.next"}}, "indexes", PROBLEM),
        ({"engines": {"aqueue_jobs": "MyISAM"}}, "engine", PROBLEM),
        ({"isolation": "REPEATABLE-READ"}, "isolation", PROBLEM),
        ({"oldest_view": 4_000.0}, "oldest transaction", WARNING),
        ({"oldest_view": None}, "oldest transaction", OK),
    ],
)
def test_what_our_place_in_a_mysql_may_suffer_from(
    changes: dict[str, Any], check: str, severity: Severity
) -> None:
    assert of(mysql_findings(**changes), check).severity is severity


# files


@pytest.mark.parametrize(
    ("place", "check", "severity"),
    [
        (DISK, "file system", OK),
        (DISK._replace(kind=""), "file system", OK),
        (DISK._replace(kind="nfs4"), "file system", PROBLEM),
        (DISK._replace(kind="cifs"), "file system", PROBLEM),
        (DISK._replace(kind="tmpfs"), "file system", PROBLEM),
        (DISK._replace(kind="overlay"), "file system", WARNING),
        (DISK._replace(free=500 << 20), "disk", WARNING),
        (DISK._replace(free=50 << 20), "disk", PROBLEM),
        (DISK._replace(files=12), "disk", PROBLEM),
        (DISK._replace(files=None), "disk", OK),
    ],
)
def test_what_a_place_for_files_may_suffer_from(place: PlaceFacts, check: str, severity: Severity) -> None:
    assert of(filesystem.judged(place), check).severity is severity


MOUNTS = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "23 22 0:20 / /srv rw - nfs4 server:/export rw\n"
    "24 23 8:2 / /srv/local\\040disk rw - xfs /dev/sdb1 rw\n"
    "25 22 0:21 / /mnt rw - ext4 /dev/sda2 rw\n"
    "26 22 0:22 / /mnt rw - tmpfs tmpfs rw\n"
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/jobs/db", "nfs4"),
        ("/srvother", "ext4"),
        ("/srv/local disk/jobs", "xfs"),
        ("/mnt/jobs", "tmpfs"),
    ],
)
def test_the_kind_of_a_file_system_is_that_of_the_last_mount_above(
    tmp_path: Path, path: str, kind: str
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)

    assert filesystem.kind_of(path, tmp_path / "mountinfo") == kind


def test_where_nobody_tells_of_mounts_the_kind_is_unknown(tmp_path: Path) -> None:
    assert filesystem.kind_of("/", tmp_path / "nothing") == ""


def sqlite_findings(**changes: Any) -> list[Finding]:
    facts = {"version": (3, 51, 3), "journal": "wal", "synchronous": "full", "place": DISK, **changes}
    return sqlite.judged(sqlite.DatabaseFacts(**facts))


@pytest.mark.parametrize(
    ("changes", "check", "severity"),
    [
        ({}, "journal", OK),
        ({"version": (3, 40, 1)}, "journal", PROBLEM),
        ({"version": (3, 52, 0)}, "journal", PROBLEM),
        ({"version": (3, 40, 1), "journal": "persist"}, "journal", OK),
        ({"journal": "off"}, "journal", PROBLEM),
        ({"synchronous": "extra"}, "synchronous", OK),
        ({"synchronous": "normal"}, "synchronous", WARNING),
        ({"wal_bytes": 100 << 20}, "write-ahead log", WARNING),
        ({"missing": ("aqueue_ready",)}, "indexes", PROBLEM),
        ({"place": DISK._replace(kind="nfs")}, "file system", PROBLEM),
    ],
)
def test_what_a_sqlite_database_may_suffer_from(
    changes: dict[str, Any], check: str, severity: Severity
) -> None:
    assert of(sqlite_findings(**changes), check).severity is severity


@pytest.mark.parametrize(("syncs", "severity"), [(True, OK), (False, WARNING)])
def test_files_that_are_not_synced_may_be_lost(syncs: bool, severity: Severity) -> None:
    assert of(file.judged(DISK, syncs=syncs), "fsync").severity is severity


# sqs and rabbitmq

SAFE_QUEUE = {"MessageRetentionPeriod": "1209600", "MaximumMessageSize": "1048576"}


@pytest.mark.parametrize(
    ("attributes", "check", "severity"),
    [
        ({}, "q: RedrivePolicy", OK),
        ({"RedrivePolicy": '{"maxReceiveCount":"3"}'}, "q: RedrivePolicy", PROBLEM),
        ({"RedrivePolicy": '{"maxReceiveCount":1000}'}, "q: RedrivePolicy", WARNING),
        ({"RedrivePolicy": "nonsense"}, "q: RedrivePolicy", OK),
        ({"MessageRetentionPeriod": "345600"}, "q: MessageRetentionPeriod", WARNING),
        ({"MessageRetentionPeriod": "3600"}, "q: MessageRetentionPeriod", PROBLEM),
        ({"MaximumMessageSize": "1024"}, "q: MaximumMessageSize", WARNING),
        ({"FifoQueue": "true"}, "queue q", PROBLEM),
    ],
)
def test_what_a_queue_of_sqs_may_suffer_from(
    attributes: dict[str, str], check: str, severity: Severity
) -> None:
    assert of(sqs.judged("q", {**SAFE_QUEUE, **attributes}), check).severity is severity


def test_a_queue_that_is_missing_is_a_problem_unless_it_is_made_when_used() -> None:
    assert sqs.missing("q", creates=False).severity is PROBLEM
    assert sqs.missing("q", creates=True).severity is OK


@pytest.mark.parametrize(
    ("facts", "check", "severity"),
    [
        ({}, "alarms", OK),
        ({"is_blocking": True}, "alarms", PROBLEM),
        ({"is_quorum": False}, "queue type", WARNING),
        ({"version": (3, 8)}, "version", PROBLEM),
        ({"version": ()}, "version", OK),
    ],
)
def test_what_a_broker_may_suffer_from(facts: dict[str, Any], check: str, severity: Severity) -> None:
    told = {"version": (4, 0), "is_blocking": False, "is_quorum": True, **facts}

    assert of(rabbitmq.judged(rabbitmq.BrokerFacts(**told)), check).severity is severity


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({"is_there": False}, OK),
        ({"differs": "inequivalent arg"}, PROBLEM),
        ({"ready": 3}, WARNING),
        ({"ready": 3, "consumers": 1}, OK),
        ({}, OK),
    ],
)
def test_what_a_queue_of_a_broker_may_suffer_from(facts: dict[str, Any], severity: Severity) -> None:
    assert of(rabbitmq.queue_judged(rabbitmq.QueueFacts(name="q", **facts)), "queue q").severity is severity


# all


@pytest.mark.parametrize(
    ("ahead", "severity"), [(0.0, OK), (0.9, OK), (-2.0, WARNING), (30.0, WARNING), (-61.0, PROBLEM)]
)
def test_clocks_that_disagree_are_told(ahead: float, severity: Severity) -> None:
    finding = doctor.clock(ahead)

    assert finding.severity is severity
    assert severity is OK or ("ahead" if ahead > 0 else "behind") in finding.found
