"""`queue.keys`: what is counted, twice where it matters, and where it can't be (SIGN-3)."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
import telemetry_sdk
from support.stores import Wrapper
from telemetry_sdk import Seen

import aqueue
from aqueue import KeyInUse, Keyring, KeyUse
from aqueue.backends._shelf import Shelf
from aqueue.backends.memory import MemoryBackend
from aqueue.port import Held, Message
from aqueue.queue import Queue, QueueOptions

pytestmark = pytest.mark.rule("SIGN-3")

seen = telemetry_sdk.seen

OLD = Keyring(active="old", keys={"old": b"o" * 32})
BOTH = Keyring(active="new", keys={"new": b"n" * 32, "old": b"o" * 32})
NEW = Keyring(active="new", keys={"new": b"n" * 32})


@aqueue.job(name="keys.note")
class Note:
    text: str = ""

    async def handle(self) -> None:
        raise AssertionError("what isn't proved doesn't run")


class Counted(MemoryBackend):
    """A memory store in which something happens before the n-th time that its queues are named."""

    def __init__(self, before: dict[int, Message]) -> None:
        super().__init__(Shelf(), lease=60.0, clock=time.time)
        self._before = before
        self.counts = 0
        self.heads: set[int | None] = set()

    async def queues(self) -> Sequence[str]:
        self.counts += 1
        if self.counts in self._before:
            await self.push([self._before[self.counts]])
        return await super().queues()

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        self.heads.add(head)
        return await super().browse(queue, after=after, limit=limit, head=head)


def sealed(ring: Keyring, queue: str = "default") -> Message:
    return Message(uuid4().hex, queue, ring.seal(b"{}"))


@pytest.mark.parametrize("moment", [1, 2])
async def test_a_writer_that_still_uses_the_key_is_noticed_by_either_count(moment: int) -> None:
    store = Counted({moment: sealed(OLD, "stale-writers")})

    async with Queue(store, QueueOptions(keyring=BOTH)) as queue:
        with pytest.raises(KeyInUse, match="1 job is sealed by 'old'") as caught:
            await queue.keys.retire("old")

    assert caught.value.counts == {"waiting": 1, "delayed": 0, "leased": 0, "failed": 0}
    assert store.counts == moment


async def test_what_is_retired_was_counted_twice_just_before() -> None:
    store = Counted({3: sealed(OLD)})

    async with Queue(store, QueueOptions(keyring=BOTH)) as queue:
        await queue.push(Note())
        await queue.keys.retire("old")

    assert store.counts == 2


async def test_counting_reads_no_more_of_a_job_than_its_head() -> None:
    store = Counted({})

    async with Queue(store, QueueOptions(keyring=OLD)) as queue:
        await queue.push(Note("x" * 100_000))
        assert (await queue.keys.inventory())["old"] == KeyUse(waiting=1)

    assert store.heads == {37}


async def test_any_number_of_jobs_is_counted_page_by_page() -> None:
    async with aqueue.connect("memory://", keyring=OLD) as queue:
        await queue.push_many([Note(str(number)) for number in range(1_203)])
        for delivery in await queue.pop_many(450):
            await queue.fail(delivery)

        assert (await queue.keys.inventory())["old"] == KeyUse(waiting=753, failed=450)


async def test_the_longest_key_id_is_read_whole() -> None:
    ring = Keyring(active="k" * 32, keys={"k" * 32: b"k" * 32})

    async with aqueue.connect("memory://", keyring=ring) as queue:
        await queue.push(Note())
        assert await queue.keys.inventory() == {"k" * 32: KeyUse(waiting=1), None: KeyUse()}


async def test_failed_jobs_here_and_elsewhere_both_count() -> None:
    here, elsewhere = f"memory://{uuid4().hex}", f"memory://{uuid4().hex}"
    async with (
        aqueue.connect(here, keyring=OLD) as before,
        aqueue.connect(here, keyring=BOTH, failed=elsewhere) as queue,
    ):
        for each in (before, queue):
            await before.push(Note())
            delivery = await each.pop(timeout=5)
            assert delivery is not None
            await each.fail(delivery)

        assert (await queue.keys.inventory())["old"] == KeyUse(failed=2)
        assert (await queue.keys.inventory(["default"]))["old"] == KeyUse(failed=2)
        assert (await queue.keys.inventory(["another"]))["old"] == KeyUse()


async def test_a_key_that_this_queue_does_not_hold_is_counted_as_well() -> None:
    url = f"memory://{uuid4().hex}"
    async with aqueue.connect(url, keyring=OLD) as before, aqueue.connect(url, keyring=NEW) as queue:
        await before.push(Note())

        assert list(await queue.keys.inventory()) == ["new", "old", None]
        with pytest.raises(KeyInUse):
            await queue.keys.retire("old")
        await queue.keys.retire("never-heard-of")


async def test_rolling_back_to_an_older_key_is_counted_in_the_same_way() -> None:
    url = f"memory://{uuid4().hex}"
    back = Keyring(active="old", keys=BOTH.keys)
    async with aqueue.connect(url, keyring=BOTH) as ahead, aqueue.connect(url, keyring=back) as queue:
        await ahead.push(Note())
        with pytest.raises(KeyInUse, match="sealed by 'new'"):
            await queue.keys.retire("new")
        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        await queue.ack(delivery)

        await queue.keys.retire("new")


async def test_a_store_that_shows_nothing_refuses() -> None:
    inner: Any = MemoryBackend(Shelf(), lease=60.0, clock=time.time)

    async with Queue(Wrapper(inner), QueueOptions(keyring=BOTH)) as queue:
        for counting in (queue.keys.inventory(), queue.keys.inventory(["default"]), queue.keys.retire("old")):
            with pytest.raises(aqueue.Unsupported, match="keep every key"):
                await counting


async def test_names_are_checked_before_anything_is_counted() -> None:
    async with aqueue.connect("memory://") as queue:
        with pytest.raises(aqueue.InvalidQueueArgument):
            await queue.keys.inventory(["fine", "not fine"])
        with pytest.raises(aqueue.InvalidQueueArgument):
            await queue.keys.inventory(["twice", "twice"])


@pytest.mark.rule("SIGN-2")
async def test_what_is_set_aside_is_counted_by_queue_and_reason(seen: Seen) -> None:
    store = Counted({})
    queue = Queue(store, QueueOptions(keyring=NEW), telemetry=seen.telemetry)
    async with queue:
        await store.push([sealed(OLD), sealed(OLD, "other"), sealed(NEW), sealed(NEW)])
        settled = 0
        while settled < 4:
            with pytest.raises(aqueue.MalformedJobSettled) as caught:
                await queue.pop_many(10, timeout=5, queues=["default", "other"])
            settled += len(caught.value.job_ids)

    counted = {
        (point.attributes["messaging.destination.name"], point.attributes["aqueue.outcome"]): point.value
        for point in seen.points("aqueue.job.outcomes")
    }
    assert counted == {("default", "signature"): 1, ("other", "signature"): 1, ("default", "malformed"): 2}


@pytest.mark.rule("SIGN-2")
async def test_a_worker_counts_it_once(seen: Seen) -> None:
    store = Counted({})
    queue = Queue(store, QueueOptions(keyring=NEW), telemetry=seen.telemetry)
    async with queue:
        await store.push([sealed(OLD)])

        assert await aqueue.Worker(queue, [Note]).run_all() == 1

    [point] = seen.points("aqueue.job.outcomes")
    assert (point.attributes["aqueue.outcome"], point.value) == ("signature", 1)
