"""What a file store makes of files that nobody could have written, and of a disk that takes no more."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.file_hand import Hand

from aqueue import Delivery, MalformedJobSettled, Queue, connect
from aqueue.backends.file.content import job_bytes
from aqueue.port import Message
from aqueue.testing.contract.samples import Note, envelope, job_id


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def url(root: Path) -> str:
    return f"file://{root}"


async def pop_all(queue: Queue) -> tuple[list[Delivery], list[str]]:
    """Pop until nothing is left; return what came, and the ids of what was set aside."""
    taken: list[Delivery] = []
    aside: list[str] = []
    async with asyncio.timeout(30):
        while await queue.size():
            try:
                taken += await queue.pop_now(20)
            except MalformedJobSettled as error:
                aside += error.job_ids
    return taken, aside


# -- damaged files --------------------------------------------------------------------------------------


@pytest.mark.rule("MAL-1")
async def test_a_file_cut_short_at_any_byte_is_set_aside_and_the_others_are_served(
    root: Path, url: str
) -> None:
    """Case O-37: as a power failure may leave it where nothing was synced."""
    whole = job_bytes(envelope(job_id(1)))
    hand = Hand(root)
    for length in range(len(whole)):
        hand.push(Message(job_id(length), "default", b"to be cut"))
        cut(root, job_id(length), whole[:length])
    hand.close()

    async with connect(url) as queue:
        good = await queue.push(Note("good"))
        taken, aside = await pop_all(queue)

        assert [delivery.id for delivery in taken] == [good]
        assert sorted(aside) == sorted(job_id(length) for length in range(len(whole)))
        failed = {record.id: record for record in await queue.failed.list(limit=1000)}
        assert {id: record.payload for id, record in failed.items()} == {
            job_id(length): whole[:length] for length in range(len(whole))
        }
        assert {record.reason for record in failed.values()} == {"malformed"}


def cut(root: Path, id: str, data: bytes) -> None:
    """Write over a job's file, which keeps its names."""
    (root / "queues/default/ids" / id).write_bytes(data)


@pytest.mark.rule("MAL-1")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data + b"\0" * 512,
        lambda data: b"\0" * len(data),
        lambda data: data[:-20] + b"\0" * 20,
        lambda data: data.replace(b"aqueue-job 1", b"aqueue-job 2"),
        lambda data: data[:-1] + b"!",
        lambda data: data.partition(b"\n")[2],
    ],
    ids=["a tail of zeros", "all zeros", "zeros at the end", "another format", "one byte", "no header"],
)
async def test_bytes_that_are_not_what_was_pushed_never_run(
    root: Path, url: str, spoil: Callable[[bytes], bytes]
) -> None:
    async with connect(url) as queue:
        id = await queue.push(Note("spoilt"))
        path = root / "queues/default/ids" / id
        spoilt = spoil(path.read_bytes())
        path.write_bytes(spoilt)

        _, aside = await pop_all(queue)

        assert aside == [id]
        record = await queue.failed.get(id)
        assert record is not None
        assert record.payload == spoilt


def as_file(path: Path) -> None:
    path.write_bytes(b"garbage")


def as_directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_dangling_link(path: Path) -> None:
    path.symlink_to("/nowhere")


