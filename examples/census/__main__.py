"""`python -m examples.census`: measure every file of the standard library, on jobs."""

import argparse
import asyncio
import sys
import sysconfig
from pathlib import Path
from urllib.parse import quote

from aqueue import AqueueError
from examples.census.process import WorkerBroken, WorkerProcess
from examples.census.report import report
from examples.census.run import find_files, take_census
from examples.census.settings import Settings
from examples.census.view import View

_PRIVATE_TO_A_PROCESS = ("memory", "inline")


def main() -> int:
    """Take the census; return 0 if every file was measured, or failed and can be looked up."""
    options = _options()
    state, root = options.state.resolve(), options.root.resolve()
    state.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        url=options.url or f"sqlite:///{quote(str(state))}/jobs.db",
        state=str(state),
        lease=options.lease,
        concurrency=options.concurrency,
    )
    view = View()
    files = find_files(root)
    view.say(f"{len(files)} Python files in {root}")
    try:
        with WorkerProcess(settings, state / "worker.log") as worker:
            view.say(f"the worker is process {worker.pid}; try kill -9 {worker.pid}: no file is lost")
            result = asyncio.run(take_census(settings, root, files, worker, view))
    except KeyboardInterrupt:
        view.say("interrupted; start it again and it goes on from here")
        return 130
    except (AqueueError, WorkerBroken, ExceptionGroup) as error:
        view.say(f"the census ended early: {_user_error(error)}")
        return 1
    for line in report(result, settings, root):
        view.say(line)
    return 1 if result.missing else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="census", description=__doc__)
    parser.add_argument("--url", help="another queue than the SQLite file in the state folder")
    parser.add_argument("--root", type=Path, default=sysconfig.get_path("stdlib"), help="another tree")
    parser.add_argument("--state", type=Path, default=".demo", help="the folder for queue and results")
    parser.add_argument("--concurrency", type=int, default=50, help="files in work at once")
    parser.add_argument(
        "--lease", type=float, default=5.0, help="seconds until its files leave a dead worker"
    )
    options = parser.parse_args()
    if (options.url or "").partition("://")[0] in _PRIVATE_TO_A_PROCESS:
        parser.error("the worker has a process of its own: name a queue that both can reach")
    return options


def _user_error(error: Exception) -> Exception:
    """Return the error inside a task group's; anything but an expected one is a bug, and shows as one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, AqueueError | WorkerBroken):
        raise error
    return error


if __name__ == "__main__":
    sys.exit(main())
