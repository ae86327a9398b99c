"""Figures as text: a line while a run goes on, a table at its end, and a page to keep."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Results = Mapping[str, Any]

OURS, LIMIT = "aqueue", "limit"

_HEAD = (
    "", "push/s", "drain/s", "CPU µs a job, push", "CPU µs a job, drain", "commands a push",
    "start after push, p50 ms", "p99 ms", "from the call, p50 ms", "idle commands/s",
)  # fmt: skip


def line(name: str, phase: str, figures: Results) -> str:
    """Return one run's figures in a line."""
    if phase == "rates":
        push, drain = figures["push"], figures["drain"]
        return (
            f"{name:8} push {push['jobs_per_second']:9,.0f}/s ({push['cpu_us_per_job']:5.0f} µs CPU)   "
            f"drain {drain['jobs_per_second']:9,.0f}/s ({drain['cpu_us_per_job']:5.0f} µs CPU)   "
            f"load {figures['load_before']:.1f}"
        )
    after, call = figures["start_after_return_ms"], figures["start_after_call_ms"]
    return (
        f"{name:8} {figures['commands_per_push']:.3f} commands a push, idle "
        f"{figures['idle_commands_per_second']:.1f}/s, start {after['p50']:.2f} / {after['p99']:.2f} ms after "
        f"the push returned, {call['p50']:.2f} / {call['p99']:.2f} ms after its call"
    )


def table(results: Results) -> str:
    """Return the medians of all rounds, with the ratios that matter."""
    rows = [_HEAD, *(_row(name, results) for name in results["rates"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join([*lines, "", *_ratios(results)])


def page(results: Results) -> str:
    """Return the table with what is needed to read it, as Markdown."""
    about = results["about"]
    machine = about["machine"]
    settings = [
        f"* **{name}** {_version(name, about)}: {runs[0]['settings']}" for name, runs in results["rates"].items()
    ]
    loads = [run["load_before"] for runs in results["rates"].values() for run in runs]
    return f"""# Redis, beside its peers

`{about["command"].strip()}`, {about["when"]}, commit {about["commit"]}: {machine["processor"]}, {machine["cores"]} cores,
{machine["system"]}; Python {about["python"]}, uvloop for all; Redis {about["redis"]} on the same machine, empty before each run;
load average before the runs {min(loads):.1f} to {max(loads):.1f}. A busy machine slows everybody: compare within the table.

Median of {len(next(iter(results["rates"].values())))} rounds in turn (lowest to highest in brackets). Each round, each contender alone: 100 tasks push
{about["jobs"]:,} no-op jobs with a 200-byte argument; then one worker in one process at concurrency 100 takes them,
timed from its start to the start of the last handler; then, after a pause, {about["samples"]} pushes 10 to 30 ms apart to the
idle worker. Commands are what clients send, as MONITOR shows them.

{table(results)}

Settings:

{chr(10).join(settings)}
"""


def _row(name: str, results: Results) -> Sequence[str]:
    rates, idle = results["rates"][name], results["idle"][name]

    def of(runs: Sequence[Results], *path: str) -> list[float]:
        return [_at(run, path) for run in runs]

    return (
        name,
        _spread(of(rates, "push", "jobs_per_second"), "{:,.0f}"),
        _spread(of(rates, "drain", "jobs_per_second"), "{:,.0f}"),
        f"{median(of(rates, 'push', 'cpu_us_per_job')):.0f}",
        f"{median(of(rates, 'drain', 'cpu_us_per_job')):.0f}",
        f"{median(of(idle, 'commands_per_push')):.3f}",
        _spread(of(idle, "start_after_return_ms", "p50"), "{:.2f}"),
        _spread(of(idle, "start_after_return_ms", "p99"), "{:.2f}"),
        f"{median(of(idle, 'start_after_call_ms', 'p50')):.2f}",
        f"{median(of(idle, 'idle_commands_per_second')):.1f}",
    )


def _ratios(results: Results) -> list[str]:
    """Return how aqueue stands to the best peer and to the limit, by the medians of this run."""
    rates = results["rates"]
    lines = []
    for what in ("push", "drain"):
        figures = {name: median(_at(run, (what, "jobs_per_second")) for run in runs) for name, runs in rates.items()}
        peers = {name: rate for name, rate in figures.items() if name not in {OURS, LIMIT}}
        if OURS in figures and peers:
            best = max(peers, key=peers.__getitem__)
            lines.append(f"{what}: {figures[OURS] / peers[best]:.1f} times the best peer ({best})")
        if OURS in figures and LIMIT in figures:
            lines.append(f"{what}: {figures[OURS] / figures[LIMIT]:.0%} of the limit")
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
    packages = {"taskiq": ("taskiq", "taskiq-redis", "redis")}.get(name, (name, "redis"))
    return ", ".join(f"{package} {held[package]}" for package in packages if package in held)
