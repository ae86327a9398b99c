"""What `aqueue worker` takes for a target, and what it says of one that is none."""

import importlib
import json
import signal
import sys
from pathlib import Path

import pytest
from support.commands import answer, numbers, push, refusal, run

pytest_plugins = ["support.command_fixtures"]
pytestmark = pytest.mark.rule("CLI-1")

FORMS = {
    "a worker": "target = build()",
    "a function": "def target():\n    return build()",
    "an async function": "async def target():\n    return build()",
    "a context manager": """
@contextlib.asynccontextmanager
async def target():
    worker = build()
    yield worker
    await worker.queue.push(Note("left"))  # the queue is closed after this, not before
""",
    "an object's method": "class Site:\n    build = staticmethod(build)\nsite = Site()",
    "an open queue": """
async def target():
    worker = build()
    await worker.queue.open()
    return worker
""",
}

APP = """
import contextlib
import aqueue

@aqueue.job
class Note:
    text: str
    async def handle(self):
        pass

def build():
    worker = aqueue.Worker(aqueue.connect({url!r}), [Note], grace=5)
    worker.listen(aqueue.JobSucceeded, lambda event: worker.stop())
    return worker

"""


@pytest.mark.rule("STOP-2")
@pytest.mark.parametrize("form", FORMS)
def test_a_target_is_a_worker_or_whatever_makes_one(url: str, desk: Path, form: str) -> None:
    module = f"app{next(numbers)}"
    (desk / f"{module}.py").write_text(APP.format(url=url) + FORMS[form])
    (desk / "notes.py").write_text(f"from {module} import Note")
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    sys.path.insert(0, str(desk))
    push(url, importlib.import_module("notes").Note("hello"))

    ended = run("worker", f"{module}:{'site.build' if 'object' in form else 'target'}", "--json")

    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert (told["status"], told["signals"]) == (0, [])
    assert answer("size") == {"default": 1 if "context" in form else 0}
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


MISNAMED = {
    "nowhere:worker": "no module 'nowhere'",
    "nowhere.at.all:worker": "no module 'nowhere'",
    "shop.nothing:worker": "no module 'shop.nothing'",
    "shop:nothing": "no attribute 'nothing'",
    "shop:number": "gives a int",
    "shop:choosy": "without arguments",
    "shop:queue": "gives a Queue",
    "shop:bare": "asynccontextmanager",
    "shop": "not module:attribute",
    ":worker": "not module:attribute",
}


@pytest.mark.parametrize("target", MISNAMED)
def test_a_target_that_is_not_there_or_no_worker_is_one_line(desk: Path, target: str) -> None:
    (desk / "shop.py").write_text(
        "import aqueue\n"
        "number = 3\n"
        "def choosy(which): ...\n"
        "def queue(): return aqueue.connect('memory://')\n"
        "async def bare(): yield None\n"
    )

    assert MISNAMED[target] in refusal("worker", target, status=2)


BROKEN = {
    "import no_such_module_at_all\n": "ModuleNotFoundError",
    "def broken(:\n": "SyntaxError",
    "1 / 0\n": "ZeroDivisionError",
    "def worker():\n    return 1 / 0\n": "ZeroDivisionError",
    "async def worker():\n    return 1 / 0\n": "ZeroDivisionError",
    "from contextlib import *\n@asynccontextmanager\nasync def worker():\n  yield 1 / 0": "ZeroDivisionError",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_target_that_raises_shows_the_users_own_traceback(desk: Path, code: str) -> None:
    module = f"broken{next(numbers)}"
    (desk / f"{module}.py").write_text(code)

    result = run("worker", f"{module}:worker")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{module}.py" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("aqueue: ")
    assert BROKEN[code] in result.stderr.splitlines()[-1]
    assert "importlib" not in result.stderr
    assert "aqueue/cli" not in result.stderr


def test_a_target_that_needs_setting_up_says_so_in_one_line(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AQUEUE_URL", raising=False)
    (desk / "unset.py").write_text(
        "import aqueue\ndef worker(): return aqueue.Worker(aqueue.connect_from_env(), [])\n"
    )

    assert "set AQUEUE_URL" in refusal("worker", "unset:worker", status=1)
