"""The doctor at real stores, whose settings are really changed (DOCTOR-1)."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from uuid import uuid4

import aio_pika
import asyncmy
import asyncpg
import pytest
from servers import mysql, pgbouncer, postgres, rabbitmq, redis, sqs
from servers.reach import check_reachable
from support.doctored import findings_at, of

import aqueue
from aqueue.port import Severity
from aqueue.testing import eventually

pytestmark = pytest.mark.rule("DOCTOR-1")

OK, WARNING, PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM


# redis


@pytest.fixture(scope="module")
def server() -> Iterator[redis.RedisServer]:
    check_reachable("redis", None if redis.redis_program() else "redis-server is not installed")
    server = redis.RedisServer().start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("settings", "check", "severity"),
    [
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "maxmemory-policy", PROBLEM),
        ({"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"}, "maxmemory-policy", WARNING),
        ({}, "maxmemory-policy", OK),
        ({}, "persistence", PROBLEM),
        ({"save": "3600 1"}, "persistence", WARNING),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "persistence", WARNING),
        ({"appendonly": "yes", "appendfsync": "always"}, "persistence", OK),
    ],
)
async def test_settings_of_a_redis(
    server: redis.RedisServer, settings: dict[str, str], check: str, severity: Severity
) -> None:
    before = {name: server.run("CONFIG", "GET", name)[1] for name in settings}
    for name, value in settings.items():
        server.run("CONFIG", "SET", name, value)
    try:
        assert of(await findings_at(server.url), check).severity is severity
    finally:
        for name, value in before.items():
            server.run("CONFIG", "SET", name, value)


async def test_a_redis_that_hides_its_settings_is_examined_all_the_same(server: redis.RedisServer) -> None:
    server.run("ACL", "SETUSER", "shy", "on", ">pw", "~*", "&*", "+@all", "-config")
    url = f"redis://shy:pw@{server.host}:{server.port}"

    findings = await findings_at(url)

    assert of(findings, "maxmemory-policy").severity is OK
    assert of(findings, "persistence").severity is WARNING


async def test_a_cluster_that_lost_a_node_says_which_and_how_much(server: redis.RedisServer) -> None:
    cluster = redis.RedisCluster().start()
    try:
        async with aqueue.connect(cluster.url) as queue:
            assert of(await queue.doctor.examine(), "cluster").severity is OK
            cluster.nodes[2].stop()

            finding = of(await queue.doctor.examine(), "reachable")

            assert finding.severity is PROBLEM
            assert str(cluster.nodes[2].port) in finding.found
    finally:
        cluster.stop()


async def test_a_replica_without_company_is_told_apart() -> None:
    check_reachable("redis-sentinel", redis.sentinel_missing())

    assert of(await findings_at(redis.fresh_sentinel_url()), "replicas").severity is WARNING


# postgresql


@pytest.fixture
def postgres_url() -> str:
    check_reachable("postgres", postgres.unreachable())
    return postgres.fresh_url()


@asynccontextmanager
async def postgres_hand() -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres.url())
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_postgresql_without_tables_is_told_to_be_migrated(postgres_url: str) -> None:
    assert of(await findings_at(postgres_url, migrate=False), "schema").severity is PROBLEM

    assert of(await findings_at(postgres_url), "schema").severity is OK


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ('DROP INDEX "{table}_ready"', "indexes"),
        ('ALTER TABLE "{table}_jobs" SET UNLOGGED', "tables"),
        ('ALTER TABLE "{table}_jobs" SET (autovacuum_enabled = false)', "autovacuum"),
    ],
)
async def test_tables_that_somebody_changed(postgres_url: str, change: str, check: str) -> None:
    table = postgres_url.partition("table=")[2]
    async with aqueue.connect(postgres_url) as queue, postgres_hand() as hand:
        await queue.migrate()
        before = [each.severity for each in await queue.doctor.examine() if each.check == check]

        await hand.execute(change.format(table=table))

        assert PROBLEM not in before
        assert of(await queue.doctor.examine(), check).severity is PROBLEM


async def test_a_snapshot_that_stays_open_is_seen_to_age(postgres_url: str) -> None:
    async with aqueue.connect(postgres_url) as queue, postgres_hand() as hand:
        await queue.migrate()
        async with hand.transaction(isolation="repeatable_read", readonly=True):
            await hand.fetchval("SELECT 1")

            async def it_is_seen() -> None:
                found = of(await queue.doctor.examine(), "oldest snapshot").found
                assert int(found.partition(" ")[0]) >= 1

            await eventually(it_is_seen, timeout=20)


async def test_a_transaction_mode_pooler_that_the_url_does_not_name_is_found() -> None:
    check_reachable("pgbouncer", pgbouncer.unreachable())
    url = postgres.fresh_url(pgbouncer.swallowing_url())

    finding = of(await findings_at(url, migrate=False), "pooler")

    assert finding.severity is PROBLEM
    assert "pgbouncer=true" in finding.advice


async def test_a_pooler_that_the_url_names_is_well_and_one_that_is_not_there_is_told() -> None:
    check_reachable("pgbouncer", pgbouncer.unreachable())

    assert of(await findings_at(pgbouncer.fresh_url()), "pooler").severity is OK
    assert of(await findings_at(f"{postgres.fresh_url()}&pgbouncer=true"), "pooler").severity is WARNING


# mysql


@pytest.fixture
def mysql_url() -> str:
    check_reachable("mysql", mysql.unreachable())
    return mysql.fresh_url()


async def on_mysql(*statements: str) -> list[str]:
    """Run statements as the tests' all-powerful user; return the first value that each gives."""
    url = urlsplit(mysql.url())
    connection = await asyncmy.connect(
        host=url.hostname,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.path.removeprefix("/"),
        autocommit=True,
    )
    try:
        values = []
        async with connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
                row = await cursor.fetchone()
                values.append(str(row[0]) if row else "")
        return values
    finally:
        await connection.ensure_closed()


