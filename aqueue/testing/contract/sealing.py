"""Seals, as queues meet them: what is not proved never runs, and what can't be proved here is left alone."""

import time
from datetime import UTC, datetime
from uuid import uuid4

from aqueue.contract.signing import Keyring
from aqueue.errors import JobReconstructionError, KeyringMissing, MalformedJobSettled
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id, store_raw

_OLD, _NEW = b"an old secret of thirty-two bytes!", b"a new secret of thirty-two bytes.."
OLD = Keyring(active="old", keys={"old": _OLD})
BOTH = Keyring(active="new", keys={"old": _OLD, "new": _NEW})
NEW = Keyring(active="new", keys={"new": _NEW})


@rule("SIGN-1")
async def sealed_jobs_travel_and_come_back(harness: Harness) -> None:
    """The stored bytes name their key, and stay the same through failing and retrying."""
    queue = await harness.queue(keyring=OLD)
    id = await queue.push(Note("hello"), max_attempts=3)
    delivery = await harness.take(queue)
    payload = delivery.reserved.payload
    assert payload.startswith(b"aq1.old.")
    assert (delivery.id, delivery.job(Note), delivery.max_attempts) == (id, Note("hello"), 3)

    await queue.fail(delivery)
    failed = await queue.failed.get(id)
    assert failed is not None
    assert (failed.payload, failed.args) == (payload, {"text": "hello"})
    assert await queue.failed.retry(id)

    assert (await harness.take(queue)).reserved.payload == payload


@rule("SIGN-2")
async def known_older_keys_stay_readable(harness: Harness) -> None:
    """A rotated keyring opens what the old key sealed and seals with the new one."""
    before, after = await harness.queue(keyring=OLD), await harness.queue(keyring=BOTH)
    await before.push(Note("old"))
    await after.push(Note("new"))

    payloads = {d.args["text"]: d.reserved.payload for d in await harness.take_many(after, 2)}

    assert payloads["old"].startswith(b"aq1.old.")
    assert payloads["new"].startswith(b"aq1.new.")


@rule("SIGN-2", "MAL-1")
async def what_is_not_proved_never_runs(harness: Harness) -> None:
    """A changed byte, an unknown key, no seal at all: set aside as `signature` with the stored bytes."""
    queue, backend = await harness.queue(keyring=NEW), await harness.backend()
    sealed = [NEW.seal(envelope(job_id(n))) for n in range(1, 5)]
    payloads = [
        sealed[0].replace(b"hand-made", b"forged!!!"),
        sealed[1].replace(b"aq1.new.", b"aq1.old."),
        OLD.seal(envelope(job_id(3))),
        envelope(job_id(4)),
        b"aq1.new.short." + envelope(job_id(5)),
    ]
    ids = await store_raw(backend, *payloads)

    await _set_aside(harness, queue, ids)

    failed = {job.id: job for job in await queue.failed.list()}
    assert set(failed) == set(ids), "not everything that left the queue is in the failed store"
    assert [failed[id].payload for id in ids] == payloads
    assert {job.reason for job in failed.values()} == {"signature"}
    assert all(job.args is None for job in failed.values()), "an unproved payload was parsed"
    await harness.expect_counts(queue)


async def _set_aside(harness: Harness, queue: Queue, ids: list[str]) -> None:
    settled: list[str] = []
    while len(settled) < len(ids):
        with raises(MalformedJobSettled, "popping an unproved job") as caught:
            await queue.pop_many(50, timeout=harness.patience)
        assert set(caught.error.reasons) == {"signature"}
        settled += caught.error.job_ids
    assert sorted(settled) == sorted(ids)


@rule("SIGN-2", "FAIL-2")
async def a_retry_verifies_the_seal_first(harness: Harness) -> None:
    """What was set aside for its seal can't be put back until its key is known."""
    queue, backend = await harness.queue(keyring=NEW), await harness.backend()
    [id] = await store_raw(backend, OLD.seal(envelope(job_id(1))))
    await _set_aside(harness, queue, [id])

    with raises(JobReconstructionError, "putting an unproved job back"):
        await queue.failed.retry(id)
    knowing = await harness.queue(keyring=BOTH)

    if harness.keeps_failed:
        assert await knowing.failed.retry(id)
        assert (await harness.take(knowing)).id == id


@rule("SIGN-2")
async def unsigned_jobs_run_only_where_it_was_allowed(harness: Harness) -> None:
    """`accept_unsigned` is for the cut-over: it takes the unsealed, but never a bad seal."""
    plain, queue = await harness.queue(), await harness.queue(keyring=NEW, accept_unsigned=True)
    backend = await harness.backend()
    id = await plain.push(Note("unsealed"))
    assert (await harness.take(queue)).id == id

    forged = NEW.seal(envelope(job_id(1))).replace(b"hand-made", b"forged!!!")
    ids = await store_raw(backend, forged, OLD.seal(envelope(job_id(2))), b"aq1.new.damaged")
    await _set_aside(harness, queue, ids)


