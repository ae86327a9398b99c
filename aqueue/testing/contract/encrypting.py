"""Encrypted arguments, as queues meet them: readable with their key alone, wherever they are (SIGN-4).

These checks need the extra `crypto`, as every queue that encrypts does.
"""

from aqueue.contract.envelope import decode_envelope, encoded
from aqueue.contract.signing import Keyring
from aqueue.errors import JobReconstructionError, KeyringMissing, MalformedJobSettled
from aqueue.queue import Queue
from aqueue.testing.contract.harness import Harness
from aqueue.testing.contract.raising import raises
from aqueue.testing.contract.rules import rule
from aqueue.testing.contract.samples import Note, envelope, job_id, store_raw

_OLD, _NEW = b"an old secret of thirty-two bytes!", b"a new secret of thirty-two bytes.."
OLD = Keyring(active="old", keys={"old": _OLD}, encrypt=True)
BOTH = Keyring(active="new", keys={"old": _OLD, "new": _NEW}, encrypt=True)
PLAIN = Keyring(active="new", keys={"old": _OLD, "new": _NEW})
OTHER = Keyring(active="old", keys={"old": b"another secret under the same name"})


@rule("SIGN-4")
async def encrypted_jobs_travel_and_come_back(harness: Harness) -> None:
    """The store never holds the arguments in clear: not while they wait, nor failed, nor put back."""
    queue = await harness.queue(keyring=OLD)
    id = await queue.push(Note("attack at dawn"), max_attempts=3)
    delivery = await harness.take(queue)
    payload = delivery.reserved.payload
    assert payload.startswith(b"aq1.old.")
    assert b"dawn" not in payload
    assert (delivery.id, delivery.job(Note), delivery.max_attempts) == (id, Note("attack at dawn"), 3)

    await queue.fail(delivery)
    failed = await queue.failed.get(id)
    assert failed is not None
    assert (failed.payload, failed.args) == (payload, {"text": "attack at dawn"})
    assert await queue.failed.retry(id)

    assert (await harness.take(queue)).reserved.payload == payload


@rule("SIGN-4")
async def a_fleet_may_be_mixed(harness: Harness) -> None:
    """Whoever holds the keys reads both kinds, and older keys, whether it encrypts itself or not."""
    old, new, plain = [await harness.queue(keyring=ring) for ring in (OLD, BOTH, PLAIN)]
    for queue, text in ((old, "old"), (new, "new"), (plain, "plain")):
        await queue.push(Note(text))
    half = await harness.take_many(new, 3)

    assert {delivery.job(Note).text for delivery in half} == {"old", "new", "plain"}
    for delivery in half:
        await new.release(delivery)
    assert {delivery.job(Note).text for delivery in await harness.take_many(plain, 3)} == {
        "old",
        "new",
        "plain",
    }


@rule("SIGN-4", "MAL-1")
async def what_can_not_be_decrypted_is_set_aside(harness: Harness) -> None:
    """Ciphertext that was changed, or moved to another job, by somebody who could even seal it anew."""
    queue, backend = await harness.queue(keyring=OLD), await harness.backend()
    stored = [await _stored_payload(harness, queue, text) for text in ("one", "two")]
    inside = [decode_envelope(OLD.open(payload)) for payload in stored]
    args = [bytes(each.args) for each in inside]
    forged = [
        OLD.seal(envelope(job_id(1), args=args[0])),
        OLD.seal(encoded(inside[0]).replace(args[0], args[1]).replace(inside[0].id.encode(), _id(2))),
        OLD.seal(envelope(job_id(3), args=args[0][:40] + b'"}')),
        OLD.seal(envelope(job_id(4), args=b'{"$aes":7}')),
        OLD.seal(envelope(job_id(5), args=b'{"$aes":"!"}')),
        OLD.seal(envelope(job_id(6), args=b'{"$aes":"","text":"beside"}')),
    ]

    ids = await store_raw(backend, *forged)
    await _set_aside(harness, queue, ids)

    failed = {job.id: job for job in await queue.failed.list()}
    assert [failed[id].payload for id in ids] == forged
    assert all(job.args is None for job in failed.values())


@rule("SIGN-4")
async def a_wrong_key_shows_nothing(harness: Harness) -> None:
    """Another secret under the same id, or none: nothing is read, and the right one still reads all."""
    queue, wrong = await harness.queue(keyring=OLD), await harness.queue(keyring=OTHER)
    keyless = await harness.queue()
    id = await queue.push(Note("attack at dawn"))
    with raises(KeyringMissing, "popping an encrypted job without keys"):
        await keyless.pop(timeout=harness.patience)
    await _set_aside(harness, wrong, [id])

    listed = [(job.id, job.args) for job in await wrong.failed.list()]
    assert listed == [(id, None)]
    with raises(JobReconstructionError, "putting back what can't be decrypted"):
        await wrong.failed.retry(id)

    if harness.keeps_failed:
        shown = await queue.failed.get(id)
        assert shown is not None
        assert shown.args == {"text": "attack at dawn"}
        assert await queue.failed.retry(id)
        assert (await harness.take(queue)).job(Note) == Note("attack at dawn")


def _id(number: int) -> bytes:
    return job_id(number).encode()


async def _stored_payload(harness: Harness, queue: Queue, text: str) -> bytes:
    await queue.push(Note(text))
    delivery = await harness.take(queue)
    await queue.ack(delivery)
    return delivery.reserved.payload


async def _set_aside(harness: Harness, queue: Queue, ids: list[str]) -> None:
    settled: list[str] = []
    while len(settled) < len(ids):
        with raises(MalformedJobSettled, "popping what can't be decrypted") as caught:
            await queue.pop_many(50, timeout=harness.patience)
        assert set(caught.error.reasons) == {"signature"}
        settled += caught.error.job_ids
    assert sorted(settled) == sorted(ids)
