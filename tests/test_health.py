"""Life signs: a health that is tied to progress, a file for probes, and pauses that don't herd (WORK-8)."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support import fixtures
from support.commands import answer, refusal, run
from support.fixtures import Place
from support.servers import program
from support.stores import Wrapper
from support.working import running

from aqueue import Handlers, InvalidQueueArgument, Queue, Worker, job
from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.heartbeat import Beat, heartbeat, read_beat, trouble_of
from aqueue.outage import Outages
from aqueue.testing import eventually, in_virtual_time

place, memory = fixtures.place, fixtures.memory
pytestmark = pytest.mark.rule("WORK-8")


@job(name="health.note")
class Note:
    text: str = ""


def handled_by(gate: asyncio.Event) -> Handlers:
    handlers = Handlers()

    async def handle(note: Note) -> None:
        await gate.wait()

    handlers.on(Note, handle)
    return handlers


async def test_a_worker_whose_slots_are_all_taken_is_busy_and_well_though_it_claims_nothing(
    place: Place,
) -> None:
    queue, _ = await place.broken()
    gate = asyncio.Event()
    worker = Worker(queue, handled_by(gate), concurrency=2)
    assert not worker.health().busy

    async with running(worker):
        await queue.push_many([Note(), Note()])
        await eventually(lambda: worker.health().busy)
        assert worker.health().ok
        gate.set()
        await eventually(lambda: not worker.health().busy)


async def test_the_file_follows_the_claims_and_goes_with_the_worker(memory: Place, tmp_path: Path) -> None:
    queue, store = await memory.broken()
    path = tmp_path / "health"
    worker = Worker(queue, handled_by(asyncio.Event()), poll_timeout=0.1, name="w")

    async with heartbeat(worker, path, every=0.05), running(worker):
        first = read_beat(path)
        assert (first.worker, first.pid) == ("w", os.getpid())
        await eventually(lambda: read_beat(path).progress > first.progress)

        store.break_down("pop")
        await eventually(lambda: not read_beat(path).ok)
        stuck = read_beat(path)
        await eventually(lambda: read_beat(path).at > stuck.at)
        assert read_beat(path).progress == stuck.progress

        store.recover()
        await eventually(lambda: read_beat(path).progress > stuck.progress, timeout=20)
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []


async def test_a_busy_worker_is_getting_on(memory: Place, tmp_path: Path) -> None:
    queue, _ = await memory.broken()
    path, gate = tmp_path / "health", asyncio.Event()
    worker = Worker(queue, handled_by(gate), concurrency=1)

    async with heartbeat(worker, path, every=0.05), running(worker):
        await queue.push(Note())
        await eventually(lambda: worker.health().busy)
        taken = read_beat(path).progress
        await eventually(lambda: read_beat(path).progress > taken)
        gate.set()


async def test_a_file_that_cannot_be_written_is_refused_at_once(memory: Place, tmp_path: Path) -> None:
    queue, _ = await memory.broken()
    worker = Worker(queue, handled_by(asyncio.Event()))

    with pytest.raises(InvalidQueueArgument, match="health file"):
        async with heartbeat(worker, tmp_path / "nowhere" / "health"):
            pass


@pytest.mark.parametrize(
    ("at", "progress", "tolerates", "trouble"),
    [
        (0, 0, False, None),
        (59, 59, False, None),
        (61, 61, False, "no sign of life"),
        (61, 61, True, "no sign of life"),
        (1, 61, False, "no pop of its was answered for 61 s"),
        (1, 61, True, None),
    ],
)
def test_what_the_last_sign_of_life_means(
    at: float, progress: float, tolerates: bool, trouble: str | None
) -> None:
    beat = Beat(worker="w", pid=1, at=1000 - at, progress=1000 - progress, ok=True)

    told = trouble_of(beat, 1000, max_age=60, tolerate_outages=tolerates)

    assert (told is None) if trouble is None else (told is not None and trouble in told)


# the commands


def write(path: Path, *, age: float, progress_age: float) -> None:
    now = time.time()
    beat = f'{{"worker": "w", "pid": 7, "at": {now - age}, "progress": {now - progress_age}, "ok": true}}'
    path.write_text(beat)


@pytest.mark.rule("CLI-1")
def test_a_probe_asks_the_file(tmp_path: Path) -> None:
    path = tmp_path / "health"
    write(path, age=1, progress_age=100)

    assert run("health", str(path), "--max-age", "200").stdout == "worker w is well\n"
    assert "no pop" in refusal("health", str(path), status=1)
    assert run("health", str(path), "--tolerate-outages").exit_code == 0
    told = answer("health", str(path), "--max-age", "200")
    assert isinstance(told, dict)
    assert (told["ok"], told["worker"], told["pid"]) == (True, "w", 7)
    assert told["progress_age"] == pytest.approx(100, abs=60)


@pytest.mark.rule("CLI-1")
def test_no_file_or_a_strangers_is_not_well(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("hello")

    assert "no worker keeps" in refusal("health", str(tmp_path / "none"), status=1)
    assert "not a worker's" in refusal("health", str(tmp_path / "other"), status=1)
    assert "max-age" in refusal("health", str(tmp_path / "other"), "--max-age", "0", status=2)


JOBS = """
import aqueue

