"""What is Redis's own: its URLs, its keys, its scripts, and what its server refuses."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis import exceptions as driver
from redis.crc import key_slot
from servers.reach import check_reachable
from servers.redis import RedisServer, TLSServer, redis_program

from aqueue import ConnectionFailed, InvalidQueueArgument, StoreRefused, Unsupported, connect, job
from aqueue.backends.redis import RedisBackend, from_url, scripts
from aqueue.backends.redis.checks import version_from
from aqueue.backends.redis.keys import KeySpace
from aqueue.backends.redis.replies import FAULTS, ScriptFailed, error_from
from aqueue.port import (
    FailedRecord,
    Failing,
    Fault,
    Held,
    Message,
    Releasing,
    Reserved,
    StoreOptions,
    Verdict,
)
from aqueue.testing import eventually
from aqueue.urls import parse_url

LEASE = 60.0


@job(name="redis.note")
class Note:
    text: str


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    """A server for this file; each test empties it."""
    check_reachable("redis", None if redis_program() else "redis-server is not installed")
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
def server(shared: RedisServer) -> RedisServer:
    shared.run("FLUSHALL")
    shared.run("CONFIG", "SET", "maxmemory", "0")
    return shared


@pytest.fixture
async def backend(server: RedisServer) -> AsyncIterator[RedisBackend]:
    made = backend_on(server.url)
    await made.open()
    yield made
    await made.aclose()


def backend_on(url: str, *, lease: float = LEASE) -> RedisBackend:
    return from_url(parse_url(url), StoreOptions(lease=lease, clock=time.time))


def message(number: int, *, queue: str = "default", delay: float = 0.0, payload: bytes = b"x") -> Message:
    return Message(f"{number:032x}", queue, payload, delay)


def record_of(item: Reserved, reason: str = "error") -> FailedRecord:
    return FailedRecord(
        id=item.id, name="n", queue=item.queue, payload=item.payload, attempts=1, lost=0, reason=reason,
        delivery=str(item.receipt),
    )  # fmt: skip


def key(name: str, queue: str = "default") -> str:
    return f"aqueue:{{{queue}}}:{name}"


def commands(server: RedisServer) -> dict[str, int]:
    """Return how often clients called each command since the last CONFIG RESETSTAT."""
    lines = server.run("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): int(facts["calls"]) for name, facts in lines.items()}


# -- URLs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis://", "redis:///0", "redis://h1,h2", "redis://h/x", "redis://h/1/2", "redis://h/-1",
        "redis://h?db=1", "redis://h?tls=true", "redis://h?prefix=", "redis://h?prefix=a%20b",
        "redis://h?prefix=%7Bx%7D", "redis://h?connections=0", "redis://h?connections=many",
        "redis://user@h", "redis://h?retries=3", "rediss://h?tls_verify=perhaps", "rediss://h?tls_key=k.pem",
        "rediss://h?tls=true", "unix://", "unix://host/run/redis.sock", "unix:///run/redis.sock?db=x",
        "redis+sentinel://h", "redis+sentinel://h/", "redis+sentinel:///service",
        "redis+sentinel://h/service/x", "redis+sentinel://h/service?tls_ca=ca.pem", "redis+cluster://",
        "redis+cluster://h/1", "redis+cluster://h?sentinel_password=x",
    ],
)  # fmt: skip
@pytest.mark.rule("FACE-1")
def test_a_url_that_makes_no_sense_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(InvalidQueueArgument):
        connect(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h", "redis://h:1/15", "redis://:p%40ss@h/0?prefix=app&connections=4",
        "rediss://u:p@h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_verify=false",
        "unix:///run/redis.sock?db=3", "redis+sentinel://h1:1,h2:2/service",
        "redis+sentinel://h/service/4?sentinel_password=s&tls=true&tls_verify=false",
        "redis+cluster://h1:1,h2:2?tls=true&tls_ca=ca.pem",
    ],
)  # fmt: skip
@pytest.mark.rule("FACE-1")
def test_a_url_opens_nothing_and_reads_no_file_until_the_queue_is_opened(url: str) -> None:
    assert connect(url).capabilities.system == "redis"


@pytest.mark.rule("FACE-1")
async def test_no_secret_of_a_url_shows_in_a_repr_or_an_error() -> None:
    url = "redis+sentinel://user:hunter2@127.0.0.1:1/service?sentinel_password=hunter3"
    queue = connect(url)

    with pytest.raises(ConnectionFailed) as caught:
        await queue.open()

    shown = [repr(queue), repr(backend_on(url)), str(caught.value), repr(caught.value.__cause__)]
    assert not any("hunter" in text for text in shown)


@pytest.mark.rule("FACE-1")
async def test_a_password_is_used_and_a_wrong_one_never_reaches_the_queue(server: RedisServer) -> None:
    server.run("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")
    place = f"{server.host}:{server.port}"

    async with connect(f"redis://ann:secret@{place}") as queue:
        await queue.push(Note("x"))
        assert await queue.size() == 1
    with pytest.raises(ConnectionFailed):
        await connect(f"redis://ann:wrong@{place}").open()


async def test_each_database_and_each_prefix_is_a_place_of_its_own(server: RedisServer) -> None:
    urls = [f"{server.url}/0", f"{server.url}/1", f"{server.url}/0?prefix=b"]
    for number, url in enumerate(urls):
        async with connect(url) as queue:
            for _ in range(number + 1):
                await queue.push(Note("x"))

    for number, url in enumerate(urls):
        async with connect(url) as queue:
            assert await queue.size() == number + 1


async def test_tls_trusts_the_named_certificate_and_no_other() -> None:
    check_reachable("redis", None if redis_program() else "redis-server is not installed")
    server = TLSServer().start()
    try:
        for trusting in (f"?tls_ca={server.certificate}", "?tls_verify=false"):
            async with connect(server.secure_url + trusting) as queue:
                await queue.push(Note("x"))
                assert (await queue.pop_now(1))[0].args == {"text": "x"}
        with pytest.raises(ConnectionFailed):
            await connect(server.secure_url).open()
    finally:
        server.stop()


async def test_a_unix_socket_is_a_place_like_any_other(server: RedisServer) -> None:
    async with connect(f"unix://{server.socket}?db=2") as queue:
        await queue.push(Note("x"))
        assert await queue.size() == 1
    async with connect(f"{server.url}/2") as queue:
        assert await queue.size() == 1


# -- what the server must be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("7.0.15", (7, 0, 15)), ("6.2.5-rc1", (6, 2)), ("", ()), ("255.255", (255, 255))],
)
def test_a_version_is_read_as_far_as_it_is_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_from(version) == numbers


async def test_a_server_that_is_too_old_is_named_and_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1024):
            info = b"# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n"
            bulk = b"$%d\r\n%s\r\n" % (len(info), info)
            writer.write((b"+OK\r\n" if b"SETNAME" in data else b"") + (bulk if b"INFO" in data else b""))
        writer.close()

    old = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = old.sockets[0].getsockname()[1]

    with pytest.raises(Unsupported, match=r"is Redis 5\.0\.14: aqueue needs 6\.2"):
        await connect(f"redis://127.0.0.1:{port}").open()
    old.close()
    await old.wait_closed()


async def test_a_cluster_url_on_one_server_says_which_url_fits(server: RedisServer) -> None:
    with pytest.raises((Unsupported, ConnectionFailed)):
        await connect(server.url.replace("redis://", "redis+cluster://")).open()


# -- keys -----------------------------------------------------------------------------------------------


def test_all_keys_of_a_queue_share_one_slot() -> None:
    keys = KeySpace("any-prefix").of("emails_2-x")
    names = [*keys[:9], *keys.scratch]

    assert {key_slot(name) for name in names} == {key_slot(b"emails_2-x")} == {keys.slot}
    assert keys.pending == b"any-prefix:{emails_2-x}:pending"


async def test_nothing_is_left_of_a_job_that_is_done(server: RedisServer, backend: RedisBackend) -> None:
    await backend.push([message(1), message(2, delay=0.001), message(3)])
    await backend.release([Releasing(item) for item in await backend.pop(["default"], 3)])

    async def all_acked() -> bool:
        await backend.ack(await backend.pop(["default"], 3))
        return bool(server.run("DBSIZE") == 0)

    await eventually(all_acked)


async def test_a_payload_is_stored_once_and_counters_only_where_there_are_any(
    server: RedisServer, backend: RedisBackend
) -> None:
    await backend.push([message(1, payload=b"sealed"), message(2, payload=b"sealed")])
    [first, _] = await backend.pop(["default"], 2)
    await backend.release([Releasing(first)])

    assert server.run("HVALS", key("jobs")) == [b"sealed", b"sealed"]
    assert server.run("HLEN", key("counts")) == 1
    assert server.run("HGET", key("counts"), first.id) == b"1:0"


async def test_entries_made_by_hand_are_dropped_and_hold_nothing_up(
    server: RedisServer, backend: RedisBackend
) -> None:
    server.run("RPUSH", key("pending"), "", "rubbish", b"\xff\xfe", "no-such-id:1700000000000000")
    server.run("ZADD", key("leased"), 1, "rubbish", 2, "x" * 200)
    server.run("ZADD", key("delayed"), 1, "gone")
    await backend.push([message(1)])

    async def found() -> bool:
        return [item.id for item in await backend.pop(["default"], 10)] == [message(1).id]

    await eventually(found)
    assert (server.run("LLEN", key("pending")), server.run("ZCARD", key("delayed"))) == (0, 0)
    assert server.run("ZCARD", key("leased")) == 1


@pytest.mark.rule("MAL-1")
async def test_counters_damaged_by_hand_show_as_out_of_range(
    server: RedisServer, backend: RedisBackend
) -> None:
    await backend.push([message(1)])
    server.run("HSET", key("counts"), message(1).id, "many")

    [item] = await backend.pop(["default"], 1)

    assert item.attempt < 1


# -- nothing is lost where a key is of another type, or the server is full ------------------------------

_WRONG = ["pending", "delayed", "leased", "jobs", "counts", "failed", "failed-order", "failed-names"]


@pytest.mark.parametrize("wrong", _WRONG)
@pytest.mark.rule("REL-1", "FAIL-1", "POP-5")
async def test_a_key_of_another_type_refuses_a_step_and_loses_no_job(
    server: RedisServer, backend: RedisBackend, wrong: str
) -> None:
    """Each key in turn is put out of the way for one round of every verb, and brought back."""
    await backend.push([message(number) for number in range(6)])
    held = list(await backend.pop(["default"], 3))
    await backend.push([message(7, delay=0.001)])
    has_key = server.run("EXISTS", key(wrong))
    if has_key:
        server.run("RENAME", key(wrong), "aside")
    server.run("SET", key(wrong), "of another type")

    settled = 0
    refusals: list[str] = []
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: backend.push([message(8)]),
        lambda: backend.ack(held[:1]),
        lambda: backend.release([Releasing(held[1], delay=0.001)]),
        lambda: backend.fail([Failing(held[2], record_of(held[2]))]),
        lambda: backend.pop(["default"], 10),
    ]
    for number, call in enumerate(calls):
        try:
            answers = await call()
        except driver.ResponseError as error:
            refusals.append(str(error))
            continue
        if number == 1:
            settled += answers == [Verdict.SETTLED]
    server.run("DEL", key(wrong))
    if has_key:
        server.run("RENAME", "aside", key(wrong))

    stats = await backend.stats("default")
    pushed_late = server.run("HEXISTS", key("jobs"), message(8).id)
    total = stats.ready + stats.delayed + stats.leased + stats.failed
    assert [refusal for refusal in refusals if not refusal.startswith("WRONGTYPE")] == []
    assert total == 7 + pushed_late - settled
    assert server.run("HLEN", key("jobs")) == total - stats.failed


@pytest.mark.rule("PUSH-4", "POP-5")
async def test_a_full_server_refuses_pushes_and_can_still_be_drained(
    server: RedisServer, backend: RedisBackend
) -> None:
    await backend.push([message(number) for number in range(5)])
    server.run("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(driver.OutOfMemoryError):
        await backend.push([message(9)])
    acked, released, failed, extended, _ = await backend.pop(["default"], 5)
    assert await backend.ack([acked]) == [Verdict.SETTLED]
    assert await backend.release([Releasing(released)]) == [Verdict.SETTLED]
    assert await backend.fail([Failing(failed, record_of(failed))]) == [Verdict.SETTLED]
    assert await backend.extend([extended]) == [Verdict.SETTLED]
    assert await backend.clear("default") == 1

    stats = await backend.stats("default")
    assert (stats.ready, stats.leased, stats.failed) == (0, 2, 1)


@pytest.mark.rule("PUSH-4")
async def test_a_refusal_is_told_as_one(server: RedisServer) -> None:
    async with connect(server.url) as queue:
        server.run("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreRefused):
            await queue.push(Note("x"))


# -- scripts --------------------------------------------------------------------------------------------


@pytest.mark.rule("PUSH-4")
async def test_a_script_flush_between_any_two_calls_goes_unnoticed(server: RedisServer) -> None:
    async with connect(server.url) as queue:
        for number in range(3):
            server.run("SCRIPT", "FLUSH")
            await queue.push_many([Note("x") for _ in range(10)], queue=f"q{number}")
            server.run("SCRIPT", "FLUSH")
            deliveries = await queue.pop_many(20, timeout=5, queues=[f"q{number}"])
            server.run("SCRIPT", "FLUSH")
            await asyncio.gather(
                queue.fail(deliveries[0]),
                queue.release(deliveries[1], counted=False),
                *(queue.ack(delivery) for delivery in deliveries[2:]),
            )
            stats = await queue.stats(f"q{number}")
            assert (stats.ready, stats.leased, stats.failed) == (1, 0, 1)


@pytest.mark.rule("PUSH-4")
async def test_a_script_missing_for_part_of_a_batch_is_loaded_and_each_job_is_stored_once(
    server: RedisServer, backend: RedisBackend
) -> None:
    batch = [message(number, queue=f"q{number % 5}") for number in range(50)]
    for _ in range(3):
        server.run("SCRIPT", "FLUSH")
        assert list(await backend.push(batch)) == [None] * 50

    for number in range(5):
        assert (await backend.stats(f"q{number}")).ready == 10


def test_each_transition_is_a_script_in_a_file_of_its_own() -> None:
    names = ["ack", "clear", "extend", "fail", "failed_keep", "failed_page", "failed_remove", "failed_retry",
             "give_back", "look", "pop", "push", "release", "stats"]  # fmt: skip

    assert len({scripts.load(name).digest for name in names}) == len(names)


@pytest.mark.parametrize(
    ("text", "kind", "fault"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", driver.OutOfMemoryError, Fault.REFUSED),
        ("READONLY You can't write against a read only replica.", driver.ReadOnlyError, Fault.REFUSED),
        ("LOADING Redis is loading the dataset in memory", driver.BusyLoadingError, Fault.REFUSED),
        ("BUSY Redis is busy running a script.", driver.ResponseError, Fault.REFUSED),
        ("MISCONF Redis is configured to save RDB snapshots", driver.ResponseError, Fault.REFUSED),
        ("NOSCRIPT No matching script.", driver.NoScriptError, Fault.REFUSED),
        ("MOVED 3999 127.0.0.1:6381", driver.MovedError, Fault.REFUSED),
        ("ASK 3999 127.0.0.1:6381", driver.AskError, Fault.REFUSED),
        ("WRONGTYPE Operation script: f, on @user_script:3.", driver.ResponseError, Fault.REFUSED),
        ("ERR Error running script (call to f_1): @user_script:7: -OOM command not allowed",
         driver.OutOfMemoryError, Fault.REFUSED),
        ("ERR Error running script (call to f_1): @user_script: 7: WRONGTYPE Operation against a key",
         driver.ResponseError, Fault.REFUSED),
        ("ERR user_script:3: attempt to index a nil value script: f, on @user_script:3.", ScriptFailed,
         Fault.UNKNOWN),
        ("ERR Error running script (call to f_1): @user_script:3: attempt to index a nil value", ScriptFailed,
         Fault.UNKNOWN),
    ],
)  # fmt: skip
@pytest.mark.rule("PUSH-4")
def test_what_an_error_reply_proves(text: str, kind: type[Exception], fault: Fault) -> None:
    error = error_from(text)

    assert type(error) is kind
    assert next(FAULTS[base] for base in type(error).__mro__ if base in FAULTS) is fault


# -- bounds ---------------------------------------------------------------------------------------------


@pytest.mark.rule("LEASE-2")
async def test_a_sweep_moves_at_most_a_hundred_due_and_a_hundred_lost_jobs(server: RedisServer) -> None:
    backend = backend_on(server.url, lease=0.05)
    await backend.open()
    await backend.push([message(number) for number in range(250)])
    await backend.pop(["default"], 250)
    await backend.push([message(1000 + number, delay=0.001) for number in range(250)])

    async def all_are_due() -> bool:
        return (await backend.stats("default")).ready == 500

    await eventually(all_are_due)
    await backend.pop(["default"], 1)

    assert server.run("ZCARD", key("delayed")) == 150
    assert server.run("ZCARD", key("leased")) == 150 + 1
    await backend.aclose()


async def test_a_reply_is_bounded_in_bytes_as_well_as_in_items(backend: RedisBackend) -> None:
    await backend.push([message(number, payload=b"x" * 1_000_000) for number in range(4)])
    for start in range(4, 30, 4):
        await backend.push([message(start + number, payload=b"x" * 1_000_000) for number in range(4)])

    first = await backend.pop(["default"], 30)

    assert 1 <= len(first) < 30
    assert [item.id for item in first] == [message(number).id for number in range(len(first))]


@pytest.mark.rule("PUSH-6", "POP-2")
async def test_many_callers_share_a_command_and_many_queues_a_sweep(server: RedisServer) -> None:
    async with connect(server.url) as queue:
        await queue.push(Note("warm"))
        server.run("CONFIG", "RESETSTAT")
        await asyncio.gather(*(queue.push(Note("x")) for _ in range(1_000)))
        pushing = commands(server)["evalsha"]
        await queue.pop_many(10, queues=["a", "b", "c", "default"])
        popping = commands(server)["evalsha"] - pushing

    assert pushing <= 100
    assert popping == 1


@pytest.mark.rule("POP-7")
async def test_an_idle_wait_asks_nothing_but_what_the_sweep_does(server: RedisServer) -> None:
    async with connect(server.url) as queue:
        await queue.pop(timeout=0.2, queues=["a", "b"])  # subscribes
        server.run("CONFIG", "RESETSTAT")
        await queue.pop(timeout=2.5, queues=["a", "b"])

        asked = commands(server)
        assert asked["evalsha"] <= 4
        assert set(asked) <= {"evalsha", "time", "zrange", "lrange", "ping", "config|resetstat", "info"}


# -- failed jobs over many queues -----------------------------------------------------------------------


@pytest.mark.rule("FAIL-2")
async def test_a_queue_is_known_before_its_first_failed_job_and_an_empty_one_does_no_harm(
    server: RedisServer, backend: RedisBackend
) -> None:
    server.run("SADD", "aqueue:queues-with-failed-jobs", "never-used")
    await backend.push([message(1, queue="mail")])
    [item] = await backend.pop(["mail"], 1)
    await backend.fail([Failing(item, record_of(item))])

    assert server.run("SISMEMBER", "aqueue:queues-with-failed-jobs", "mail")
    assert await backend.failed_count(queue=None, job=None) == 1
    assert [one.id for one in await backend.failed_page(queue=None, job=None, after=None, limit=5)] == [
        item.id
    ]


@pytest.mark.rule("FAIL-2")
async def test_a_damaged_record_hides_no_other(server: RedisServer, backend: RedisBackend) -> None:
    await backend.push([message(1), message(2)])
    for item in await backend.pop(["default"], 2):
        await backend.fail([Failing(item, record_of(item))])
    server.run("HSET", key("failed"), message(1).id, "rubbish")

    page = await backend.failed_page(queue=None, job=None, after=None, limit=5)

    assert [(one.id, one.reason) for one in page] == [(message(1).id, "malformed"), (message(2).id, "error")]
    assert await backend.failed_discard(page[0])


@pytest.mark.rule("FAIL-2")
async def test_a_record_that_was_replaced_is_neither_retried_nor_discarded_under_its_old_name(
    backend: RedisBackend,
) -> None:
    seen: list[FailedRecord] = []
    for reason in ("first", "second"):
        await backend.push([message(1)])
        [item] = await backend.pop(["default"], 1)
        await backend.fail([Failing(item, record_of(item, reason))])
        seen += await backend.failed_page(queue=None, job=None, after=None, limit=1)
    old = seen[0]

    assert not await backend.failed_discard(old)
    assert not await backend.failed_retry(old, message(1))
    kept = await backend.failed_get(message(1).id)
    assert kept is not None
    assert kept.reason == "second"
    assert await backend.failed_count(queue=None, job="n") == 1


@pytest.mark.rule("FAIL-2", "PUSH-10")
async def test_retrying_a_job_whose_id_waits_again_stores_it_once(backend: RedisBackend) -> None:
    await backend.push([message(1, payload=b"old")])
    [item] = await backend.pop(["default"], 1)
    await backend.fail([Failing(item, record_of(item))])
    await backend.push([message(1, payload=b"new")])
    record = await backend.failed_get(item.id)
    assert record is not None

    assert await backend.failed_retry(record, message(1, payload=b"old"))

    assert [one.payload for one in await backend.pop(["default"], 5)] == [b"new"]


# -- clearing -------------------------------------------------------------------------------------------


@pytest.mark.rule("CLEAR-1")
async def test_clearing_keeps_what_is_held_with_its_counters(
    server: RedisServer, backend: RedisBackend
) -> None:
    await backend.push([message(number) for number in range(2_000, 2_400)])
    await backend.release([Releasing(item) for item in await backend.pop(["default"], 2)])
    held = [item for _ in range(4) for item in await backend.pop(["default"], 100)][:3_000]
    assert len(held) == 400
    await backend.push([message(number) for number in range(300)])

    assert await backend.clear("default") == 300

    assert server.run("HLEN", key("jobs")) == 400
    assert server.run("HLEN", key("counts")) == 2
    await backend.release([Releasing(item, counted=False) for item in held])
    again = await backend.pop(["default"], 400)
    assert sorted(item.attempt for item in again)[-2:] == [2, 2]
    assert not server.run(
        "EXISTS", *(key(name) for name in ("clearing-jobs", "clearing-counts", "clearing-old"))
    )


# -- looking through ------------------------------------------------------------------------------------


async def test_every_job_is_shown_once_by_id_whatever_its_state_and_the_pages_size(
    backend: RedisBackend,
) -> None:
    await backend.push([message(number, delay=60.0 if number % 3 else 0.0) for number in range(400)])
    await backend.pop(["default"], 20)

    for limit in (7, 100, 1_000):
        shown: list[Held] = []
        page = await backend.browse("default", after=None, limit=limit)
        while page:
            assert len(page) <= limit
            shown += page
            page = await backend.browse("default", after=page[-1].id, limit=limit)
        assert [one.id for one in shown] == [message(number).id for number in range(400)]
        assert all((one.delay > 50) == (number % 3 != 0) for number, one in enumerate(shown))


async def test_a_listing_goes_on_where_it_was_and_leaves_out_what_is_gone(backend: RedisBackend) -> None:
    await backend.push([message(number) for number in range(10)])
    first = await backend.browse("default", after=None, limit=3)
    taken = await backend.pop(["default"], 8)
    await backend.ack(taken)
    other = await backend.browse("default", after=first[-1].id, limit=10)

    assert [one.id for one in other] == [message(8).id, message(9).id]
    assert await backend.browse("default", after=other[-1].id, limit=10) == []
    assert await backend.browse("never-used", after=None, limit=10) == []


async def test_queues_are_named_from_their_own_keys_alone(server: RedisServer, backend: RedisBackend) -> None:
    """Another prefix, another program's keys and a prefix that is a pattern are told apart."""
    odd = backend_on(f"{server.url}?prefix=a*%5Bq%5D%3F")
    await odd.open()
    await backend.push([message(1, queue="ours"), message(2, queue="failing")])
    await odd.push([message(3, queue="theirs")])
    await backend.fail([Failing(item, record_of(item)) for item in await backend.pop(["failing"], 1)])
    for foreign in ("aqueue:{}:jobs", "aqueue:{not ours}:jobs", "aqueue:{a}:b:{c}:jobs", "aqqq?:{x}:jobs"):
        server.run("HSET", foreign, "id", "payload")

    assert await backend.queues() == ["failing", "ours"]
    assert await odd.queues() == ["theirs"]
    await odd.aclose()


@pytest.mark.parametrize("head", [0, 1, 5, 100, None])
async def test_a_page_shows_as_much_of_each_payload_as_was_asked_for(
    backend: RedisBackend, head: int | None
) -> None:
    await backend.push([message(1, payload=b"0123456\x00\xff"), message(2, payload=b"")])

    first, second = await backend.browse("default", after=None, limit=5, head=head)

    assert (first.payload, second.payload) == (b"0123456\x00\xff"[:head], b"")
