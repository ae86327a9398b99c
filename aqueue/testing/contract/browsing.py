"""Looking at what a store holds: every job, where it stands, and without taking it (SIGN-3)."""

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from aqueue.errors import KeyInUse, Unsupported
from aqueue.inventory import KeyUse
from aqueue.port import Backend, Browsable, Held, Message, Standing
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id
from aqueue.testing.contract.sealing import BOTH, NEW, OLD
from aqueue.testing.eventually import eventually


class _Store(Browsable, Backend, Protocol):
    """A store that can be looked through."""


def _is_browsable(backend: Backend) -> TypeGuard[_Store]:
    return isinstance(backend, Browsable)


async def _store(backend: Backend, *, ready: int = 0, delayed: int = 0, first: int = 1) -> None:
    delays = [0.0] * ready + [3_600.0] * delayed
    messages = [
        Message(job_id(number), "default", envelope(job_id(number)), delay)
        for number, delay in enumerate(delays, first)
    ]
    assert list(await backend.push(messages)) == [None] * len(messages)


async def _all(
    backend: Browsable, *, limit: int, queue: str = "default", head: int | None = None
) -> list[Held]:
    found: list[Held] = []
    page: Sequence[Held] = await backend.browse(queue, after=None, limit=limit, head=head)
    while page:
        assert len(page) <= limit, "the page is longer than was asked for"
        found += page
        page = await backend.browse(queue, after=page[-1].id, limit=limit, head=head)
    return found


@rule("SIGN-3")
async def every_job_is_shown_once_by_id_with_where_it_stands(harness: Harness) -> None:
    """Ready, delayed and leased, whatever the page's length; whole payloads, or as much as was asked for."""
    backend = await harness.backend()
    if not _is_browsable(backend):
        return
    await _store(backend, ready=4, delayed=3)
    await backend.push([Message(job_id(50), "other", envelope(job_id(50)))])
    leased = {item.id for item in await backend.pop(["default"], 2)}

    for limit in (1, 3, 100):
        shown = await _all(backend, limit=limit)
        assert [held.id for held in shown] == [job_id(number) for number in range(1, 8)]
        assert {held.id for held in shown if held.standing is Standing.LEASED} == leased
        assert [held.id for held in shown if held.standing is Standing.DELAYED] == list(
            map(job_id, (5, 6, 7))
        )
        assert all(held.delay > 3_000 for held in shown if held.standing is Standing.DELAYED)
        assert all(held.payload == envelope(held.id) and held.queue == "default" for held in shown)
    assert [held.payload for held in await _all(backend, limit=5, head=7)] == [envelope(job_id(1))[:7]] * 7
    assert await backend.browse("never-used", after=None, limit=5) == []


@rule("SIGN-3")
async def looking_takes_nothing(harness: Harness) -> None:
    """What was looked at is handed out as before: no attempt, no lease, no other order."""
    backend, queue = await harness.backend(), await harness.queue()
    if not _is_browsable(backend):
        return
    ids = [await queue.push(Note(str(number))) for number in range(5)]

    await _all(backend, limit=2)

    await harness.expect_counts(queue, ready=5)
    taken = await harness.take_many(queue, 5)
    harness.expect_order(taken, ids)
    assert {delivery.attempt for delivery in taken} == {1}


@rule("SIGN-3")
async def a_job_shows_as_the_next_pop_would_find_it(harness: Harness) -> None:
    """A delay that is over and a lease that ran out make it ready, before any pop has noticed."""
    backend, holder = await harness.backend(), await harness.queue()
    if not _is_browsable(backend):
        return
    held = await holder.push(Note("held"))
    await harness.take(holder)
    due = await holder.push(Note("due"), delay=harness.lease / 2)
    await harness.lose(holder)

    async def both_are_ready() -> None:
        shown = {one.id: one.standing for one in await _all(backend, limit=10)}
        assert shown == {held: Standing.READY, due: Standing.READY}

    await eventually(both_are_ready, harness.patience)


