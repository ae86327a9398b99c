"""A worker that lives and dies with a FastAPI application, and a health route that tells of it."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from support.services import NOTES, Note, breakable_queue, client_of, service
from support.working import Records, logged

from aqueue import Worker, connect, job
from aqueue.errors import InvalidQueueArgument
from aqueue.integrations.fastapi import (
    health_endpoint,
    queue_lifespan,
)
from aqueue.testing import eventually


@pytest.fixture(autouse=True)
def no_notes() -> None:
    NOTES.clear()


class TestTheWorkerInside:
    @pytest.mark.rule("STOP-1")
    async def test_ends_what_runs_before_the_queue_is_closed(self) -> None:
        started, may_end = asyncio.Event(), asyncio.Event()

        @job(name="slow")
        async def slow() -> None:
            started.set()
            await may_end.wait()
            NOTES.append("ended")

        queue = connect("memory://")
        lifespan = queue_lifespan(queue, worker=Worker(queue, [slow]))

        async with lifespan(app := FastAPI()):
            await queue.push(slow.job())
            await started.wait()
            asyncio.get_running_loop().call_later(0.05, may_end.set)

        assert NOTES == ["ended"]
        async with lifespan(app):
            assert await queue.size() == 0

    @pytest.mark.rule("STOP-2")
    @pytest.mark.parametrize("when", ["it works", "it stops"])
    @pytest.mark.parametrize("how", ["task", "scope"])
    async def test_gives_back_what_runs_when_its_host_is_cancelled(
        self, when: str, how: str, tmp_path: Path
    ) -> None:
        started, leaving = asyncio.Event(), asyncio.Event()

        @job(name="endless")
        async def endless() -> None:
            started.set()
            await asyncio.sleep(3600)

        threads = _store_threads()
        queue = connect(f"sqlite:///{tmp_path}/jobs.db")
        worker = Worker(queue, [endless])
        scope = anyio.CancelScope()

        async def host() -> None:
            with scope:
                async with queue_lifespan(queue, worker=worker)(FastAPI()):
                    await queue.push(endless.job())
                    await started.wait()
                    leaving.set()
                    if when == "it works":
                        await asyncio.sleep(3600)

        task = asyncio.create_task(host())
        await leaving.wait()  # at work, or in the grace of 30 s
        task.cancel() if how == "task" else scope.cancel()
        await asyncio.wait({task}, timeout=5)

        assert task.done()
        assert not worker.health().running
        await eventually(lambda: _store_threads() <= threads)  # nothing of the store stays behind
        async with connect(f"sqlite:///{tmp_path}/jobs.db") as again:
            delivery = await again.pop(timeout=1)
        assert delivery is not None
        assert delivery.attempt == 1

    async def test_starts_and_stops_in_whatever_tasks_the_host_likes(self) -> None:
        queue = connect("memory://")
        live = queue_lifespan(queue, worker=Worker(queue, [Note]))(FastAPI())

        await asyncio.create_task(live.__aenter__())
        await queue.push(Note("x"))
        await eventually(lambda: NOTES == ["x"])
        await asyncio.create_task(live.__aexit__(None, None, None))

        assert "closed" in repr(queue)

    async def test_stops_even_before_it_took_its_first_step(self) -> None:
        queue = connect("memory://")

        async with asyncio.timeout(5), queue_lifespan(queue, worker=Worker(queue, [Note]))(FastAPI()):
            pass

    async def test_may_take_from_another_queue_than_the_routes_push_to(self) -> None:
        inbox, outbox = connect("memory://inbox"), connect("memory://")
        worker = Worker(inbox, [Note])

        async with queue_lifespan(outbox, worker=worker)(FastAPI()):
            await inbox.push(Note("x"))
            await eventually(lambda: NOTES == ["x"])

        assert "closed" in repr(inbox)

    async def test_that_can_not_run_fails_the_start(self) -> None:
        queue = connect("memory://")
        lifespan = queue_lifespan(queue, worker=Worker(queue, [Note], poll_timeout=0))

        with pytest.raises(InvalidQueueArgument, match="poll_timeout"):
            async with lifespan(FastAPI()):
                pass

        assert "closed" in repr(queue)

    @pytest.mark.rule("WORK-8")
    async def test_that_dies_is_logged_and_the_application_goes_on(self, aqueue_log: Records) -> None:
        queue, store = breakable_queue()
        worker = Worker(queue, [Note], on_outage="stop", poll_timeout=0.05)
        app = service(lifespan := queue_lifespan(queue, worker=worker))
        app.add_route("/healthz", health_endpoint(worker))

        async with lifespan(app), client_of(app) as client:
            assert (await client.get("/healthz")).status_code == 200
            store.break_down("pop")
            await eventually(lambda: not worker.health().running)
            await eventually(lambda: any("died" in each for each in aqueue_log.messages(logging.ERROR)))

            assert (await client.get("/healthz")).status_code == 503
            assert (await client.post("/notes?text=later")).status_code == 202

        assert "closed" in repr(queue)


@pytest.fixture
def aqueue_log() -> Iterator[Records]:
    with logged() as records:
        yield records


class TestAHealthRoute:
    @pytest.mark.rule("WORK-8")
    async def test_tells_an_outage_but_not_to_a_liveness_probe(self) -> None:
        queue, store = breakable_queue()
        worker = Worker(queue, [Note], poll_timeout=0.05)
        app = FastAPI(lifespan=(lifespan := queue_lifespan(queue, worker=worker)))
        app.add_api_route("/ready", health_endpoint(worker))
        app.add_api_route("/alive", health_endpoint(worker, tolerate_outages=True))

        async with lifespan(app), client_of(app) as client:
            store.break_down("pop")
            await eventually(lambda: not worker.health().ok)
            ready, alive = await client.get("/ready"), await client.get("/alive")
            store.recover()
            await eventually(lambda: worker.health().ok)
            again = await client.get("/ready")

        assert (ready.status_code, alive.status_code, again.status_code) == (503, 200, 200)
        (report,) = ready.json()["workers"]
        assert (report["running"], report["queues"], report["last_error"]) == (
            True,
            ["default"],
            "ConnectionFailed",
        )

    async def test_tells_of_several_workers_and_of_none(self) -> None:
        queue = connect("memory://")
        first, second = Worker(queue, [Note]), Worker(queue, [Note])
        app = Starlette()
        app.add_route("/both", health_endpoint(first, second))
        app.add_route("/none", health_endpoint())

        async with client_of(app) as client, queue_lifespan(queue, worker=first)(app):
            both, none = await client.get("/both"), await client.get("/none")

        assert (both.status_code, [each["ok"] for each in both.json()["workers"]]) == (503, [True, False])
        assert (none.status_code, none.json()) == (200, {"ok": True, "workers": []})


def _store_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("aqueue-sqlite")}
