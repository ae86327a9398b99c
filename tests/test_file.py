"""What is the file store's own: its URL, its directory, what is on disk when, its order and its cost."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest
from support.file_hand import Hand, facts, troubles

from aqueue import ConnectionFailed, Delivery, InvalidQueueArgument, Queue, StoreRefused, connect, job
from aqueue.backends.file import state, sweep, timed
from aqueue.backends.file.backend import FileBackend
from aqueue.backends.file.disk import Disk, parent
from aqueue.backends.file.names import SEGMENT, folded, unfolded
from aqueue.backends.file.state import StateFile
from aqueue.port import FailedRecord, Failing, Message, NoteKey, Noting, Releasing, Reserved, Verdict
from aqueue.testing import ManualClock, eventually


@job(name="file.note")
class Note:
    text: str


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def url(root: Path) -> str:
    return f"file://{root}"


def message(number: int, queue: str = "default", *, delay: float = 0.0) -> Message:
    return Message(f"{number:032x}", queue, b"x" * 200, delay)


def record_of(reserved: Reserved) -> FailedRecord:
    return FailedRecord(
        id=reserved.id, name="job", queue=reserved.queue, payload=reserved.payload, attempts=1, lost=0,
        reason="error", delivery=str(reserved.receipt),
    )  # fmt: skip


def numbers(taken: list[Reserved]) -> list[int]:
    return [int(reserved.id, 16) for reserved in taken]


# -- the URL and the directory --------------------------------------------------------------------------


async def test_a_url_names_a_directory_from_the_root_or_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    urls = (f"file://{tmp_path}/one", f"file:///{tmp_path}/two", f"file://localhost{tmp_path}/three")

    for url in (*urls, "file://./four"):
        async with connect(url) as queue:
            await queue.push(Note("a"))

    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["four", "one", "three", "two"]


@pytest.mark.parametrize("url", ["file://", "file:///", "file://jobs", "file://host/jobs", "file://u@./jobs"])
def test_a_url_without_a_directory_is_refused(url: str) -> None:
    with pytest.raises(InvalidQueueArgument, match="file:///absolute"):
        connect(url)


@pytest.mark.parametrize("option", ["fsync=maybe", "sync=full"])
def test_an_unknown_option_or_value_is_refused_with_the_known_ones(option: str) -> None:
    with pytest.raises(InvalidQueueArgument, match=r"full, none|known: fsync"):
        connect(f"file:///jobs?{option}")


async def test_a_directory_is_made_but_not_what_is_above_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidQueueArgument, match="no directory"):
        await connect(f"file://{tmp_path}/absent/jobs").open()


async def test_a_file_in_its_place_is_left_alone(root: Path, url: str) -> None:
    root.write_text("not a directory")

    with pytest.raises(ConnectionFailed):
        await connect(url).open()

    assert root.read_text() == "not a directory"


async def test_a_directory_of_a_newer_aqueue_is_left_alone(root: Path, url: str) -> None:
    async with connect(url):
        (root / "format").write_text("2\n")

    with pytest.raises(StoreRefused, match="upgrade aqueue-jobs"):
        await connect(url).open()

    assert list((root / "writers").iterdir()) == []


async def test_many_open_a_new_directory_at_once_and_leave_nothing_of_their_own(root: Path, url: str) -> None:
    queues = [connect(url) for _ in range(8)]

    await asyncio.gather(*[queue.open() for queue in queues])
    await asyncio.gather(*[queue.push(Note(str(number))) for number, queue in enumerate(queues)])
    sizes = await asyncio.gather(*[queue.size() for queue in queues])
    await asyncio.gather(*[queue.aclose() for queue in queues])

    assert sizes == [8] * 8
    assert list((root / "writers").iterdir()) == []
    assert troubles(root) == []


async def test_a_closed_directory_can_be_moved(root: Path, url: str, tmp_path: Path) -> None:
    async with connect(url) as queue:
        await queue.push(Note("a"))
        await queue.fail(await taken_from(queue))
        await queue.push(Note("b"))
    root.rename(tmp_path / "elsewhere")

    async with connect(f"file://{tmp_path}/elsewhere") as queue:
        assert await queue.failed.retry_all() == 1
        assert await queue.size() == 2


async def taken_from(queue: Queue) -> Delivery:
    delivery = await queue.pop(timeout=10)
    assert delivery is not None
    return delivery


@pytest.mark.rule("NAME-1")
@pytest.mark.parametrize("name", ["mail", "Mail", "MAIL", "a-b_C9", "X" * 80])
def test_queues_that_differ_in_capitals_have_directories_that_differ_in_more(name: str) -> None:
    assert folded(name) == folded(name).lower()
    assert unfolded(folded(name)) == name


@pytest.mark.parametrize("stranger", ["Mail", ".snapshot", "a b", "+", "x" * 161])
def test_a_strangers_directory_is_no_queue(stranger: str) -> None:
    assert unfolded(stranger) is None


async def test_a_job_is_one_file_with_its_bytes(root: Path, url: str) -> None:
    payload = bytes(range(256)) * 3
    with Opened(root) as hand:
        hand.push(Message("a" * 32, "default", payload))
        [home] = (root / "queues/default/waiting/ready").glob("*/*")

        assert home.read_bytes().endswith(payload)
        assert hand.pop()[0].payload == payload


class Opened(Hand):
    """A hand that leaves the directory with its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- on disk --------------------------------------------------------------------------------------------