@rule("SIGN-2")
async def the_cut_over_ends_by_itself(harness: Harness) -> None:
    """`accept_unsigned` may be a moment: until then the unsealed is read, and set aside from then on."""
    plain = await harness.queue()
    now = harness.clock() if harness.clock is not None else time.time()
    open_still, closed = datetime.fromtimestamp(now + 3_600, UTC), datetime.fromtimestamp(now - 1, UTC)
    late = await harness.queue(keyring=NEW, accept_unsigned=closed)
    early = await harness.queue(keyring=NEW, accept_unsigned=open_still)
    first = await plain.push(Note("in time"))
    await early.ack(await harness.take(early))
    second = await plain.push(Note("too late"))

    await _set_aside(harness, late, [second])

    assert first != second
    failed = await late.failed.get(second)
    assert failed is not None
    assert (failed.reason, failed.args) == ("signature", None)
    if harness.keeps_failed:
        assert await early.failed.retry(second)
        assert (await harness.take(early)).id == second


@rule("SIGN-2", "MAL-1")
async def a_seal_is_good_for_its_own_job_alone(harness: Harness) -> None:
    """A proved payload that was put in another job's place never runs there."""
    queue, backend = await harness.queue(keyring=NEW), await harness.backend()
    swapped = [NEW.seal(envelope(job_id(2))), NEW.seal(envelope(job_id(1)))]
    ids = await store_raw(backend, *swapped)
    settled: list[str] = []

    while len(settled) < len(ids):
        with raises(MalformedJobSettled, "popping a job in another's place") as caught:
            await queue.pop_many(50, timeout=harness.patience)
        settled += caught.error.job_ids

    assert sorted(settled) == ids
    failed = {job.id: job for job in await queue.failed.list()}
    assert [failed[id].payload for id in ids] == swapped
    for id in ids:
        with raises(JobReconstructionError, "putting a job back in another's place"):
            await queue.failed.retry(id)


@rule("SIGN-2", "FAIL-1")
async def a_failed_store_elsewhere_verifies_as_well(harness: Harness) -> None:
    """It keeps the sealed bytes, lists what its queue's keys open, and puts nothing back unproved."""
    keeper = f"memory://{uuid4().hex}"
    queue, backend = await harness.queue(keyring=NEW, failed=keeper), await harness.backend()
    id = await queue.push(Note("sealed"))
    await queue.fail(await harness.take(queue))
    [unproved] = await store_raw(backend, OLD.seal(envelope(job_id(1))))
    await _set_aside(harness, queue, [unproved])

    kept = {job.id: job for job in await queue.failed.list()}
    assert (kept[id].payload[:8], kept[id].args) == (b"aq1.new.", {"text": "sealed"})
    assert (kept[unproved].payload, kept[unproved].args) == (OLD.seal(envelope(job_id(1))), None)
    with raises(JobReconstructionError, "putting an unproved job back from elsewhere"):
        await queue.failed.retry(unproved)
    assert await queue.failed.retry(id)

    assert (await harness.take(queue)).reserved.payload == kept[id].payload
    assert [job.id for job in await queue.failed.list()] == [unproved]


@rule("SIGN-1", "WIRE-1")
async def a_sealed_job_met_without_keys_is_left_alone(harness: Harness) -> None:
    """The set-up is wrong, not the job: the pop raises, nothing is settled, no attempt is counted."""
    sealing, keyless = await harness.queue(keyring=NEW), await harness.queue()
    id = await sealing.push(Note("sealed"))

    for _ in range(3):
        with raises(KeyringMissing, "popping a sealed job without keys"):
            await keyless.pop(timeout=harness.patience)

    assert await keyless.failed.count() == 0
    await harness.expect_counts(sealing, ready=1)
    delivery = await harness.take(sealing)
    assert delivery.id == id
    harness.expect_attempt(delivery, 1, given_back=3)


@rule("SIGN-1")
async def a_failed_sealed_job_is_listed_without_keys(harness: Harness) -> None:
    """Its arguments are not shown, and it can't be put back; but it is seen, and kept."""
    sealing = await harness.queue(keyring=NEW)
    if not harness.keeps_failed:
        return  # the listing then belongs to another store, with the same rule
    id = await sealing.push(Note("sealed"))
    await sealing.fail(await harness.take(sealing))
    keyless = await harness.queue()

    listed = [(job.id, job.name, job.args) for job in await keyless.failed.list()]
    assert listed == [(id, "contract.note", None)]
    with raises(JobReconstructionError, "putting a sealed job back without keys"):
        await keyless.failed.retry(id)

    assert await sealing.failed.retry(id)