@pytest.mark.parametrize(
    ("variable", "value", "severity"),
    [
        ("innodb_flush_log_at_trx_commit", "1", OK),
        ("innodb_flush_log_at_trx_commit", "2", WARNING),
        ("sql_mode", "''", WARNING),
        ("max_allowed_packet", "4194304", WARNING),
    ],
)
async def test_variables_of_a_mysql(mysql_url: str, variable: str, value: str, severity: Severity) -> None:
    [before] = await on_mysql(f"SELECT @@GLOBAL.{variable}")
    await on_mysql(f"SET GLOBAL {variable} = {value}")
    check = "durability" if severity is OK else variable
    try:
        assert of(await findings_at(mysql_url), check).severity is severity
    finally:
        await on_mysql(f"SET GLOBAL {variable} = {before if before.isdigit() else repr(before)}")


async def test_a_mysql_without_tables_or_without_an_index(mysql_url: str) -> None:
    assert of(await findings_at(mysql_url, migrate=False), "schema").severity is PROBLEM
    findings = await findings_at(mysql_url)
    assert of(findings, "schema").severity is OK
    assert not [each for each in findings if each.check in {"indexes", "engine"}]

    await on_mysql(f"ALTER TABLE {mysql_url.partition('table=')[2]}_failed DROP KEY by_name")

    finding = of(await findings_at(mysql_url), "indexes")
    assert finding.severity is PROBLEM
    assert finding.found.endswith("_failed.by_name")


# files


async def test_a_sqlite_file_and_its_options(tmp_path: Path) -> None:
    well = await findings_at(f"sqlite:///{tmp_path / 'well.db'}")
    fast = await findings_at(f"sqlite:///{tmp_path / 'fast.db'}?synchronous=normal")
    wal = await findings_at(f"sqlite:///{tmp_path / 'wal.db'}?journal=wal")

    assert of(well, "synchronous").severity is OK
    assert of(well, "schema").severity is OK
    assert of(fast, "synchronous").severity is WARNING
    is_safe = sqlite3.sqlite_version_info >= (3, 51, 3)
    assert of(wal, "journal").severity is (OK if is_safe else PROBLEM)


