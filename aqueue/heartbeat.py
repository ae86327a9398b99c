"""A worker's life signs in a file, for who can only look from outside: a container's probe (WORK-8).

The file is replaced as a whole every few seconds for as long as the event loop turns, and says when the
worker last got on: when a pop was last answered, or now while every slot has a job and none is asked for.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from aqueue.errors import InvalidQueueArgument
from aqueue.events import log_quietly
from aqueue.worker import Worker

_EVERY = 5.0


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says: when it was written, and when the worker last got on, in seconds since 1970."""

    worker: str
    pid: int
    at: float
    progress: float
    ok: bool


@asynccontextmanager
async def heartbeat(
    worker: Worker, path: str | os.PathLike[str], *, every: float = _EVERY
) -> AsyncIterator[None]:
    """Keep the file up to date every so many seconds while the block lasts, then remove it.

    Enter it around `worker.run()`. Raises `InvalidQueueArgument` where the file can't be written at first;
    later that is logged, and the file grows old.
    """
    place = Path(path)
    began = time.time()
    try:
        await _write(place, _beat(worker, began))
    except OSError as error:
        raise InvalidQueueArgument(f"can't write the health file {place}: {error.strerror}") from error
    beating = asyncio.create_task(_keep(worker, place, began, every), name="aqueue heartbeat")
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait({beating})
        _remove(place)


def read_beat(path: str | os.PathLike[str]) -> Beat:
    """Return what the file says; raises `InvalidQueueArgument` where there is none, or a stranger's."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Beat)
    except OSError as error:
        raise InvalidQueueArgument(f"no worker keeps {os.fspath(path)}: {error.strerror}") from None
    except msgspec.MsgspecError:
        raise InvalidQueueArgument(f"{os.fspath(path)} is not a worker's health file") from None


def trouble_of(beat: Beat, now: float, *, max_age: float, tolerate_outages: bool) -> str | None:
    """Return what is wrong with a worker by its last sign of life, None if nothing is.

    With `tolerate_outages` it is enough that it lives: restarting it would not bring its store back.
    """
    if now - beat.at > max_age:
        return f"worker {beat.worker} has given no sign of life for {now - beat.at:.0f} s"
    if now - beat.progress > max_age and not tolerate_outages:
        return f"worker {beat.worker} lives, and no pop of its was answered for {now - beat.progress:.0f} s"
    return None


async def _keep(worker: Worker, place: Path, began: float, every: float) -> None:
    is_failing = False
    while True:
        await asyncio.sleep(every)
        try:
            await _write(place, _beat(worker, began))
            is_failing = False
        except OSError as error:
            if not is_failing:
                log_quietly(logging.WARNING, "can't write the health file %s: %s", place, error.strerror)
            is_failing = True


def _beat(worker: Worker, began: float) -> Beat:
    health, now = worker.health(), time.time()
    claimed = health.last_claim.timestamp() if health.last_claim is not None else 0.0
    return Beat(
        worker=worker.name,
        pid=os.getpid(),
        at=now,
        progress=now if health.busy else max(began, claimed),
        ok=health.ok,
    )


async def _write(place: Path, beat: Beat) -> None:
    await asyncio.to_thread(_replace, place, msgspec.json.encode(beat))


def _replace(place: Path, data: bytes) -> None:
    """Put a whole file in its place, so that no probe ever reads half of one."""
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(place)


def _remove(place: Path) -> None:
    with suppress(OSError):
        place.unlink()