class WatchedDisk(Disk):
    """A disk that knows which names it has been told to keep, and which it may still lose."""

    def __init__(self, *, syncs: bool = True) -> None:
        super().__init__(syncs=syncs)
        self.steps: Counter[str] = Counter()
        self.at_risk: set[str] = set()
        self.written: set[str] = set()

    def before(self, step: str, path: str) -> None:
        self.steps[step] += 1
        if step == "sync":
            self.at_risk.discard(path)
            self.written.discard(path)
        elif step in {"create", "write"}:
            self.written.add(path)

    def link(self, old: str, new: str) -> None:
        self._check(old, new)
        super().link(old, new)
        self.at_risk.add(parent(new))

    def rename(self, old: str, new: str) -> None:
        self._check(old, new)
        super().rename(old, new)
        self.at_risk.update({parent(old), parent(new)})

    def unlink(self, path: str) -> bool:
        self.written.discard(path)
        removed = super().unlink(path)
        self.at_risk.add(parent(path))
        return removed

    def make_directory(self, path: str) -> bool:
        made = super().make_directory(path)
        if made:
            self.at_risk.add(parent(path))
        return made

    def _check(self, old: str, new: str) -> None:
        is_safe = old not in self.written or not self.syncs
        assert is_safe, f"{new} may be empty after a power failure"

    def lost_with_the_power(self) -> set[str]:
        """Return the directories whose names are not safe, but for those in which nothing has to be."""
        harmless = ("writers", "intents", "waiting/ready", "ids", "failed-ids")
        return {path for path in self.at_risk if not any(f"/{each}" in path for each in harmless)}


@pytest.mark.rule("PUSH-3")
@pytest.mark.parametrize("count", [1, 2, 20])
async def test_a_push_returns_with_the_job_and_its_names_on_disk(root: Path, count: int) -> None:
    disk = WatchedDisk()
    backend = FileBackend(str(root), disk, lease=60.0, clock=time.time)
    await backend.open()

    await backend.push([message(number) for number in range(count)])

    place = f"{root}/queues/default"
    in_the_way = {path for path in disk.at_risk if "/writers" not in path and "/intents" not in path}
    assert disk.written == set()
    assert in_the_way == set()
    assert {path.name for path in Path(place).iterdir()} >= {"ids", "waiting", "state"}
    await backend.aclose()


