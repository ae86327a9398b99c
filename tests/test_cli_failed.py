"""`aqueue failed …`: what is shown of failed jobs, and what becomes of them."""

import json
from datetime import datetime

import pytest
from support.commands import Mail, Report, answer, fail, fail_unreadably, failed_ids, refusal, run

pytest_plugins = ["support.command_fixtures"]
pytestmark = pytest.mark.rule("CLI-1")


@pytest.mark.rule("FAIL-2")
def test_failed_jobs_are_listed_oldest_first_with_what_went_wrong(url: str) -> None:
    fail(url, Mail("a@b.c"))
    fail(url, Report(7), queue="reports")

    listed = answer("failed", "list")

    assert isinstance(listed, list)
    assert [(job["name"], job["queue"]) for job in listed] == [("mail", "default"), ("report", "reports")]
    assert set(listed[1]) == {
        "id", "name", "queue", "args", "attempts", "lost", "reason", "error_type", "error",
        "pushed_at", "failed_at", "worker",
    }  # fmt: skip
    assert listed[1]["args"] == {"number": 7}
    assert (listed[1]["reason"], listed[1]["error_type"], listed[1]["error"]) == (
        "error",
        "LookupError",
        "no data",
    )
    assert datetime.fromisoformat(listed[1]["failed_at"]).utcoffset() is not None


@pytest.mark.rule("FAIL-2")
def test_failed_jobs_are_filtered_by_queue_and_by_job(url: str) -> None:
    fail(url, Mail("a@b.c"), Report(1))
    fail(url, Report(2), queue="reports")

    assert len(failed_ids()) == 3
    assert len(failed_ids("--job", "report")) == 2
    assert len(failed_ids("--queue", "reports", "--job", "report")) == 1
    assert failed_ids("--queue", "empty") == []


@pytest.mark.rule("FAIL-2")
def test_failed_jobs_are_paged(url: str) -> None:
    fail(url, *map(Report, range(5)))
    everything = failed_ids()

    first = run("failed", "list", "--limit", "2")

    assert first.stderr == f"there may be more: --after {everything[1]}\n"
    assert failed_ids("--limit", "2", "--after", everything[1]) == everything[2:4]
    assert "list after" in refusal("failed", "list", "--after", "0" * 32, status=1)


@pytest.mark.rule("FAIL-2", "WORK-5")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_sensitive_arguments_are_never_shown(url: str, options: tuple[str, ...]) -> None:
    fail(url, Mail("a@b.c"))
    [id] = failed_ids()

    shown = run("failed", "list", *options).stdout + run("failed", "show", id, *options).stdout

    assert "a@b.c" in shown
    assert shown.count("[redacted]") == 2
    assert "s3cret-token" not in shown


def test_what_a_job_said_can_not_command_the_terminal(url: str) -> None:
    fail(url, Mail("a@b.c"))
    [id] = failed_ids()

    listed, shown = run("failed", "list").stdout, run("failed", "show", id).stdout

    assert "\x1b" not in listed + shown
    assert "no such \\x1b[31muser at all" in listed
    assert len(listed.splitlines()) == 2


def test_show_tells_everything_in_local_time_and_the_traceback_last(url: str) -> None:
    fail(url, Report(7))
    [id] = failed_ids()

    shown = run("failed", "show", id).stdout
    facts = dict(line.split(maxsplit=1) for line in shown.split("\n\n")[0].splitlines())

    assert (facts["id"], facts["job"], facts["queue"]) == (id, "report", "default")
    assert facts["args"] == '{"number": 7}'
    assert facts["error"] == "LookupError: no data"
    assert datetime.fromisoformat(facts["failed"]).utcoffset() == datetime.now().astimezone().utcoffset()
    assert shown.endswith("LookupError: no data\n")
    assert "Traceback" in shown


def test_show_as_json_adds_the_traceback(url: str) -> None:
    fail(url, Report(7))
    [id] = failed_ids()

    shown = answer("failed", "show", id)

    assert isinstance(shown, dict)
    assert shown["id"] == id
    assert shown["traceback"].endswith("LookupError: no data\n")


