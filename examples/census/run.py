"""The driver: it finds the files, pushes a job for each, and watches until every one is accounted for."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aqueue import FailedJob, Queue
from examples.census.jobs import NAME, QUEUE, MeasureFile
from examples.census.ledger import Ledger
from examples.census.process import WorkerProcess
from examples.census.settings import Settings
from examples.census.view import Progress, View

_PUSHERS = 100
_LOOK_EVERY = 0.25
_GIVE_UP_AFTER = 60.0
_INSTALLED_LATER = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a census ended: complete if no file is `missing`."""

    last: Progress
    push_seconds: float
    failed: Sequence[FailedJob]
    missing: Sequence[str]


def find_files(root: Path) -> list[str]:
    """Return every Python file of the tree but those of packages that were installed into it."""
    paths = root.rglob("*.py")
    return sorted(str(path) for path in paths if _INSTALLED_LATER.isdisjoint(path.relative_to(root).parts))


async def take_census(
    settings: Settings, root: Path, files: Sequence[str], worker: WorkerProcess, view: View
) -> Result:
    """Measure the files with the worker's help, going on with a census that was cut short."""
    ledger = settings.ledger()
    async with settings.connect() as queue:
        await queue.migrate()
        census = Census(queue, ledger, await _begin(queue, ledger, _place(settings, root), view), files)
        return await census.take(worker, view)


class Census:
    """One count of one tree of files. Its results and its queue outlive it; it can be taken up again."""

    def __init__(self, queue: Queue, ledger: Ledger, id: str, files: Sequence[str]) -> None:
        self._queue = queue
        self._ledger = ledger
        self._id = id
        self._files = files
        self._handled_before = 0
        self._pushed = 0
        self._push_seconds = 0.0
        self._started = time.monotonic()

    async def take(self, worker: WorkerProcess, view: View) -> Result:
        self._handled_before = (await self._look()).handled
        async with asyncio.TaskGroup() as group:
            group.create_task(self._push_all(await self._missing()))
            last = await self._watch(worker, view)
        missing = await self._missing()
        if not missing:
            self._ledger.finish(self._id)
        return Result(
            last=last,
            push_seconds=self._push_seconds,
            failed=[job async for job in _failed(self._queue, self._id)],
            missing=missing,
        )

    async def _push_all(self, paths: Sequence[str]) -> None:
        """Many tasks push at once, so their jobs travel together: one commit stores many."""
        started = time.monotonic()
        left = iter(paths)
        async with asyncio.TaskGroup() as group:
            for _ in range(_PUSHERS):
                group.create_task(self._push_from(left))
        self._push_seconds = time.monotonic() - started

    async def _push_from(self, left: Iterator[str]) -> None:
        for path in left:
            await self._queue.push(MeasureFile(self._id, path), id=self._job_id(path))
            self._pushed += 1

    def _job_id(self, path: str) -> str | None:
        """With an id of its own making a push is safe to repeat: what still waits is not stored twice."""
        if not self._queue.capabilities.idempotent_push:
            return None
        return hashlib.sha256(f"{self._id} {path}".encode()).hexdigest()[:32]

    async def _watch(self, worker: WorkerProcess, view: View) -> Progress:
        """Show how it goes until every file is accounted for, or until nothing has moved for too long."""
        moved_at, moved_from = time.monotonic(), -1
        while True:
            if worker.replace_if_killed():
                view.say(f"the worker was killed; process {worker.pid} takes its place")
            progress = await self._look()
            view.show(progress)
            if progress.handled >= len(self._files) and not await self._missing():
                return progress
            if progress.handled != moved_from:
                moved_at, moved_from = time.monotonic(), progress.handled
            if time.monotonic() - moved_at > _GIVE_UP_AFTER:
                return progress
            await asyncio.sleep(_LOOK_EVERY)

    async def _look(self) -> Progress:
        totals = await asyncio.to_thread(self._ledger.totals, self._id)
        stats = await self._queue.stats(QUEUE)
        return Progress(
            found=len(self._files),
            pushed=self._pushed,
            waiting=stats.ready + stats.delayed,
            running=stats.leased,
            failed=await self._queue.failed.count(queue=QUEUE, job=NAME),
            totals=totals,
            seconds=time.monotonic() - self._started,
            handled_before=self._handled_before,
        )

    async def _missing(self) -> list[str]:
        """Return the files that are neither measured nor in the failed store."""
        done = await asyncio.to_thread(self._ledger.measured, self._id)
        done |= {_path(job) async for job in _failed(self._queue, self._id)}
        return [path for path in self._files if path not in done]


async def _begin(queue: Queue, ledger: Ledger, place: str, view: View) -> str:
    """Return the id of the census that was cut short here, or of a new one."""
    unfinished = ledger.unfinished(place)
    if unfinished is not None:
        view.say(f"going on with census {unfinished}, which was cut short")
        return unfinished
    async for job in _failed(queue):
        await queue.failed.discard(job.id)
    census = secrets.token_hex(4)
    ledger.begin(census, place)
    view.say(f"this is census {census}")
    return census


def _place(settings: Settings, root: Path) -> str:
    """Return what a census can be taken up by: its tree and queue; hashed, since URLs hold secrets."""
    return hashlib.sha256(f"{settings.url} {root}".encode()).hexdigest()


async def _failed(queue: Queue, census: str | None = None) -> AsyncIterator[FailedJob]:
    """Give each failed job of this census, or of all of them, page by page."""
    after = None
    while page := await queue.failed.list(queue=QUEUE, job=NAME, after=after):
        for job in page:
            if census is None or (job.args or {}).get("census") == census:
                yield job
        after = page[-1].id


def _path(job: FailedJob) -> str:
    return str((job.args or {}).get("path"))
