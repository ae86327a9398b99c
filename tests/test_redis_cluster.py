"""A cluster while its slots move, and a master under Sentinel while it is replaced."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.crc import key_slot
from servers.reach import check_reachable
from servers.redis import RedisCluster, RedisServer, SentinelGroup, redis_program
from support.working import all_settled, running

from aqueue import ConnectionFailed, OutcomeUnknown, Queue, StoreRefused, Unsupported, Worker, connect, job
from aqueue.backends.redis.cluster import slots_from
from aqueue.backends.redis.dialling import Address
from aqueue.testing import eventually

done: list[int] = []


@job(name="redis.tally")
class Tally:
    number: int

    async def handle(self) -> None:
        done.append(self.number)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    check_reachable("redis-cluster", None if redis_program() else "redis-server is not installed")
    cluster = RedisCluster().start()
    yield cluster
    cluster.stop()


@pytest.fixture
async def queue(cluster: RedisCluster) -> AsyncIterator[Queue]:
    for node in cluster.nodes:
        node.run("FLUSHALL")
    async with connect(cluster.url, lease=5.0) as queue:
        yield queue


def other_node(cluster: RedisCluster, slot: int) -> RedisServer:
    return next(node for node in cluster.nodes if node is not cluster.node_of(slot))


def slot_of(name: str) -> int:
    return key_slot(name.encode())


# -- the map of slots -----------------------------------------------------------------------------------


def test_the_map_names_each_slots_primary_and_a_nameless_node_is_the_one_that_was_asked() -> None:
    reply = [
        [0, 1, [b"10.0.0.1", 7001, b"id1"], [b"10.0.0.9", 7009, b"replica"]],
        [2, 2, [b"", 7002, b"id2"]],
        [3, 3, [None, 7003, b"id3"]],
    ]

    slots = slots_from(reply, Address("asked", 1))

    assert slots == {
        0: Address("10.0.0.1", 7001),
        1: Address("10.0.0.1", 7001),
        2: Address("asked", 7002),
        3: Address("asked", 7003),
    }


async def test_queues_live_on_every_node_and_a_sweep_finds_them_in_list_order(
    cluster: RedisCluster, queue: Queue
) -> None:
    names = [f"queue-{number}" for number in range(12)]
    assert len({cluster.node_of(slot_of(name)).port for name in names}) == 3
    for number, name in enumerate(names):
        await queue.push_many([Tally(number), Tally(number)], queue=name)

    taken = await queue.pop_many(24, timeout=5, queues=names[::-1])

    assert [delivery.queue for delivery in taken] == [name for name in names[::-1] for _ in range(2)]
    await asyncio.gather(*(queue.ack(delivery) for delivery in taken))


async def test_a_plain_url_on_a_cluster_says_which_url_fits(cluster: RedisCluster) -> None:
    with pytest.raises(Unsupported, match=r"redis\+cluster://"):
        await connect(cluster.nodes[0].url).open()


async def test_one_living_seed_is_enough(cluster: RedisCluster) -> None:
    living = cluster.nodes[1]
    async with connect(f"redis+cluster://127.0.0.1:1,{living.host}:{living.port}") as queue:
        await queue.push(Tally(1))
        assert len(await queue.pop_now(1)) == 1


@pytest.mark.rule("CALL-1")
async def test_a_node_that_hangs_costs_its_own_queues_their_time_and_the_others_nothing(
    cluster: RedisCluster,
) -> None:
    names = {cluster.node_of(slot_of(name)).port: name for name in ("a", "b", "c", "d", "e")}
    hung, living, _ = cluster.nodes
    assert len(names) == 3
    url = f"redis+cluster://{hung.host}:{hung.port},{living.host}:{living.port}"
    async with connect(cluster.url, call_timeout=1.0) as queue:
        await queue.push(Tally(0), queue=names[hung.port])
        hung.process.pause()
        try:
            with pytest.raises(OutcomeUnknown):
                await queue.push(Tally(1), queue=names[hung.port])
            await queue.push(Tally(2), queue=names[living.port])
            async with connect(url, call_timeout=9.0) as late:
                await late.push(Tally(3), queue=names[living.port])
        finally:
            hung.process.resume()

        async def answers() -> bool:
            try:
                return await queue.size(names[hung.port]) >= 1
            except (ConnectionFailed, OutcomeUnknown, StoreRefused):
                return False

        await eventually(answers, 20)
    for node in cluster.nodes:
        await eventually(lambda node=node: cluster.is_whole(node), 20)


# -- slots on the move ----------------------------------------------------------------------------------


@pytest.mark.rule("PUSH-4")
async def test_a_slot_that_moved_is_followed_and_nothing_is_lost(cluster: RedisCluster, queue: Queue) -> None:
    slot = slot_of("moved")
    ids = await queue.push_many((Tally(number) for number in range(50)), queue="moved")
    held = await queue.pop_many(5, queues=["moved"])
    target = other_node(cluster, slot)
    cluster.end_move(slot, cluster.begin_move(slot, target), target)

    ids.append(await queue.push(Tally(50), queue="moved"))
    for delivery in reversed(held):
        await queue.release(delivery, counted=False)

    taken = await queue.pop_many(100, timeout=5, queues=["moved"])
    assert [delivery.id for delivery in taken] == ids


@pytest.mark.rule("PUSH-4")
async def test_a_call_on_a_slot_in_two_places_waits_until_it_is_in_one(
    cluster: RedisCluster, queue: Queue
) -> None:
    slot = slot_of("split")
    await queue.push(Tally(0), queue="split")
    target = other_node(cluster, slot)
    source = cluster.begin_move(slot, target)

    pushing = asyncio.create_task(queue.push(Tally(1), queue="split"))
    popping = asyncio.create_task(queue.pop(timeout=9, queues=["split"]))
    await asyncio.wait({pushing}, timeout=0.3)
    assert not pushing.done()
    cluster.end_move(slot, source, target)

    await pushing
    first = await popping
    second = await queue.pop(timeout=5, queues=["split"])
    assert first is not None
    assert second is not None
    assert sorted(delivery.args["number"] for delivery in (first, second)) == [0, 1]


@pytest.mark.rule("PUSH-4")
async def test_a_key_that_moved_ahead_of_its_slot_is_asked_for_where_it_is(
    cluster: RedisCluster, queue: Queue
) -> None:
    slot = slot_of("ahead")
    await queue.push(Tally(0), queue="ahead")
    [delivery] = await queue.pop_now(1, queues=["ahead"])
    target = other_node(cluster, slot)
    source = cluster.begin_move(slot, target)
    cluster.move_keys(slot, source, target)

    await asyncio.gather(*(queue.extend(delivery) for _ in range(20)))

    cluster.end_move(slot, source, target)
    await queue.ack(delivery)


@pytest.mark.rule("PUSH-4")
async def test_a_slot_that_stays_in_two_places_is_reported_as_a_refusal(
    cluster: RedisCluster, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aqueue.backends.redis.client._PATIENCE", 0.2)
    slot = slot_of("stuck")
    await queue.push(Tally(0), queue="stuck")
    target = other_node(cluster, slot)
    source = cluster.begin_move(slot, target)
    try:
        with pytest.raises(StoreRefused):
            await queue.push(Tally(1), queue="stuck")
    finally:
        cluster.end_move(slot, source, target)

    assert await queue.size("stuck") == 1


@pytest.mark.rule("PUSH-4", "POP-5")
async def test_slots_move_to_and_fro_under_load_and_every_job_is_done(
    cluster: RedisCluster, queue: Queue
) -> None:
    names = [f"load-{number}" for number in range(6)]
    total = 600
    pushed: list[int] = []

    async def push_all() -> None:
        async with connect(cluster.url) as pusher:
            for number in range(total):
                id = f"{number:032x}"
                while True:
                    try:
                        await pusher.push(Tally(number), queue=names[number % 6], id=id)
                    except (ConnectionFailed, OutcomeUnknown, StoreRefused):
                        continue
                    break
                pushed.append(number)

    def move_some() -> None:
        for turn in range(12):
            slot = slot_of(names[turn % 6])
            target = cluster.nodes[turn % 3]
            if target is not cluster.node_of(slot):
                source = cluster.begin_move(slot, target)
                time.sleep(0.02)
                cluster.end_move(slot, source, target)

    worker = Worker(queue, [Tally], queues=names, concurrency=20, poll_timeout=0.3)
    async with running(worker):
        await asyncio.gather(push_all(), asyncio.to_thread(move_some))
        await eventually(lambda: len(done) >= total, 30)
        await all_settled(queue, *names)
    assert sorted(done) == sorted(pushed) == list(range(total)), "a job was lost or handled twice"


# -- Sentinel -------------------------------------------------------------------------------------------


# A sentinel that was kept from running for 2 s, on a busy machine, fails nobody over for the next 30.


@pytest.fixture
def sentinel() -> Iterator[SentinelGroup]:
    check_reachable("redis-sentinel", None if redis_program() else "redis-server is not installed")
    group = SentinelGroup().start()
    yield group
    group.stop()


@pytest.mark.rule("WORK-8", "PUSH-4")
async def test_a_failover_that_was_asked_for_is_followed_and_what_was_replicated_is_done(
    sentinel: SentinelGroup,
) -> None:
    old = sentinel.master()
    async with connect(sentinel.url, lease=3.0) as queue:
        worker = Worker(queue, [Tally], concurrency=5)
        async with running(worker):
            for number in range(20):
                await push_in_the_end(queue, number)
            old.run("WAIT", 1, 2000)
            sentinel.ask("SENTINEL", "FAILOVER", "aqueue-test")
            await eventually(lambda: sentinel.master() is not old, 60)

            for number in range(20, 40):
                await push_in_the_end(queue, number)
            await eventually(lambda: set(done) == set(range(40)), 75)


@pytest.mark.rule("WORK-8", "PUSH-4")
async def test_a_master_that_died_is_replaced_and_the_worker_goes_on(sentinel: SentinelGroup) -> None:
    old = sentinel.master()
    async with connect(sentinel.url, lease=3.0) as queue:
        worker = Worker(queue, [Tally], concurrency=5)
        async with running(worker):
            await push_in_the_end(queue, 0)
            old.run("WAIT", 1, 2000)
            old.process.kill()

            await push_in_the_end(queue, 1)
            await eventually(lambda: {0, 1} <= set(done), 75)


async def push_in_the_end(queue: Queue, number: int) -> None:
    """Push under an id of the number's own until the store has it: safe to repeat (PUSH-10)."""
    while True:
        try:
            await queue.push(Tally(number), id=f"{number:032x}")
        except (ConnectionFailed, OutcomeUnknown, StoreRefused):
            await asyncio.sleep(0.05)
            continue
        return
