"""Events: a queued listener is told by a job like any other, so every store carries it."""

from dataclasses import dataclass

from aqueue.dispatcher import Dispatcher
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.eventually import eventually
from aqueue.worker import Worker

_Heard = list[tuple[str, object]]
_QUEUES = ("listeners", "others")


@dataclass(frozen=True)
class Happened:
    """An event with arguments."""

    number: int
    texts: tuple[str, ...] = ()


def _dispatcher(queue: Queue, heard: _Heard) -> Dispatcher:
    """Return a dispatcher with two queued listeners of one queue and a third of another."""
    dispatcher = Dispatcher(queue)

    @dispatcher.listen(Happened, queued=True, queue="listeners", name="contract.first")
    async def first(event: Happened) -> None:
        heard.append(("first", event))

    @dispatcher.listen(object, queued=True, queue="listeners", name="contract.second")
    async def second(event: object) -> None:
        heard.append(("second", event))
        if event == Happened(13):
            raise ValueError("unlucky")

    @dispatcher.listen(Happened, queued=True, queue="others", name="contract.third")
    async def third(event: Happened) -> None:
        heard.append(("third", event))

    return dispatcher


async def _let_work(queue: Queue, dispatcher: Dispatcher, heard: _Heard, most: float) -> None:
    """Run a worker until the three listeners were told."""
    worker = Worker(queue, dispatcher.jobs, queues=_QUEUES, concurrency=1)

    async def all_told() -> None:
        await worker.run_all()
        assert len(heard) >= 3, f"only {heard} were told"

    await eventually(all_told, most)


@rule("EVENT-1")
async def each_queued_listener_is_told_once_by_a_worker(harness: Harness) -> None:
    """One job for each, on its own queue; the event comes back as it was dispatched."""
    queue, heard = await harness.queue(), _Heard()
    dispatcher, event = _dispatcher(queue, heard), Happened(7, ("a", "b"))

    await dispatcher.dispatch(event)

    assert heard == [], "a queued listener was told inside dispatch"
    await harness.expect_counts(queue, "listeners", ready=2)
    await harness.expect_counts(queue, "others", ready=1)
    await _let_work(queue, dispatcher, heard, harness.patience)
    assert sorted(heard, key=str) == [("first", event), ("second", event), ("third", event)]
    for name in _QUEUES:
        await harness.expect_counts(queue, name)


@rule("EVENT-1")
async def a_queued_listener_that_fails_spoils_no_other(harness: Harness) -> None:
    """Its job alone is set aside, under the listener's name."""
    queue, heard = await harness.queue(), _Heard()
    dispatcher = _dispatcher(queue, heard)

    await dispatcher.dispatch(Happened(13))
    await _let_work(queue, dispatcher, heard, harness.patience)

    assert sorted(name for name, _ in heard) == ["first", "second", "third"]
    assert [each.name for each in await queue.failed.list()] == ["contract.second"]


@rule("EVENT-1")
async def nothing_is_pushed_where_an_inline_listener_raises(harness: Harness) -> None:
    """Its error reaches whoever dispatched, and queued listeners hear nothing."""
    queue = await harness.queue()
    dispatcher = _dispatcher(queue, [])

    @dispatcher.listen(Happened)
    async def refuse(event: Happened) -> None:
        raise KeyError("refused")

    with raises(KeyError, "dispatching to a listener that raises"):
        await dispatcher.dispatch(Happened(7))

    for name in _QUEUES:
        await harness.expect_counts(queue, name)
