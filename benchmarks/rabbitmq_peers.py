"""aqueue beside taskiq-aio-pika and FastStream, and beside its bare frames: one RabbitMQ, one run, in turn.

    python -m benchmarks.rabbitmq_peers
    python -m benchmarks.rabbitmq_peers --rounds 1 --contenders aqueue limit --kinds quorum

Each round runs every contender once on each kind of queue, on a broker that is empty and its own. Every push
is persistent and confirmed. What differs between two runs of one machine is the machine: the figures to
compare are the ratios within one run.
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

from benchmarks.environments import ROOT, interpreter, versions
from benchmarks.rabbitmq import report
from benchmarks.rabbitmq.server import RabbitMQ, rabbitmq_server
from benchmarks.redis_peers import _commit, _processor


class Contender(NamedTuple):
    """The environment it needs, and its script in `rabbitmq/`."""

    environment: str
    script: str


CONTENDERS = {
    "aqueue": Contender("aqueue-rabbitmq", "aqueue_bench"),
    "taskiq": Contender("taskiq-rabbitmq", "taskiq_bench"),
    "faststream": Contender("faststream", "faststream_bench"),
    "limit": Contender("aqueue-rabbitmq", "limit"),
}
KINDS = ("quorum", "classic")
PHASES = ("rates", "idle")

Figures: TypeAlias = dict[str, Any]

_LONGEST = 600


def main() -> None:
    """Run everything, write the results and print the tables."""
    options = _options()
    names: list[str] = options.contenders
    pythons = {name: interpreter(CONTENDERS[name].environment) for name in names}
    kinds: dict[str, dict[str, dict[str, list[Figures]]]] = {
        kind: {phase: {name: [] for name in names} for phase in PHASES} for kind in options.kinds
    }
    with rabbitmq_server() as server:
        about = _about(server, pythons, options)
        turns = [(kind, phase, name) for kind in options.kinds for phase in PHASES for name in names]
        for number in range(options.rounds):
            for kind, phase, name in turns:
                figures = _run(server, pythons[name], name, kind, phase, options)
                kinds[kind][phase][name].append(figures)
                line = report.line(name, kind, phase, figures)
                print(f"round {number + 1} {line}", file=sys.stderr, flush=True)
    written = {"about": about, "kinds": kinds}
    results: Path = options.results
    results.mkdir(parents=True, exist_ok=True)
    (results / "rabbitmq.json").write_text(json.dumps(written, indent=1) + "\n")
    (results / "rabbitmq.md").write_text(report.page(written))
    print(report.tables(written))


def _options() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=200, help="pushes to an idle worker, in each round")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


def _run(
    server: RabbitMQ, python: Path, name: str, kind: str, phase: str, options: argparse.Namespace
) -> Figures:
    server.empty()
    time.sleep(1.0)
    load = os.getloadavg()[0]
    command = [
        str(python), "-m", f"benchmarks.rabbitmq.{CONTENDERS[name].script}", phase,
        "--port", str(server.port), "--queue-type", kind,
        "--jobs", str(options.jobs), "--samples", str(options.samples),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=_LONGEST, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return {**figures, "load_before": load}


def _about(server: RabbitMQ, pythons: Mapping[str, Path], options: argparse.Namespace) -> Figures:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m benchmarks.rabbitmq_peers", *sys.argv[1:]]),
        "commit": _commit(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "rabbitmq": server.version,
        "jobs": options.jobs,
        "samples": options.samples,
        "versions": {name: versions(python) for name, python in pythons.items()},
    }


if __name__ == "__main__":
    main()
