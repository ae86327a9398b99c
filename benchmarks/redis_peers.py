"""aqueue beside arq, SAQ and taskiq, and beside the bare driver: one Redis, one run, in turn.

    python -m benchmarks.redis_peers
    python -m benchmarks.redis_peers --rounds 1 --contenders aqueue limit --results /tmp/quick

Each round runs every contender once, A B C D E A B C D E, on a server that is empty and its own. What differs
between two runs of one machine is the machine: the figures to compare are the ratios within one run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks import report
from benchmarks.environments import ROOT, interpreter, versions
from benchmarks.redis_server import RedisServer, redis_server


class Contender(NamedTuple):
    """The environment it needs, and its script in `peers/`."""

    environment: str
    script: str


CONTENDERS = {
    "aqueue": Contender("aqueue", "aqueue_bench"),
    "arq": Contender("arq", "arq_bench"),
    "saq": Contender("saq", "saq_bench"),
    "taskiq": Contender("taskiq", "taskiq_bench"),
    "limit": Contender("aqueue", "limit"),
}
PHASES = ("rates", "idle")

Figures: TypeAlias = dict[str, Any]
Runs: TypeAlias = dict[str, dict[str, list[Figures]]]

_LONGEST = 600


def main() -> None:
    """Run everything, write the results and print the table."""
    options = _options()
    names: list[str] = options.contenders
    pythons = {name: interpreter(CONTENDERS[name].environment) for name in names}
    runs: Runs = {phase: {name: [] for name in names} for phase in PHASES}
    with redis_server() as server:
        about = _about(server, pythons, options)
        for number in range(options.rounds):
            for phase in PHASES:
                for name in names:
                    figures = _run(server, pythons[name], name, phase, options)
                    runs[phase][name].append(figures)
                    line = report.line(name, phase, figures)
                    print(f"round {number + 1} {line}", file=sys.stderr, flush=True)
    written = {"about": about, **runs}
    results: Path = options.results
    results.mkdir(parents=True, exist_ok=True)
    (results / "redis.json").write_text(json.dumps(written, indent=1) + "\n")
    (results / "redis.md").write_text(report.page(written))
    print(report.table(written))


def _options() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=200, help="pushes to an idle worker, in each round")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


def _run(server: RedisServer, python: Path, name: str, phase: str, options: argparse.Namespace) -> Figures:
    server.run("FLUSHALL")
    server.run("SCRIPT FLUSH")
    load = os.getloadavg()[0]
    command = [
        str(python), "-m", f"benchmarks.peers.{CONTENDERS[name].script}", phase,
        "--port", str(server.port), "--jobs", str(options.jobs), "--samples", str(options.samples),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=_LONGEST, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    time.sleep(0.5)
    return {**figures, "load_before": load}


def _about(server: RedisServer, pythons: Mapping[str, Path], options: argparse.Namespace) -> Figures:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m benchmarks.redis_peers", *sys.argv[1:]]),
        "commit": _commit(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "redis": server.version,
        "jobs": options.jobs,
        "samples": options.samples,
        "versions": {name: versions(python) for name, python in pythons.items()},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    return described.stdout.strip()


if __name__ == "__main__":
    main()
