"""Chains and batches as a process pushes and counts them: what is refused, what the store is asked."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest
from support.stores import CutOff, WholeBackend, Wrapper

from aqueue import (
    InvalidJob,
    InvalidQueueArgument,
    Keyring,
    NotesMissing,
    Queue,
    Unique,
    UnserializableJob,
    Worker,
    batch,
    chain,
    connect,
    job,
    step,
    step_id,
)
from aqueue.connection import open_backend
from aqueue.contract.batches import BatchState, batch_state, count_member, due
from aqueue.contract.flows import CHAIN_KEY, Step
from aqueue.port import StoreOptions

ran: list[str] = []
ID = "0" * 31 + "1"


@job(name="flows.run", results=60)
async def run(name: str) -> str:
    ran.append(name)
    return name


@job(name="flows.once", unique=Unique())
async def once(name: str) -> None:
    ran.append(name)


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@pytest.fixture
def store() -> Wrapper:
    """Memory that suspends, counts and fails on command."""
    backend = open_backend("memory://", StoreOptions(lease=60.0, clock=time.time))
    return Wrapper(cast("WholeBackend", backend))


@pytest.fixture
async def queue(store: Wrapper) -> AsyncIterator[Queue]:
    async with Queue(store) as queue:
        yield queue


@pytest.mark.rule("CHAIN-1")
async def test_a_steps_own_word_wins_over_the_pushs(queue: Queue) -> None:
    plan = chain(run.job("a"), step(run.job("b"), queue="own", max_attempts=7, delay=0), run.job("c"))
    first = await queue.push(plan, queue="q", max_attempts=2)

    for number, (name, attempts) in enumerate((("q", 2), ("own", 7), ("q", 2))):
        delivery = await queue.pop(timeout=5, queues=[name])
        assert delivery is not None
        assert (delivery.id, delivery.max_attempts) == (step_id(first, number), attempts)
        assert (CHAIN_KEY in delivery.metadata) == (number < 2)
        await queue.ack(delivery)


@pytest.mark.rule("CHAIN-1")
async def test_the_last_steps_result_is_read_by_its_id(queue: Queue) -> None:
    id = await queue.push(chain(run.job("a"), chain(run.job("b"), run.job("c"))))

    await Worker(queue, [run]).run_all()

    assert ran == ["a", "b", "c"]
    assert await queue.result(step_id(id, 2)) == "c"


@pytest.mark.rule("CHAIN-1", "SIGN-3", "SIGN-4")
async def test_steps_to_come_change_to_the_active_key_and_show_no_argument() -> None:
    pytest.importorskip("cryptography")
    old, both = b"o" * 32, {"old": b"o" * 32, "new": b"n" * 32}
    async with connect(
        "memory://flows-keys", keyring=Keyring(active="old", keys={"old": old}, encrypt=True)
    ) as queue:
        await queue.push(chain(run.job("a"), run.job("secret"), run.job("secret")))
    async with connect(
        "memory://flows-keys", keyring=Keyring(active="new", keys=both, encrypt=True)
    ) as queue:
        delivery = await queue.pop(timeout=5)
        assert delivery is not None
        assert b"secret" not in delivery.reserved.payload
        await queue.ack(delivery)
    new = Keyring(active="new", keys={"new": both["new"]}, encrypt=True)
    async with connect("memory://flows-keys", keyring=new) as queue:
        await Worker(queue, [run]).run_all()

    assert ran == ["secret", "secret"]


@pytest.mark.rule("CHAIN-1")
async def test_a_job_that_is_unique_elsewhere_is_not_left_out_of_a_chain(queue: Queue) -> None:
    await queue.push(once.job("x"))
    await queue.push(chain(once.job("x"), once.job("x")))

    await Worker(queue, [once]).run_all()

    assert ran == ["x", "x", "x"]


@pytest.mark.rule("CHAIN-1", "PUSH-8")
async def test_a_chain_begins_in_the_callers_transaction(tmp_path: object) -> None:
    import sqlite3

    async with connect(f"sqlite:///{tmp_path}/jobs.db") as queue:
        database = sqlite3.connect(f"{tmp_path}/jobs.db")
        with database:
            await queue.push(chain(run.job("a"), run.job("b")), connection=database)
            assert await queue.size() == 0
        database.close()
        await Worker(queue, [run]).run_all()

    assert ran == ["a", "b"]


@pytest.mark.rule("CHAIN-1", "BATCH-1")
async def test_what_can_not_follow_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidQueueArgument, match="at least one step"):
        chain()
    with pytest.raises(InvalidJob):
        chain(run.job("a"), "not a job")
    with pytest.raises(InvalidJob):
        batch([run])
    with pytest.raises(InvalidQueueArgument, match="no step"):
        chain(run.job("a"), batch([run.job("b")]))
    with pytest.raises(InvalidQueueArgument, match="unique"):
        await queue.push(chain(run.job("a")), unique=Unique())
    with pytest.raises(InvalidQueueArgument, match="transaction"):
        await queue.push(batch([run.job("a")]), connection=object())
    with pytest.raises(UnserializableJob):
        await queue.push(chain(run.job("a"), run.job(5)))  # type: ignore[arg-type]  # that is the point
    with pytest.raises(UnserializableJob, match="what follows"):
        await queue.push(batch([run.job("a")], then=run.job("x" * 300_000)))
    with pytest.raises(InvalidQueueArgument, match="batch's id"):
        await queue.batch(ID)
    assert await queue.batch(f"{ID}@default") is None
    assert await queue.size() == 0


@pytest.mark.rule("CHAIN-1", "BATCH-1")
async def test_inline_refuses_both() -> None:
    async with connect("inline://", handlers=[run]) as queue:
        for plan in (chain(run.job("a")), batch([run.job("a")])):
            with pytest.raises(NotesMissing, match="inline"):
                await queue.push(plan)

    assert ran == []


@pytest.mark.rule("BATCH-1", "PUSH-4")
async def test_a_batch_whose_push_broke_off_is_not_followed_until_it_is_pushed_again(
    queue: Queue, store: Wrapper
) -> None:
    plan = batch([run.job("a"), run.job("b")], then=run.job("then"))
    store.break_down("push", error=CutOff, times=1)
    with pytest.raises(Exception, match="stored"):
        await queue.push(plan, id=ID)
    worker = Worker(queue, [run], concurrency=1)
    await worker.run_all()
    assert ran == []

    id = await queue.push(plan, id=ID)
    await worker.run_all()

    assert ran == ["a", "b", "then"]
    counts = await queue.batch(id)
    assert counts is not None
    assert counts.pending == 0


@pytest.mark.rule("BATCH-1")
async def test_members_that_end_together_are_counted_together(queue: Queue, store: Wrapper) -> None:
    await queue.push(
        batch([run.job(str(n)) for n in range(300)], then=run.job("then"), lasts=3600), results=False
    )
    deliveries = await queue.pop_many(300)
    before = store.calls["write_notes"]

    await asyncio.gather(*(queue.ack(delivery) for delivery in deliveries))

    assert store.calls["write_notes"] - before <= 5
    await Worker(queue, [run]).run_all()
    assert ran == ["then"]


@pytest.mark.rule("BATCH-1")
async def test_a_member_of_a_batch_that_is_forgotten_is_acked_with_a_warning(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    from aqueue.batches import _key

    await queue.push(batch([run.job("a")], then=run.job("then")), id=ID)
    note = await queue.notes.read("default", _key(ID))
    await queue.notes.write("default", _key(ID), None, expected=note.token)

    await Worker(queue, [run]).run_all()

    assert ran == ["a"]
    assert "not known any more" in caplog.text
    assert await queue.size() == 0


@pytest.mark.rule("BATCH-1")
def test_a_bit_is_set_once_and_done_wins() -> None:
    step_ = Step(ID, "q", 0.0, b"")
    state = BatchState(10_000, 60.0, followers={"then": step_, "on_failure": step_, "finally_": step_})
    for member in range(9_999):
        state = count_member(state, member, is_done=True)
    assert due(state) == []

    state = count_member(count_member(state, 5, is_done=False), 9_999, is_done=False)
    assert (state.done_count, state.failed_count, due(state)) == (9_999, 1, ["on_failure", "finally_"])
    state = count_member(count_member(state, 9_999, is_done=True), 10_000, is_done=True)
    assert (state.done_count, state.failed_count, due(state)) == (10_000, 0, ["then", "finally_"])

    import msgspec

    raw = msgspec.json.encode(state)
    assert len(raw) < 4_000
    assert batch_state(raw) == state
