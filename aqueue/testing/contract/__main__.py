"""`python -m aqueue.testing.contract URL`: the suite without a test runner, and its verdict rule by rule."""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence

import click
import msgspec

from aqueue.errors import AqueueError
from aqueue.testing.contract import Check, all_checks
from aqueue.testing.contract.places import Places
from aqueue.testing.contract.verdicts import Report, Verdict, examine


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else.")
@click.option("--rule", "rules", metavar="RULE", multiple=True, help="Only this rule; may be repeated.")
@click.option("--lease", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True), help="The lease.")
@click.option("--takes-clock", is_flag=True, help="The store takes its time from StoreOptions.clock.")
@click.option(
    "--at-once",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many checks run side by side.",
)
def main(
    url: str, *, as_json: bool, rules: tuple[str, ...], lease: float | None, takes_clock: bool, at_once: int
) -> None:
    """Prove that the store at URL keeps the contract, and say so rule by rule.

    URL holds {place}, which becomes a new name for each check, or {folder}, a new directory. The status is 0
    where every rule holds, 1 where one is broken, 2 for a wrong use.
    """
    checks = _chosen(rules)
    logging.getLogger("aqueue").addHandler(logging.NullHandler())  # jobs fail here on purpose
    try:
        places = Places(url, lease=lease, takes_clock=takes_clock)
        with contextlib.closing(places), _progress(len(checks)) as tell:
            report = asyncio.run(examine(places.harness, checks, at_once=at_once, tell=tell))
    except AqueueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(as_document(report)))
    else:
        _print(report)
    sys.exit(0 if report.holds else 1)


def as_document(report: Report) -> dict[str, object]:
    """Return the report as JSON has it: what the store can do, and each rule with the checks it broke."""
    return {
        "store": report.store,
        "aqueue": report.aqueue,
        "holds": report.holds,
        "capabilities": report.capabilities,
        "abilities": list(report.abilities),
        "rules": {
            rule: {
                "holds": not any(verdict.broken for verdict in verdicts),
                "checks": len(verdicts),
                "broken": [msgspec.to_builtins(verdict) for verdict in verdicts if verdict.broken],
            }
            for rule, verdicts in report.by_rule().items()
        },
    }


def _chosen(rules: Sequence[str]) -> list[Check]:
    checks = all_checks()
    known = {rule for check in checks for rule in check.rules}
    if unknown := sorted(set(rules) - known):
        raise click.UsageError(f"no check proves {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return [check for check in checks if not rules or set(check.rules) & set(rules)]


def _print(report: Report) -> None:
    click.echo(f"{report.store}: {', '.join(report.abilities) or 'the five verbs alone'}")
    by_rule = report.by_rule()
    for rule, verdicts in by_rule.items():
        broken = [verdict for verdict in verdicts if verdict.broken]
        count = f"{len(verdicts)} check{'s' * (len(verdicts) != 1)}"
        click.echo(f"{rule:<9} {'BROKEN' if broken else 'holds':<7} {count}")
        for verdict in broken:
            click.echo(f"    {verdict.check}: {verdict.promise}\n        {_in_one_line(verdict.broken)}")
    held = sum(not any(verdict.broken for verdict in verdicts) for verdicts in by_rule.values())
    click.echo(f"{held} of {len(by_rule)} rules hold")


def _in_one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))


@contextlib.contextmanager
def _progress(length: int) -> Iterator[Callable[[Verdict], None]]:
    """Show how far it is on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label="proving", file=sys.stderr) as bar:
        yield lambda _: bar.update(1)


if __name__ == "__main__":
    main(prog_name="python -m aqueue.testing.contract")