@pytest.mark.rule("PUSH-3", "REL-1", "FAIL-1", "FAIL-2", "CLEAR-1", "NOTE-1", "NOTE-2")
async def test_whatever_is_answered_is_on_disk(root: Path) -> None:
    disk = WatchedDisk()
    backend = FileBackend(str(root), disk, lease=60.0, clock=time.time)
    await backend.open()
    await backend.push([message(number) for number in range(6)])
    first, second, third, fourth, fifth = await backend.pop(["default"], 5)
    note = Noting(at=NoteKey("default", "k"), value=b"x", token="a" * 32, messages=(message(9),))

    async def safely(change: Awaitable[object]) -> None:
        await change
        assert disk.lost_with_the_power() == set()

    await safely(backend.ack([first]))
    await safely(backend.release([Releasing(second)]))
    await safely(backend.release([Releasing(third, 60.0)]))
    await safely(backend.release([Releasing(fourth, counted=False)]))
    await safely(backend.fail([Failing(fifth, record_of(fifth))]))
    await safely(backend.write_notes([note]))
    again = Noting(at=note.at, value=b"y", token="b" * 32, expected=note.token)
    await safely(backend.write_notes([again]))
    [record] = await backend.failed_page(queue=None, job=None, after=None, limit=1)
    await safely(backend.failed_retry(record, message(4)))
    await safely(backend.clear("default"))
    await backend.aclose()


async def test_fsync_none_leaves_it_to_the_system(root: Path) -> None:
    disk = WatchedDisk(syncs=False)
    backend = FileBackend(str(root), disk, lease=60.0, clock=time.time)
    await backend.open()

    await backend.push([message(1), message(2)])
    await backend.ack(await backend.pop(["default"], 2))
    await backend.aclose()

    assert disk.steps["sync"] == 0
    assert disk.steps["create"] >= 2


@pytest.mark.rule("PUSH-6")
async def test_pushes_that_wait_for_the_disk_share_its_next_turn(root: Path, url: str) -> None:
    disk = WatchedDisk()
    backend = FileBackend(str(root), disk, lease=60.0, clock=time.time)
    await backend.open()
    await backend.push([message(0)])
    before = disk.steps["sync"]

    await asyncio.gather(*[backend.push([message(number)]) for number in range(1, 101)])

    assert disk.steps["sync"] - before < 250, "a hundred pushes alone would have taken four hundred"
    await backend.aclose()


# -- the order of jobs ----------------------------------------------------------------------------------


@pytest.mark.rule("PUSH-6")
def test_jobs_come_first_in_first_out_beyond_one_directory(root: Path) -> None:
    count = 2 * SEGMENT + 10
    with Opened(root) as pusher, Opened(root) as popper:
        for first in range(0, count, 500):
            pusher.push(*[message(number) for number in range(first, min(first + 500, count))])

        taken = [number for _ in range(count) for number in numbers(popper.pop(limit=1))]

        assert taken == list(range(count))


def test_what_is_given_back_keeps_its_place_and_what_is_released_goes_last(root: Path) -> None:
    with Opened(root) as hand, Opened(root) as other:
        hand.push(*[message(number) for number in range(4)])
        a, b, c = hand.pop(limit=3)

        other.release(Releasing(c, counted=False), Releasing(a), Releasing(b, counted=False))

        assert numbers(hand.pop()) == [1, 2, 3, 0]


def test_what_falls_due_goes_to_the_end_in_the_order_of_its_time(root: Path) -> None:
    clock = ManualClock(1_700_000_000.0)
    with Opened(root, clock=clock) as hand:
        hand.push(message(1, delay=30), message(2, delay=10), message(3, delay=20), message(4))
        clock.advance(60)

        assert numbers(hand.pop()) == [4, 2, 3, 1]