@aqueue.job
class Nothing:
    async def handle(self) -> None: ...

worker = aqueue.Worker(aqueue.connect("memory://health"), [Nothing], name="probed")
"""


@pytest.mark.rule("CLI-1", "STOP-2")
async def test_a_worker_of_the_command_line_keeps_its_file_until_it_stops(tmp_path: Path) -> None:
    (tmp_path / "probed_jobs.py").write_text(JOBS)
    path = tmp_path / "health"

    with program(
        "aqueue", "worker", "probed_jobs:worker", "--health-file", str(path), env={}, log=tmp_path / "log"
    ) as worker:
        await worker.has_printed("takes jobs from")
        await eventually(path.exists, timeout=20)
        assert run("health", str(path)).exit_code == 0
        assert read_beat(path).worker == "probed"
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    assert not path.exists()


# many workers, one outage


@pytest.mark.parametrize("tries", [3, 6, 12])
def test_pauses_are_spread_over_their_whole_length(tries: int) -> None:
    """Full jitter: of 400 workers after the same number of tries, no twentieth of the pause holds a crowd."""
    random.seed(tries)
    pauses = [pause_after(tries) for _ in range(400)]

    longest = min(0.2 * 2 ** (tries - 1), 5.0)
    crowds = Counter(int(20 * pause / longest) for pause in pauses)
    assert max(pauses) <= longest
    assert max(crowds.values()) < 60


def pause_after(tries: int) -> float:
    outages = Outages()
    for _ in range(tries - 1):
        outages.failed(ConnectionError("gone"))
    return outages.failed(ConnectionError("gone"))


@in_virtual_time
async def test_workers_that_lost_one_store_do_not_come_back_to_it_at_once() -> None:
    """Forty of them, a minute without it: it is not the same half second in which they find it again."""
    backend = Wrapper(MemoryBackend(Shelf(), lease=60.0, clock=time.time))
    async with Queue(backend) as queue:
        workers = [Worker(queue, handled_by(asyncio.Event())) for _ in range(40)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await asyncio.sleep(1)
        backend.break_down("pop", "wait")
        await asyncio.sleep(60)
        assert not any(worker.health().ok for worker in workers)

        backend.recover()
        came: Counter[int] = Counter()
        for half_second in range(12):
            before = sum(worker.health().ok for worker in workers)
            await asyncio.sleep(0.5)
            came[half_second] = sum(worker.health().ok for worker in workers) - before

        assert all(worker.health().ok for worker in workers)
        assert max(came.values()) < 16, came
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
