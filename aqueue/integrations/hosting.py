"""A worker inside somebody else's application: started and stopped with it, and its health told to probes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TypedDict

import anyio

from aqueue.queue import Queue
from aqueue.worker import Worker

_log = logging.getLogger("aqueue.integrations")


class WorkerReport(TypedDict):
    """What a probe is told about one worker; an error by its type alone, since its text may say too much."""

    queues: list[str]
    ok: bool
    running: bool
    last_claim: str | None
    last_error: str | None


class HealthReport(TypedDict):
    """The body of a health route."""

    ok: bool
    workers: list[WorkerReport]


@asynccontextmanager
async def opened(queue: Queue, worker: Worker | None) -> AsyncIterator[None]:
    """Keep the queue open while the block lasts, and the worker's own if that is another one."""
    queues = [queue] if worker is None or worker.queue is queue else [queue, worker.queue]
    async with AsyncExitStack() as stack:
        for each in queues:
            await each.open()
            stack.push_async_callback(_close, each)
        yield


@asynccontextmanager
async def working(worker: Worker | None) -> AsyncIterator[None]:
    """Run the worker in the host's event loop while the block lasts, then stop it with its grace (STOP-1).

    The block may be left by another task than entered it, as fixtures do, so the worker has a task of its
    own and no cancel scope reaches across the block. An error in the block, or a cancellation then or while
    the worker is stopping, is a stop without grace (STOP-2). A worker that refuses to start raises here; one
    that dies later is logged, its `health()` says so, and the host goes on: it still accepts work.
    """
    if worker is None:
        yield
        return
    task = asyncio.create_task(worker.run(), name=f"aqueue worker {worker.name}")
    await asyncio.sleep(0)  # its first step: from here on it can be stopped, or has refused to run
    if task.done():
        task.result()
    task.add_done_callback(_report_death)
    try:
        yield
        worker.stop()
        await asyncio.wait({task})
    except BaseException:
        worker.stop(at_once=True)
        with anyio.CancelScope(shield=True):  # its length has a bound: STOP-1
            await asyncio.wait({task})
        raise


def health_report(workers: Iterable[Worker], *, tolerate_outages: bool) -> tuple[HTTPStatus, HealthReport]:
    """Return the answer to a probe: 200 while every worker is well, else 503.

    With `tolerate_outages` a worker that waits for its store is well enough: a liveness probe that restarts
    the process would not bring the store back.
    """
    reports = [_report(worker) for worker in workers]
    ok = all(report["ok"] or (tolerate_outages and report["running"]) for report in reports)
    return (HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE), HealthReport(ok=ok, workers=reports)


def _report(worker: Worker) -> WorkerReport:
    health = worker.health()
    return WorkerReport(
        queues=list(worker.queues),
        ok=health.ok,
        running=health.running,
        last_claim=None if health.last_claim is None else health.last_claim.isoformat(),
        last_error=None if health.last_error is None else type(health.last_error).__name__,
    )


def _report_death(task: "asyncio.Task[None]") -> None:
    if task.cancelled():
        _log.warning("%s was cancelled: this process takes no more jobs", task.get_name())
    elif (error := task.exception()) is not None:
        _log.error("%s died: this process takes no more jobs", task.get_name(), exc_info=error)


async def _close(queue: Queue) -> None:
    """Close it even where the host is being cancelled: a store's thread or connection would stay behind."""
    with anyio.CancelScope(shield=True):  # its length has a bound: CALL-1
        await queue.aclose()
