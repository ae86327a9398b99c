"""What a worker refuses before it takes the first job (FACE-1, ARG-5, STOP-2)."""

from typing import Any

import pytest
from support import fixtures
from support.busy import Busy, Note
from support.fixtures import Place
from support.working import running

from aqueue import Handlers, InvalidJob, InvalidQueueArgument, Outcome, UnresolvableParameter, Worker
from aqueue.testing import eventually

memory = fixtures.memory


class Unknown:
    """A type nothing provides."""


@pytest.mark.rule("STOP-2")
async def test_a_paced_wait_without_end_is_refused_for_run(memory: Place) -> None:
    queue, busy = await memory.queue(), Busy()
    busy.gate.set()
    worker = Worker(queue, busy.handlers, poll_timeout=0)
    await queue.push(Note("a"))

    with pytest.raises(InvalidQueueArgument, match="poll_timeout"):
        await worker.run()

    assert await worker.run_one() is Outcome.ACKED


@pytest.mark.rule("FACE-1")
@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"queues": "default"},
        {"queues": ["a", "a"]},
        {"queues": ["no spaces"]},
        {"max_attempts": -1},
        {"max_attempts": None},
        {"backoff": 5},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"max_lost": -1},
        {"on_lease_lost": "ignore"},
        {"on_outage": "panic"},
        {"poll_timeout": -1},
        {"grace": float("inf")},
        {"trace": "both"},
        {"middleware": [3]},
    ],
    ids=str,
)
async def test_a_worker_that_could_not_work_is_refused_when_it_is_built(
    memory: Place, options: dict[str, Any]
) -> None:
    queue = await memory.queue()

    with pytest.raises(InvalidQueueArgument):
        Worker(queue, [], **options)


@pytest.mark.rule("ARG-5")
async def test_a_handler_that_could_never_run_is_refused_when_the_worker_is_built(memory: Place) -> None:
    queue = await memory.queue()
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note, nobody: Unknown) -> None: ...

    with pytest.raises(UnresolvableParameter, match=r"support\.note.*nobody"):
        Worker(queue, handlers)
    with pytest.raises(InvalidJob, match="handle"):
        Worker(queue, [Note])


async def test_a_worker_says_what_it_is(memory: Place) -> None:
    queue = await memory.queue()
    worker = Worker(queue, [], queues=["a", "b"], name="w1")

    assert repr(worker) == "<Worker w1 on a, b, idle>"
    assert worker.health().running is False
    async with running(worker):
        assert repr(worker) == "<Worker w1 on a, b, running>"
        await eventually(lambda: worker.health().last_claim is None or worker.health().ok)
