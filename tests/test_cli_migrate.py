"""`aqueue migrate --sql`: the steps for people who apply them by hand, as their own tools would."""

import asyncio
import shutil
import subprocess
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
from servers import mysql, postgres
from servers.reach import check_reachable
from support.commands import Report, answer, push, refusal, run

pytestmark = pytest.mark.rule("CLI-1")

NOBODY_LISTENS = "127.0.0.1:9"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_postgresqls_steps_are_one_numbered_transaction(scheme: str) -> None:
    printed = printed_for(f"{scheme}://{NOBODY_LISTENS}/shop?schema=jobs&table=work")

    assert printed.startswith("BEGIN;\n")
    assert "-- step 1\n" in printed
    assert 'CREATE TABLE "jobs"."work_jobs"' in printed
    assert printed.endswith("COMMIT;\n")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+asyncmy"])
def test_mysqls_steps_are_numbered_too(scheme: str) -> None:
    printed = printed_for(f"{scheme}://{NOBODY_LISTENS}/shop?table=work")

    assert "-- step 1\n" in printed
    assert "CREATE TABLE IF NOT EXISTS `shop`.`work_jobs`" in printed
    assert printed.endswith(";\n")


def test_as_json_they_are_one_text() -> None:
    url = f"postgresql://{NOBODY_LISTENS}/shop"

    assert answer("migrate", "--sql", "--url", url) == {"sql": printed_for(url)}


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_steps_that_were_taken_can_be_left_out(scheme: str) -> None:
    url = f"{scheme}://{NOBODY_LISTENS}/shop"

    assert "_jobs" not in run("migrate", "--sql", "--after", "1", "--url", url).stdout
    assert "CREATE" not in run("migrate", "--sql", "--after", "2", "--url", url).stdout
    assert "versions 0 to 2" in refusal("migrate", "--sql", "--after", "99", "--url", url, status=1)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_password_is_in_none_of_them(scheme: str) -> None:
    assert "hunter2" not in printed_for(f"{scheme}://bob:hunter2@{NOBODY_LISTENS}/shop")


def test_the_store_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUEUE_URL", f"postgresql://{NOBODY_LISTENS}/shop?table=first")
    monkeypatch.setenv("AQUEUE_OTHER_URL", f"postgresql://{NOBODY_LISTENS}/shop?table=second")

    assert '"first_jobs"' in run("migrate", "--sql").stdout
    assert '"second_jobs"' in run("migrate", "--sql", "--connection", "other").stdout


@pytest.mark.parametrize(
    "url",
    ["memory://", "sqlite:///jobs.db", "redis://host", "redis+cluster://host", "unix:///sock", "inline://"],
)
def test_a_store_without_such_steps_says_so(url: str) -> None:
    scheme = url.partition(":")[0]

    assert f"by hand for {scheme}://" in refusal("migrate", "--sql", "--url", url, status=1)


def test_what_makes_no_sense_is_refused() -> None:
    url = f"postgresql://{NOBODY_LISTENS}/shop"

    assert "unknown URL scheme" in refusal("migrate", "--sql", "--url", "nonsense://host", status=1)
    assert "unknown option" in refusal("migrate", "--sql", "--url", f"{url}?nonsense=1", status=1)
    assert "--sql" in refusal("migrate", "--after", "1", "--url", url, status=2)
    assert "not both" in refusal("migrate", "--sql", "--url", url, "--connection", "other", status=2)


def test_what_is_printed_makes_a_postgresql_store_that_needs_nothing_more() -> None:
    check_reachable("postgres", postgres.unreachable())
    url = postgres.fresh_url()

    asyncio.run(apply_to_postgresql(printed_for(url)))

    needs_nothing_more(url)


def test_what_is_printed_makes_a_mysql_store_that_needs_nothing_more() -> None:
    check_reachable("mysql", mysql.unreachable())
    url = mysql.fresh_url()

    asyncio.run(apply_to_mysql(printed_for(url)))

    needs_nothing_more(url)


def test_psql_takes_what_is_printed() -> None:
    check_reachable("postgres", postgres.unreachable())
    check_installed("psql")
    url = postgres.fresh_url()

    feed(printed_for(url), "psql", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", postgres.url())

    needs_nothing_more(url)


def test_the_mysql_client_takes_what_is_printed_as_often_as_it_is_given_it() -> None:
    check_reachable("mysql", mysql.unreachable())
    check_installed("mysql")
    url = mysql.fresh_url()
    parts = urlsplit(url)

    for _ in range(2):
        feed(
            printed_for(url),
            *("mysql", "--no-defaults", "--protocol=tcp", f"--host={parts.hostname}"),
            *(f"--port={parts.port or 3306}", f"--user={parts.username}", f"--password={parts.password}"),
        )

    needs_nothing_more(url)


def printed_for(url: str) -> str:
    result = run("migrate", "--sql", "--url", url)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


async def apply_to_postgresql(sql: str) -> None:
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(sql)
    await connection.close()


async def apply_to_mysql(sql: str) -> None:
    parts = urlsplit(mysql.url())
    connection = await asyncmy.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or ""
    )
    async with connection.cursor() as cursor:
        for statement in sql.split(";\n"):
            if statement:
                await cursor.execute(statement)
    await connection.commit()
    await connection.ensure_closed()


def check_installed(program: str) -> None:
    check_reachable(program, None if shutil.which(program) else "its program is not installed")


def feed(text: str, *command: str) -> None:
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def needs_nothing_more(url: str) -> None:
    push(url, Report(1))
    assert answer("size", "--url", url) == {"default": 1}
    assert answer("migrate", "--url", url) == {"migrated": True}
