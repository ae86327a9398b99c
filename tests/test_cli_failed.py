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
        "pushed_at", "failed_at", "worker", "group",
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


@pytest.mark.rule("FAIL-4")
def test_groups_are_counted_the_most_frequent_first(url: str) -> None:
    fail(url, *map(Report, range(3)))
    fail(url, Mail("a@b.c"), Mail("d@e.f"), queue="mails")

    groups = answer("failed", "groups")
    shown = run("failed", "groups").stdout

    assert isinstance(groups, list)
    assert [(group["name"], group["error_type"], group["count"]) for group in groups] == [
        ("report", "LookupError", 3),
        ("mail", "ValueError", 2),
    ]
    assert set(groups[0]) == {
        "group", "name", "error_type", "error", "frame", "count", "first_at", "last_at", "example",
    }  # fmt: skip
    assert groups[0]["frame"] == "support/commands.py in handle"
    assert groups[0]["group"] in shown
    assert "user at all: <address>" in shown
    assert "a@b.c" not in shown
    assert "\x1b" not in shown
    mails, first = answer("failed", "groups", "--queue", "mails"), answer("failed", "groups", "--limit", "1")
    assert isinstance(mails, list)
    assert isinstance(first, list)
    assert ([group["count"] for group in mails], len(first)) == ([2], 1)
    assert run("failed", "groups", "--limit", "1").stderr == "and 1 more: --limit 2\n"


@pytest.mark.rule("FAIL-4")
def test_no_failed_jobs_are_no_groups(url: str) -> None:
    assert run("failed", "groups").stdout == "no failed jobs\n"
    assert answer("failed", "groups") == []


@pytest.mark.rule("FAIL-4", "FAIL-6")
def test_a_group_is_listed_and_put_back_by_itself(url: str) -> None:
    fail(url, Report(1), Mail("a@b.c"), Report(2))
    groups = answer("failed", "groups")
    assert isinstance(groups, list)
    group = groups[0]["group"]

    assert len(failed_ids("--group", group)) == 2
    assert answer("failed", "retry", "--all", "--group", group) == {
        "retried": 2, "missing": [], "unreadable": [],
    }  # fmt: skip
    assert len(failed_ids()) == 1
    assert failed_ids("--group", group) == []


@pytest.mark.rule("FAIL-6")
def test_a_dry_run_tells_and_does_nothing(url: str) -> None:
    fail(url, *map(Report, range(3)))

    assert run("failed", "retry", "--all", "--dry-run").stdout == "3 jobs would be put back\n"
    assert answer("failed", "retry", "--all", "--dry-run", "--limit", "2", "--rate", "1/h") == {
        "retried": 2, "missing": [], "unreadable": [], "dry_run": True,
    }  # fmt: skip
    assert len(failed_ids()) == 3


@pytest.mark.rule("FAIL-6")
@pytest.mark.parametrize("rate", ["500", "500/s", "30000/m", "1800000/h", "500.5/s"])
def test_a_rate_and_a_limit_are_kept(url: str, rate: str) -> None:
    fail(url, *map(Report, range(4)))
    everything = failed_ids()

    assert run("failed", "retry", "--all", "--rate", rate, "--limit", "3").stdout == "3 jobs put back\n"
    assert failed_ids() == everything[3:]


@pytest.mark.parametrize("rate", ["", "0", "0/s", "fast", "-1", "1/d", "1e3", "nan", "10 /s"])
def test_a_rate_that_is_none_is_refused(url: str, rate: str) -> None:
    assert "is not a rate" in refusal("failed", "retry", "--all", f"--rate={rate}", status=2)


@pytest.mark.rule("FAIL-5")
def test_set_changes_arguments_of_the_job_that_is_named(url: str) -> None:
    fail(url, Mail("a@b.c"))
    [id] = failed_ids()

    result = run("failed", "retry", id, "--set", 'to="new@b.c"', "--set", 'token="t=1"')
    fail(url)

    assert (result.exit_code, result.stdout) == (0, "1 job put back\n")
    failed_again = answer("failed", "list")
    assert isinstance(failed_again, list)
    assert failed_again[0]["args"] == {"to": "new@b.c", "token": "[redacted]"}


@pytest.mark.rule("FAIL-5")
@pytest.mark.parametrize(
    ("change", "problem", "status"),
    [
        ("to", "NAME=JSON", 2),
        ("=1", "NAME=JSON", 2),
        ("to=new@b.c", "the value of to is not JSON; a text needs quotes", 2),
        ("to=NaN", "the value of to is not JSON", 2),
        ("to=7", "argument to: expected str, got int", 1),
        ("token=7", "argument token: its sensitive value doesn't fit", 1),
        ("cc=1", "no argument 'cc'", 1),
    ],
)
def test_a_change_that_does_not_fit_is_refused(url: str, change: str, problem: str, status: int) -> None:
    fail(url, Mail("a@b.c"))
    before = answer("failed", "list")
    assert isinstance(before, list)

    assert problem in refusal("failed", "retry", before[0]["id"], "--set", change, status=status)

    assert answer("failed", "list") == before


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("a" * 32, "b" * 32, "--set", "to=1"), "--set changes one job"),
        (("--all", "--set", "to=1"), "--set changes one job"),
        (("a" * 32, "--set", "to=1", "--set", "to=2"), "to is set twice"),
        (("a" * 32, "--group", "x"), "go with --all"),
        (("a" * 32, "--rate", "1"), "go with --all"),
        (("a" * 32, "--limit", "1"), "go with --all"),
        (("a" * 32, "--dry-run"), "go with --all"),
        ((), "name the jobs by ID"),
        (("a" * 32, "--all"), "name the jobs by ID"),
    ],
)
def test_options_that_do_not_go_together_are_refused(url: str, args: tuple[str, ...], problem: str) -> None:
    assert problem in refusal("failed", "retry", *args, status=2)


@pytest.mark.rule("FAIL-2")
def test_purge_can_keep_to_one_queue(url: str) -> None:
    fail(url, Report(1))
    fail(url, Report(2), queue="reports")

    assert answer("failed", "purge", "--older-than", "0", "--queue", "reports") == {"purged": 1}
    left = answer("failed", "list")
    assert isinstance(left, list)
    assert [job["queue"] for job in left] == ["default"]
