"""Figures as text: a line while a run goes on, a table at its end, and a page to keep."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Results = Mapping[str, Any]

OURS, LIMIT = "aqueue", "limit"

_HEAD = (
    "", "push/s", "drain/s", "CPU µs a job, push", "CPU µs a job, drain", "in turn/s",
    "start after push, p50 ms", "p99 ms", "from the call, p50 ms",
)  # fmt: skip

_PAGE = """\
# RabbitMQ, beside its peers

`{command}`, {when}, commit {commit}.

{processor}, {cores} cores, {system}; Python {python}, uvloop for all; RabbitMQ {rabbitmq} on the same
machine, one node, empty before each run. Load average before the runs: {least:.1f} to {most:.1f}. A busy
machine slows everybody, so compare within a table.

Medians of {rounds} rounds in turn, lowest to highest in brackets. In each round each contender runs alone:
100 tasks push {jobs:,} no-op jobs with a 200-byte argument, each persistent and confirmed; then one worker in
one process at concurrency 100 takes them, timed from its start to the start of the last handler. On an empty
broker again {samples} pushes 10 to 30 ms apart go to the idle worker, by another client in the same process;
a handler may start before the push that woke it has returned. Then one task pushes 500 jobs in turn.

{tables}

Settings:

{settings}
"""


def line(name: str, queue_type: str, phase: str, figures: Results) -> str:
    """Return one run's figures in a line."""
    if phase == "rates":
        push, drain = figures["push"], figures["drain"]
        return (
            f"{queue_type:7} {name:10} push {push['jobs_per_second']:9,.0f}/s   "
            f"drain {drain['jobs_per_second']:9,.0f}/s   load {figures['load_before']:.1f}"
        )
    after = figures["start_after_return_ms"]
    return (
        f"{queue_type:7} {name:10} start {after['p50']:.2f} / {after['p99']:.2f} ms after the push returned, "
        f"in turn {figures['in_turn_per_second']:,.0f}/s"
    )


def tables(results: Results) -> str:
    """Return a table for each kind of queue, with the ratios that matter."""
    return "\n\n".join(f"**{kind} queues**\n\n{_table(found)}" for kind, found in results["kinds"].items())


def page(results: Results) -> str:
    """Return the tables with what is needed to read them, as Markdown."""
    about = results["about"]
    rates = [runs for found in results["kinds"].values() for runs in found["rates"].values()]
    loads = [run["load_before"] for runs in rates for run in runs]
    first = next(iter(results["kinds"].values()))["rates"]
    settings = [
        f"* **{name}** {_version(name, about)}: {runs[0]['settings']}" for name, runs in first.items()
    ]
    return _PAGE.format_map(
        {
            **about,
            **about["machine"],
            "least": min(loads),
            "most": max(loads),
            "rounds": len(rates[0]),
            "tables": tables(results),
            "settings": "\n".join(settings),
        }
    )


def _table(found: Results) -> str:
    rows = [_HEAD, *(_row(name, found) for name in found["rates"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = [" | ".join(map(str.rjust, row, widths)) for row in rows]
    lines.insert(1, " | ".join("-" * (width - 1) + ":" for width in widths))
    return "\n".join([*(f"| {line} |" for line in lines), "", *_ratios(found)])


def _row(name: str, found: Results) -> Sequence[str]:
    rates, idle = found["rates"][name], found["idle"][name]

    def of(runs: Sequence[Results], *path: str) -> list[float]:
        return [_at(run, path) for run in runs]

    return (
        name,
        _spread(of(rates, "push", "jobs_per_second"), "{:,.0f}"),
        _spread(of(rates, "drain", "jobs_per_second"), "{:,.0f}"),
        f"{median(of(rates, 'push', 'cpu_us_per_job')):.0f}",
        f"{median(of(rates, 'drain', 'cpu_us_per_job')):.0f}",
        f"{median(of(idle, 'in_turn_per_second')):,.0f}",
        _spread(of(idle, "start_after_return_ms", "p50"), "{:.2f}"),
        _spread(of(idle, "start_after_return_ms", "p99"), "{:.2f}"),
        f"{median(of(idle, 'start_after_call_ms', 'p50')):.2f}",
    )


def _ratios(found: Results) -> list[str]:
    """Return how aqueue stands to the best peer and to the limit, by the medians of this run."""
    lines = []
    for what in ("push", "drain"):
        path = (what, "jobs_per_second")
        figures = {name: median(_at(run, path) for run in runs) for name, runs in found["rates"].items()}
        peers = {name: rate for name, rate in figures.items() if name not in {OURS, LIMIT}}
        if OURS in figures and peers:
            best = max(peers, key=peers.__getitem__)
            lines.append(f"{what}: {figures[OURS] / peers[best]:.1f} times the best peer ({best})  ")
        if OURS in figures and LIMIT in figures:
            lines.append(f"{what}: {figures[OURS] / figures[LIMIT]:.0%} of the limit  ")
    return lines


def _spread(values: Sequence[float], form: str) -> str:
    return f"{form.format(median(values))} ({form.format(min(values))}-{form.format(max(values))})"


def _at(figures: Results, path: Sequence[str]) -> float:
    found: Any = figures
    for name in path:
        found = found[name]
    return float(found)


def _version(name: str, about: Results) -> str:
    held = about["versions"][name]
    packages = (name, "taskiq-aio-pika", "aio-pika", "aiormq", "pamqp")
    return ", ".join(f"{package} {held[package]}" for package in packages if package in held)