def test_a_pushers_old_counter_gives_no_place_before_the_jobs_that_wait(root: Path) -> None:
    """After a power failure the counter may be older than the files."""
    with Opened(root) as hand:
        hand.push(*[message(number) for number in range(5)])
        (root / "queues/default/state").write_bytes(b"")

    with Opened(root) as hand:
        hand.push(message(5))

        assert numbers(hand.pop()) == [0, 1, 2, 3, 4, 5]


# -- what a pop costs -----------------------------------------------------------------------------------


class CountedNames:
    """How many names were read from directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        for module in (sweep, timed):
            monkeypatch.setattr(module, "names_in", self._counted(module.names_in))

    def _counted(self, names_in: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
        def counted(path: str) -> list[str]:
            names = names_in(path)
            self.read += len(names) + 1
            return names

        return counted


@pytest.mark.rule("POP-8")
@pytest.mark.parametrize("batch", [1, 50])
def test_a_directory_is_not_read_for_each_job(
    root: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    count = 3 * SEGMENT
    with Opened(root) as hand:
        for first in range(0, count, 500):
            hand.push(*[message(number) for number in range(first, first + 500)])
        names = CountedNames(monkeypatch)

        while taken := hand.pop(limit=batch):
            hand.ack(*taken)

        assert names.read < 4 * count + 10 * count // batch


@pytest.mark.rule("POP-8", "DELAY-1")
def test_jobs_that_wait_for_their_time_cost_a_pop_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(1_700_000_000.0)
    with Opened(root, clock=clock) as hand:
        hand.push(*[message(number, delay=86_400.0 + number) for number in range(2_000)])
        hand.push(*[message(number) for number in range(5_000, 5_200)])
        settle(root / "queues/default/waiting/delayed")
        hand.pop(limit=1)
        names = CountedNames(monkeypatch)

        for _ in range(100):
            hand.pop(limit=1)

        assert names.read < 1_000


def settle(directory: Path) -> None:
    """Let a directory look as if it had been changed a while ago."""
    os.utime(directory, (time.time() - 10,) * 2)


@pytest.mark.rule("POP-7")
async def test_an_idle_store_reads_its_counters_and_no_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(url) as queue:
        await queue.push(Note("a"))
        await queue.ack(await taken_from(queue))
        assert await queue.pop(timeout=0.1) is None
        names = CountedNames(monkeypatch)

        assert await queue.pop(timeout=1.5) is None

        assert names.read < 100


def test_a_drained_queue_leaves_next_to_nothing(root: Path) -> None:
    clock = ManualClock(1_700_000_000.0)
    with Opened(root, clock=clock) as hand:
        for first in range(0, 2_500, 500):
            hand.push(*[message(number) for number in range(first, first + 500)])
        while taken := hand.pop():
            hand.ack(*taken)
            clock.advance(1)
        clock.advance(100)
        hand.pop()

        left = [path for path in (root / "queues").rglob("*") if path.name != "state"]

        assert facts(root) == {}
        assert [path for path in left if path.is_file()] == []
        assert len(left) < 15


# -- locks ----------------------------------------------------------------------------------------------


@pytest.mark.rule("PUSH-4", "POP-5")
async def test_a_lock_that_is_never_given_back_hinders_changes_and_no_pop(
    root: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "PATIENCE", 0.2)
    async with connect(url) as queue:
        await queue.push(Note("a"))
        lock = StateFile(str(root / "queues/default/state"), Disk(syncs=False))
        lock.lock(lambda: False)

        with pytest.raises(ConnectionFailed, match="locked"):
            await queue.push(Note("b"))
        assert await queue.push(Note("c"), queue="another")
        delivery = await queue.pop_now(1)
        with pytest.raises(ConnectionFailed):
            await queue.ack(delivery[0])
        lock.close()

        await queue.ack(delivery[0])
        assert await queue.size() == 0


@pytest.mark.rule("CALL-1")
async def test_closing_waits_for_no_lock(root: Path, url: str) -> None:
    queue = connect(url)
    await queue.open()
    await queue.push(Note("a"))
    lock = StateFile(str(root / "queues/default/state"), Disk(syncs=False))
    lock.lock(lambda: False)
    backend = queue._store.backend
    pushing = asyncio.create_task(backend.push([message(1)]))
    await asyncio.sleep(0)

    began = time.monotonic()
    await backend.aclose()

    assert time.monotonic() - began < 4.5, "it waited for as long as a call may"
    await asyncio.wait({pushing})
    lock.close()
    await queue.aclose()


@pytest.mark.rule("LEASE-2")
async def test_a_pop_finishes_what_the_dead_left_and_nobody_else_has_touched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsettled queue is looked after by an idle worker, too."""
    monkeypatch.setattr(sweep, "_LONG_BUSY", 0.05)
    with Opened(root) as hand:
        hand.push(message(1))
        counters = StateFile(str(root / "queues/default/state"), Disk(syncs=False))
        counters.store(counters.counters()._replace(busy=7))
        hand.ack(*hand.pop())
        counters.store(counters.counters()._replace(busy=7))

        async def settled() -> bool:
            hand.pop()
            return counters.counters().is_settled

        await eventually(settled)
        counters.close()