async def test_a_sqlite_file_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await findings_at(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX aqueue_leased")
        connection.commit()

    finding = of(await findings_at(f"sqlite:///{path}"), "indexes")

    assert (finding.severity, finding.found) == (PROBLEM, "missing: aqueue_leased")


async def test_a_directory_and_its_options(tmp_path: Path) -> None:
    assert of(await findings_at(f"file://{tmp_path / 'a'}"), "fsync").severity is OK
    assert of(await findings_at(f"file://{tmp_path / 'b'}?fsync=none"), "fsync").severity is WARNING


async def test_a_directory_in_memory_is_a_problem() -> None:
    place = Path("/dev/shm") / f"aqueue-{uuid4().hex}"
    try:
        finding = of(await findings_at(f"file://{place}"), "file system")
    finally:
        remove(place)

    assert (finding.severity, finding.found) == (PROBLEM, "tmpfs")


def remove(place: Path) -> None:
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with suppress(FileNotFoundError):
        place.rmdir()


async def test_memory_is_said_not_to_last() -> None:
    assert of(await findings_at("memory://"), "durability").severity is WARNING


# sqs


@pytest.fixture
def region() -> str:
    check_reachable("sqs", sqs.ministack_missing())
    return sqs.fresh_region()


async def test_a_queue_whose_jobs_sqs_would_move_away_is_a_problem(region: str) -> None:
    server = sqs.shared_ministack()
    server.ask("CreateQueue", region, QueueName="aside")
    aside = server.ask("GetQueueUrl", region, QueueName="aside")["QueueUrl"]
    arn = server.ask("GetQueueAttributes", region, QueueUrl=aside, AttributeNames=["QueueArn"])
    policy = f'{{"deadLetterTargetArn":"{arn["Attributes"]["QueueArn"]}","maxReceiveCount":"3"}}'
    server.ask("CreateQueue", region, QueueName="default", Attributes={"RedrivePolicy": policy})

    findings = await findings_at(server.url(region, more=""))

    assert of(findings, "default: RedrivePolicy").severity is PROBLEM
    assert of(findings, "default: MessageRetentionPeriod").severity is WARNING
    assert of(findings, "failed jobs").severity is PROBLEM


async def test_a_queue_that_is_not_there_is_told_and_not_made(region: str) -> None:
    server = sqs.shared_ministack()

    strict = await findings_at(server.url(region, more=""), queues=["absent"])
    making = await findings_at(server.url(region), queues=["absent"])

    assert of(strict, "queue absent").severity is PROBLEM
    assert of(making, "queue absent").severity is OK
    with pytest.raises(HTTPError):
        server.ask("GetQueueUrl", region, QueueName="absent")


async def test_jobs_that_fail_on_sqs_are_kept_where_another_store_is_given(region: str) -> None:
    async with aqueue.connect(sqs.shared_ministack().url(region), failed="memory://") as queue:
        findings = await queue.doctor.examine()

    assert not [each for each in findings if each.check == "failed jobs"]
    assert of(findings, "failed store: durability").severity is WARNING


# rabbitmq


@pytest.fixture(scope="module")
def broker() -> Iterator[rabbitmq.RabbitMQServer]:
    check_reachable("rabbitmq", rabbitmq.unreachable())
    broker = rabbitmq.RabbitMQServer().start()
    yield broker
    broker.stop()


async def test_a_queue_that_somebody_declared_otherwise_is_a_problem(broker: rabbitmq.RabbitMQServer) -> None:
    connection = await aio_pika.connect(broker.url())
    async with connection, connection.channel() as channel:
        await channel.declare_queue(
            "strange", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 5}
        )
        await channel.declare_queue("classic", durable=True)

    findings = await findings_at(broker.url(), queues=["strange", "classic", "absent"])

    assert of(findings, "queue strange").severity is PROBLEM
    assert "x-delivery-limit" in of(findings, "queue strange").found
    assert of(findings, "queue classic").severity is PROBLEM
    assert of(findings, "queue absent").found == "not there"
    assert "absent" not in broker.control("list_queues", "name")


async def test_jobs_that_nobody_consumes_are_told(broker: rabbitmq.RabbitMQServer) -> None:
    @aqueue.job(name="doctor.note")
    class Note:
        async def handle(self) -> None: ...

    async with aqueue.connect(broker.url("?prefix=lonely")) as queue:
        await queue.push(Note())

        findings = await queue.doctor.examine()

        assert of(findings, "queue lonely.default").severity is WARNING
        assert of(findings, "queue lonely.default").found.startswith("1 ready, 0 consumers")


async def test_an_alarm_of_the_broker_is_noticed_and_its_end_too(broker: rabbitmq.RabbitMQServer) -> None:
    broker.control("set_vm_memory_high_watermark", "0.00001")
    try:

        async def it_is_noticed() -> None:
            assert of(await findings_at(broker.url()), "alarms").severity is PROBLEM

        await eventually(it_is_noticed, timeout=30)
    finally:
        broker.control("set_vm_memory_high_watermark", "0.4")

    async def it_is_over() -> None:
        assert of(await findings_at(broker.url()), "alarms").severity is OK

    await eventually(it_is_over, timeout=30)
