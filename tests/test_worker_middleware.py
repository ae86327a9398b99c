"""Functions around the handler, on the worker and on the job (MID-1)."""

from collections.abc import Callable
from typing import Any

import pytest
from support import fixtures
from support.busy import Note
from support.fixtures import Place

from aqueue import CallNext, Delivery, Handlers, Worker, job

place = fixtures.place


@pytest.mark.rule("MID-1")
async def test_the_workers_middleware_runs_around_the_jobs_in_the_order_given(place: Place) -> None:
    queue, log = await place.queue(), []

    def named(name: str) -> Callable[[Delivery, CallNext], Any]:
        async def middleware(delivery: Delivery, call_next: CallNext) -> object:
            log.append(f"{name} in")
            try:
                return await call_next(delivery)
            finally:
                log.append(f"{name} out")

        return middleware

    @job(name="scope.wrapped", middleware=[named("job 1"), named("job 2")])
    class Wrapped:
        def handle(self) -> None:
            log.append("handle")

    await queue.push(Wrapped())
    await Worker(queue, [Wrapped], middleware=[named("worker 1"), named("worker 2")]).run_one()
    order = ["worker 1", "worker 2", "job 1", "job 2"]
    assert log == [*(f"{name} in" for name in order), "handle", *(f"{name} out" for name in reversed(order))]


@pytest.mark.rule("MID-1", "WORK-3")
async def test_middleware_may_swallow_raise_skip_and_repeat(place: Place) -> None:
    queue, handlers, runs = await place.queue(), Handlers(), []

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        runs.append(note.text)
        if note.text == "swallow" or (note.text == "repeat" and runs.count("repeat") == 1):
            raise ValueError

    async def middleware(delivery: Delivery, call_next: CallNext) -> object:
        match delivery.args["text"]:
            case "skip":
                return None
            case "raise":
                raise LookupError("refused before the handler")
            case "swallow" | "repeat":
                try:
                    return await call_next(delivery)
                except ValueError:
                    return await call_next(delivery) if delivery.args["text"] == "repeat" else None
        return await call_next(delivery)

    await queue.push_many([Note(text) for text in ("skip", "raise", "swallow", "repeat", "plain")])
    await Worker(queue, handlers, middleware=[middleware], concurrency=1).run_all()
    assert runs == ["swallow", "repeat", "repeat", "plain"]
    (failed,) = await queue.failed.list()
    assert failed.error == "refused before the handler"