def as_link_elsewhere(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.rule("MAL-1", "LEASE-2")
@pytest.mark.parametrize(
    "make",
    [as_file, as_directory, as_pipe, as_dangling_link, as_link_elsewhere],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize(
    "place",
    [
        "waiting/ready/0000000000000",
        "waiting/returned",
        "waiting/delayed/00000000000000001",
        "leased/00000000000000001",
    ],
)
@pytest.mark.parametrize("name", ["notes.txt", "0" * 17 + "-x", "x" * 200])
async def test_what_somebody_put_among_the_jobs_is_set_aside(
    root: Path, url: str, make: Callable[[Path], None], place: str, name: str
) -> None:
    async with connect(url) as queue:
        await queue.push(Note("first"))
        directory = root / "queues/default" / place
        directory.mkdir(parents=True, exist_ok=True)
        make(directory / name)

        taken, aside = await pop_all(queue)
        for delivery in taken:
            await queue.ack(delivery)

        assert len(taken) == len(aside) == 1
        assert await queue.failed.count() == 1
        assert not os.path.lexists(directory / name)
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.leased) == (0, 0, 0)


@pytest.mark.rule("MAL-1")
async def test_counters_that_nobody_could_have_counted_are_unreadable(root: Path, url: str) -> None:
    async with connect(url) as queue:
        id = await queue.push(Note("x"))
        [path] = (root / "queues/default/waiting/ready").glob("*/*")
        seq, name, _, lost, since = path.name.split("-")
        path.rename(path.with_name(f"{seq}-{name}-99999999999-{lost}-{since}"))

        _, aside = await pop_all(queue)

        assert len(aside) == 1
        assert await queue.failed.get(id) is None
        assert await queue.failed.count() == 1


async def test_hidden_files_are_nobodys_business(root: Path, url: str) -> None:
    async with connect(url) as queue:
        await queue.push(Note("x"))
        for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            (directory / ".nfs0001").write_bytes(b"")

        taken, aside = await pop_all(queue)

        assert (len(taken), aside) == (1, [])
        await queue.clear("default")


# -- lost halves ----------------------------------------------------------------------------------------


@pytest.mark.rule("LEASE-2", "SIZE-1")
@pytest.mark.parametrize("what", ["state", "ids", "waiting/delayed", "failed-ids"])
async def test_a_queue_that_lost_a_part_goes_on_with_the_rest(root: Path, url: str, what: str) -> None:
    """Case O-13: whichever of two facts is gone, the jobs that are left run and the counts are true."""
    async with connect(url) as queue:
        await queue.push_many([Note("a"), Note("b")])
        await queue.push(Note("later"), delay=600)
        await queue.fail(await one_of(queue))
    gone = root / "queues/default" / what
    if gone.is_dir():
        for path in sorted(gone.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    else:
        gone.unlink()

    async with connect(url) as queue:
        await queue.ack(await one_of(queue))
        await queue.push(Note("c"))
        await queue.ack(await one_of(queue))

        stats = await queue.stats()
        assert (stats.ready, stats.leased) == (0, 0)
        assert stats.delayed == (0 if what == "waiting/delayed" else 1)
        assert await queue.failed.count() == 1


async def one_of(queue: Queue) -> Delivery:
    delivery = await queue.pop(timeout=10)
    assert delivery is not None
    return delivery


@pytest.mark.rule("FAIL-2")
async def test_a_damaged_record_hides_no_other_and_can_be_discarded(root: Path, url: str) -> None:
    async with connect(url) as queue:
        for number in range(3):
            await queue.push(Note(str(number)))
            await queue.fail(await one_of(queue))
        [_, damaged, _] = await queue.failed.list()
        (root / "queues/default/failed-ids" / damaged.id).write_bytes(b"damaged")

        shown = await queue.failed.list()

        assert [(found.id, found.reason) for found in shown] == [
            (shown[0].id, "error"),
            (damaged.id, "malformed"),
            (shown[2].id, "error"),
        ]
        found = await queue.failed.get(damaged.id)
        assert found is not None
        assert (found.payload, found.failed_at) == (b"damaged", damaged.failed_at)
        assert await queue.failed.discard(damaged.id)
        assert await queue.failed.count() == 2


@pytest.mark.rule("NOTE-1")
async def test_a_damaged_note_is_no_note(root: Path, url: str) -> None:
    async with connect(url) as queue:
        assert await queue.notes.write("default", "key", b"x" * 100, expected="")
        path = root / "queues/default/notes/kkey"
        path.write_bytes(path.read_bytes()[:-1])

        assert (await queue.notes.read("default", "key")).token == ""

        assert await queue.notes.write("default", "key", b"y", expected="")


# -- a disk that takes no more --------------------------------------------------------------------------

FULL = """
import asyncio, resource, sys
from aqueue import PushManyError, StoreRefused, connect, job

@job(name="contract.note")
class Note:
    text: str

async def main():
    async with connect(sys.argv[1]) as queue:
        await queue.push(Note("small"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        for push in (
            lambda: queue.push(Note("x" * 50_000)),
            lambda: queue.push_many([Note("small"), Note("x" * 50_000)]),
        ):
            try:
                await push()
            except StoreRefused as error:
                print(error)
            except PushManyError as error:
                print(*error.outcomes)
        await queue.push(Note("small too"))
        print(await queue.size())

asyncio.run(main())
"""

READ_ONLY = """
import asyncio, os, sys
from aqueue import ConnectionFailed, PushManyError, StoreRefused, connect, job

@job(name="contract.note")
class Note:
    text: str

def give_up_rights():
    if os.geteuid() == 0:
        os.setuid(65534)

async def main():
    if sys.argv[2] == "closed":
        queue = connect(sys.argv[1])  # imports what it needs, from where the rights may be needed as well
        give_up_rights()
        try:
            await queue.open()
        except ConnectionFailed as error:
            print(error)
        return
    async with connect(sys.argv[1]) as queue:
        delivery = await queue.pop(timeout=10)
        give_up_rights()
        for call in (
            lambda: queue.push(Note("a")),
            lambda: queue.push_many([Note("a"), Note("b")]),
            lambda: queue.ack(delivery),
            lambda: queue.fail(delivery),
            lambda: queue.release(delivery),
            lambda: queue.clear("default"),
            lambda: queue.pop_now(1),
        ):
            try:
                print("not refused", await call())
            except StoreRefused as error:
                print(error)
            except PushManyError as error:
                print(*error.outcomes)

asyncio.run(main())
"""


async def run(script: str, *arguments: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().splitlines()


@pytest.mark.rule("PUSH-4", "PUSH-7")
async def test_a_file_that_may_not_grow_refuses_the_push_and_nothing_else(url: str) -> None:
    first, second, size = await run(FULL, url)

    assert "was refused: File too large" in first
    assert "File too large" in second
    assert size == "2"
    async with connect(url) as queue:
        taken, aside = await pop_all(queue)
        assert ([delivery.args["text"] for delivery in taken], aside) == (["small", "small too"], [])


@pytest.fixture
def writable_by_its_owner() -> Iterator[Path]:
    """A directory that anybody reaches, and that only who made it may write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.rule("PUSH-4")
async def test_a_directory_that_may_not_be_written_is_refused_and_left_as_it_is(
    writable_by_its_owner: Path,
) -> None:
    url = f"file://{writable_by_its_owner}/jobs"
    async with connect(url) as queue:
        ids = await queue.push_many([Note("a"), Note("b")])
    if os.geteuid() != 0:
        (writable_by_its_owner / "jobs").chmod(0o555)

    opened = await run(READ_ONLY, url, "closed")

    assert len(opened) == 1
    assert "Permission denied" in opened[0]
    (writable_by_its_owner / "jobs").chmod(0o755)
    async with connect(url) as queue:
        taken, _ = await pop_all(queue)
        assert [delivery.id for delivery in taken] == ids


@pytest.mark.rule("PUSH-4", "FENCE-1")
async def test_a_process_that_loses_its_rights_is_refused_and_loses_nothing(
    writable_by_its_owner: Path,
) -> None:
    if os.geteuid() != 0:
        return  # only the superuser can give rights up
    url = f"file://{writable_by_its_owner}/jobs"
    async with connect(url) as queue:
        ids = await queue.push_many([Note("a"), Note("b")])

    said = await run(READ_ONLY, url, "open")

    assert len(said) == 7
    assert [line for line in said if "Permission denied" not in line] == []
    async with connect(url) as queue:
        stats = await queue.stats()
        assert (stats.ready, stats.leased) == (1, 1)
        [delivery] = await queue.pop_now(5)
        assert delivery.id == ids[1]