@rule("SIGN-3")
async def a_job_that_moves_between_two_pages_is_not_overlooked(harness: Harness) -> None:
    """Popped, put back and popped again while pages are read, each that stays is shown exactly once."""
    backend = await harness.backend()
    if not _is_browsable(backend):
        return
    await _store(backend, ready=12)
    shown: list[str] = []
    page: Sequence[Held] = await backend.browse("default", after=None, limit=2)

    while page:
        shown += [held.id for held in page]
        queue = await harness.queue()
        for delivery in await queue.pop_now(3):
            await queue.release(delivery, delay=0 if len(shown) % 4 else 60)
        await queue.pop_now(1)
        page = await backend.browse("default", after=page[-1].id, limit=2)

    assert shown == [job_id(number) for number in range(1, 13)]


@rule("SIGN-3")
async def the_queues_that_hold_something_are_named(harness: Harness) -> None:
    """With waiting, leased, delayed or failed jobs, each once; one that never held anything is not there."""
    backend, queue = await harness.backend(), await harness.queue()
    if not _is_browsable(backend):
        return
    for name in ("waiting", "leased", "failed", "Under_score-7"):
        await queue.push(Note("here"), queue=name)
    await queue.push(Note("later"), queue="delayed", delay=3_600)
    await harness.take(queue, "leased")
    await queue.fail(await harness.take(queue, "failed"))
    await queue.stats("only-counted")

    named = list(await backend.queues())

    assert sorted(named) == sorted({"waiting", "leased", "failed", "Under_score-7", "delayed"})


@rule("SIGN-3")
async def the_inventory_counts_each_key_wherever_its_jobs_stand(harness: Harness) -> None:
    """Waiting, delayed, leased and failed, by key and beside those what no key seals; or it can't be told."""
    old, new, plain = [await harness.queue(keyring=ring) for ring in (OLD, BOTH, None)]
    if not _is_browsable(await harness.backend()):
        with raises(Unsupported, "counting what can't be looked at"):
            await new.keys.inventory()
        return
    await old.push(Note("taken"))
    await old.push(Note("failing"))
    taken, failing = await harness.take_many(old, 2)
    await old.fail(failing)
    for name in ("default", "elsewhere"):
        await old.push(Note("waiting"), queue=name)
    await new.push(Note("new"), delay=3_600)
    await plain.push(Note("plain"))

    counted = {key: _counts(use) for key, use in (await new.keys.inventory()).items()}
    of_one_queue = {key: _counts(use) for key, use in (await new.keys.inventory(["elsewhere"])).items()}

    assert counted == {"old": (2, 0, 1, 1), "new": (0, 1, 0, 0), None: (1, 0, 0, 0)}
    assert of_one_queue == {"old": (1, 0, 0, 0), "new": (0, 0, 0, 0), None: (0, 0, 0, 0)}
    await old.ack(taken)


@rule("SIGN-3")
async def a_key_is_retired_once_nothing_is_sealed_by_it(harness: Harness) -> None:
    """Any job in any queue holds it back, a failed one too; the active key stays; nothing is changed."""
    old, both = await harness.queue(keyring=OLD), await harness.queue(keyring=BOTH)
    if not _is_browsable(await harness.backend()):
        with raises(Unsupported, "retiring a key on a store that can't be looked through"):
            await both.keys.retire("old")
        return
    id = await old.push(Note("last"), queue="elsewhere")
    with raises(KeyInUse, "retiring a key that seals a waiting job"):
        await both.keys.retire("old")
    delivery = await harness.take(both, "elsewhere")
    with raises(KeyInUse, "retiring a key that seals a leased job"):
        await both.keys.retire("old")
    await both.fail(delivery)
    with raises(KeyInUse, "retiring a key that seals a failed job") as caught:
        await both.keys.retire("old")
    assert caught.error.counts == {"waiting": 0, "delayed": 0, "leased": 0, "failed": 1}
    with raises(KeyInUse, "retiring the active key"):
        await both.keys.retire("new")

    assert await both.failed.discard(id)
    await both.keys.retire("old")

    after = await harness.queue(keyring=NEW)
    assert (await after.keys.inventory())["new"].total == 0


def _counts(use: KeyUse) -> tuple[int, ...]:
    return use.waiting, use.delayed, use.leased, use.failed