# -- receipts -------------------------------------------------------------------------------------------


@pytest.mark.rule("FENCE-1", "LEASE-3")
def test_a_lease_that_another_connection_renewed_is_found_by_its_token(root: Path) -> None:
    with Opened(root) as one, Opened(root, lease=300.0) as two:
        one.push(message(1), message(2))
        first, second = one.pop()
        assert two.extend(first, second) == [Verdict.SETTLED] * 2

        assert one.ack(first) == [Verdict.SETTLED]
        assert one.release(Releasing(second, 10.0)) == [Verdict.SETTLED]

        assert one.ack(first, second) == [Verdict.STALE] * 2


@pytest.mark.rule("FENCE-1")
def test_a_job_whose_file_was_removed_is_nobodys(root: Path) -> None:
    with Opened(root) as hand:
        hand.push(message(1))
        [reserved] = hand.pop()
        [path] = (root / "queues/default/leased").glob("*/*")
        path.unlink()

        assert hand.ack(reserved) == [Verdict.STALE]
        assert hand.fail(Failing(reserved, record_of(reserved))) == [Verdict.STALE]

        hand.push(message(1))
        assert numbers(hand.pop()) == [1]


@pytest.mark.rule("FENCE-1")
@pytest.mark.parametrize("receipt", [None, "token", 7, ("token", "queues/default/state")])
def test_a_receipt_of_another_store_settles_nothing(root: Path, receipt: object) -> None:
    with Opened(root) as hand:
        hand.push(message(1))
        [reserved] = hand.pop()
        strange = Reserved(reserved.id, reserved.queue, reserved.payload, receipt, 1)

        assert hand.ack(strange) == [Verdict.STALE]

        assert hand.ack(reserved) == [Verdict.SETTLED]


# -- notes ----------------------------------------------------------------------------------------------


@pytest.mark.rule("NOTE-1")
def test_notes_whose_time_is_over_are_removed_in_time(root: Path) -> None:
    clock = ManualClock(1_700_000_000.0)
    with Opened(root, clock=clock) as hand:
        for number in range(30):
            hand.write_notes(noting(f"short-{number}", number, seconds=5.0))
        hand.write_notes(noting("long", 99))
        clock.advance(10)
        hand.directory.rounds.clear()

        hand.write_notes(noting("a", 100))
        hand.write_notes(noting("b", 101))

        names = {path.name for path in (root / "queues/default/notes").iterdir()}
        assert names == {"klong", "ka", "kb"}


def noting(key: str, number: int, *, seconds: float | None = None) -> Noting:
    return Noting(at=NoteKey("default", key), value=b"x", token=f"{number:032x}", seconds=seconds)