def test_an_unreadable_job_is_listed_all_the_same(url: str) -> None:
    fail_unreadably(url, "a" * 32)

    assert failed_ids() == ["a" * 32]
    assert "(unreadable)" in run("failed", "list").stdout


def test_no_failed_jobs_are_no_error(url: str) -> None:
    assert run("failed", "list").stdout == "no failed jobs\n"
    assert answer("failed", "list") == []
    assert "no failed job" in refusal("failed", "show", "0" * 32, status=1)


@pytest.mark.rule("FAIL-2")
def test_retry_puts_the_named_jobs_back(url: str) -> None:
    fail(url, Report(1), Report(2))
    first, second = failed_ids()

    assert answer("failed", "retry", second) == {"retried": 1, "missing": [], "unreadable": []}
    assert failed_ids() == [first]
    assert answer("size") == {"default": 1}


@pytest.mark.rule("FAIL-2")
def test_retry_and_discard_do_what_can_be_done_and_name_the_rest(url: str) -> None:
    fail(url, Report(1), Report(2))
    first, second = failed_ids()
    nobody = "0" * 32

    retried = run("failed", "retry", nobody, first)
    discarded = run("failed", "discard", second, nobody, "--json")

    assert (retried.exit_code, retried.stdout) == (1, "1 job put back\n")
    assert retried.stderr == f"aqueue: no such failed job: {nobody}\n"
    assert discarded.exit_code == 1
    assert json.loads(discarded.stdout) == {"discarded": 1, "missing": [nobody]}
    assert failed_ids() == []


@pytest.mark.rule("FAIL-2")
def test_retry_all_puts_back_every_job_or_those_asked_for(url: str) -> None:
    fail(url, Mail("a@b.c"), Report(1))
    fail(url, Report(2), queue="reports")

    assert answer("failed", "retry", "--all", "--queue", "default", "--job", "report") == {
        "retried": 1, "missing": [], "unreadable": [],
    }  # fmt: skip
    assert run("failed", "retry", "--all").stdout == "2 jobs put back\n"
    assert answer("size", "default", "reports") == {"default": 2, "reports": 1}


@pytest.mark.rule("FAIL-2")
def test_retry_all_goes_on_past_one_page(url: str) -> None:
    fail(url, *map(Report, range(120)), side_by_side=50)

    assert run("failed", "retry", "--all").stdout == "120 jobs put back\n"
    assert answer("size") == {"default": 120}


@pytest.mark.rule("FAIL-2", "MAL-1")
def test_retry_all_leaves_what_it_can_not_read_and_says_so(url: str) -> None:
    fail_unreadably(url, "a" * 32)
    fail(url, Report(1))

    result = run("failed", "retry", "--all", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"retried": 1, "missing": [], "unreadable": ["a" * 32]}
    assert failed_ids() == ["a" * 32]


@pytest.mark.rule("FAIL-2")
def test_discard_deletes_for_good(url: str) -> None:
    fail(url, Report(1))
    [id] = failed_ids()

    assert answer("failed", "discard", id) == {"discarded": 1, "missing": []}
    assert (failed_ids(), answer("size")) == ([], {"default": 0})


@pytest.mark.rule("FAIL-2")
@pytest.mark.parametrize("age", ["1w", "30d", "12h", "90m", "3600s", "3600", "1.5h"])
def test_purge_spares_what_is_younger(url: str, age: str) -> None:
    fail(url, Report(1))

    assert answer("failed", "purge", "--older-than", age) == {"purged": 0}
    assert run("failed", "purge", "--older-than", "0").stdout == "1 job purged\n"
    assert failed_ids() == []


@pytest.mark.parametrize("age", ["", "soon", "-1", "1y", "nan", "1e3", "2 days"])
def test_purge_takes_no_age_it_does_not_understand(url: str, age: str) -> None:
    assert "is not an age" in refusal("failed", "purge", f"--older-than={age}", status=2)
