"""The roads that stored bytes take, and what must come of each payload on each of them.

Whatever the bytes are: nothing raises but what is documented, nothing runs that isn't proved, and nothing is
lost. A payload either runs as exactly what was pushed, or it is in the failed store, byte for byte.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import aqueue
from aqueue.backends.memory import MemoryBackend
from aqueue.contract.encryption import NONCE_BYTES, encrypted
from aqueue.contract.envelope import VERSION, Envelope, encoded
from aqueue.contract.signing import Keyring
from aqueue.errors import JobReconstructionError, KeyringMissing, UnknownEnvelopeVersion
from aqueue.jobs import job_type
from aqueue.port import FailedRecord, Message
from fuzz import shapes
from fuzz.mutations import damaged

_NEW, _OLD = b"a new secret of thirty-two bytes..", b"an old secret of thirty-two bytes!"
RING = Keyring(active="new", keys={"new": _NEW, "old": _OLD, "twin": _NEW})
_AES = AESGCM(RING.encryption_key("new") or b"")
_POOL = 300
_MOST_ROUNDS = 3


@dataclass(frozen=True)
class Pushed:
    """A job as it was pushed, and the bytes that were stored for it."""

    id: str
    job: object
    envelope: bytes
    payload: bytes


@dataclass(frozen=True)
class Path:
    """One road. `close` stores an envelope; a damaged envelope may be sealed anew, by one who holds a key."""

    name: str
    keyring: Keyring | None
    hide: Callable[[Envelope, Random], Envelope]
    close: Callable[[bytes, Random], bytes]
    reseals: bool = False
    retries: bool = False


def _as_it_is(envelope: Envelope, chance: Random) -> Envelope:
    return envelope


def _hidden(envelope: Envelope, chance: Random) -> Envelope:
    return encrypted(envelope, _AES, chance.randbytes(NONCE_BYTES))


def _bare(envelope: bytes, chance: Random) -> bytes:
    return envelope


def _sealed(envelope: bytes, chance: Random) -> bytes:
    return Keyring(active=chance.choice(("new", "new", "old", "twin")), keys=RING.keys).seal(envelope)


def _sealed_new(envelope: bytes, chance: Random) -> bytes:
    return RING.seal(envelope)


PATHS: Mapping[str, Path] = {
    path.name: path
    for path in (
        Path("unsealed", None, _as_it_is, _bare),
        Path("sealed", RING, _as_it_is, _sealed),
        Path("encrypted", RING, _hidden, _sealed_new),
        Path("resealed", RING, _as_it_is, _sealed_new, reseals=True),
        Path("encrypted-resealed", RING, _hidden, _sealed_new, reseals=True),
        Path("retried", RING, _as_it_is, _sealed, retries=True),
        Path("retried-unsealed", None, _as_it_is, _bare, retries=True),
    )
}


@dataclass
class Case:
    """One damaged payload, under the id of the job it was, or of another."""

    number: int
    original: Pushed
    id: str
    payload: bytes


class Road:
    """Runs the cases of one path, one after the other, on a memory store of its own."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.ends: Counter[str] = Counter()
        self._seed = seed
        chance = Random(f"{seed}/{path.name}/pool")
        self._pool = [_pushed(path, chance) for _ in range(_POOL)]
        self._by_id = {pushed.id: pushed for pushed in self._pool}
        self._payloads = [pushed.payload for pushed in self._pool]
        self._envelopes = [pushed.envelope for pushed in self._pool]
        self.queue = aqueue.connect("memory://", keyring=path.keyring)
        self._worker = aqueue.Worker(self.queue, list(shapes.SHAPES))
        backend = self.queue._store.backend
        assert isinstance(backend, MemoryBackend)
        self._backend = backend

    def case(self, number: int) -> Case:
        """Return a case, made from the seed, the path and its number alone."""
        chance = Random(f"{self._seed}/{self.path.name}/{number}")
        original = chance.choice(self._pool)
        if self.path.reseals:
            payload = self.path.close(damaged(original.envelope, chance, self._envelopes), chance)
        else:
            payload = damaged(original.payload, chance, self._payloads)
        moved = chance.random() < 0.05
        return Case(number, original, chance.choice(self._pool).id if moved else original.id, payload)

    async def run(self, case: Case) -> None:
        """Send the case down the road; raise `AssertionError` where it doesn't end as it must."""
        shapes.RAN.clear()
        if self.path.retries and not await self._put_back(case):
            return
        if not self.path.retries:
            await self._backend.push([Message(case.id, "default", case.payload)])
        await self._work(case)

    async def _put_back(self, case: Case) -> bool:
        """Try to put it back from the failed store; say whether it was."""
        record = FailedRecord(
            id=case.id, name="", queue="default", payload=case.payload, attempts=1, lost=0, reason="error"
        )
        await self._backend.keep([record])
        try:
            assert await self.queue.failed.retry(case.id), "a failed job that is there was not put back"
        except JobReconstructionError:
            await self._end(case, "left in the failed store")
            assert not self._is_proved(case), "a good job was not put back"
            return False
        return True

    async def _work(self, case: Case) -> None:
        for _ in range(_MOST_ROUNDS):
            try:
                outcome = await self._worker.run_one()
            except UnknownEnvelopeVersion:
                self._check_may_be_read(case)
                await self._left_alone(case, "another version")
                return
            except KeyringMissing:
                assert self.path.keyring is None
                await self._left_alone(case, "sealed, and no keys")
                return
            if outcome is aqueue.Outcome.ACKED:
                self._check_ran(case)
                self.ends["ran"] += 1
                return
            if outcome is not aqueue.Outcome.RELEASED:
                await self._end(case, None)
                return
            self._check_may_be_read(case)
        await self._left_alone(case, "waits for another attempt")

    async def _end(self, case: Case, how: str | None) -> None:
        """It is in the failed store, as it was, and nowhere else."""
        assert not shapes.RAN, "a job that was set aside had been run"
        [record] = await self._backend.failed_page(queue=None, job=None, after=None, limit=2)
        stats = await self.queue.stats()
        assert (stats.ready, stats.delayed, stats.leased) == (0, 0, 0), f"something is left: {stats}"
        assert record.payload == case.payload, "the failed store holds other bytes"
        assert record.id == case.id
        assert record.reason in {"error", "malformed", "signature"}, record.reason
        if how is None and record.reason == "error":
            self._check_may_be_read(case)
        if how is None and record.reason == "malformed" and self._must_be_proved:
            assert case.payload in self._payloads, "something unproved was parsed"
        assert await self._backend.failed_discard(record)
        self.ends[how or record.reason] += 1

    async def _left_alone(self, case: Case, how: str) -> None:
        [held] = await self._backend.browse("default", after=None, limit=2)
        assert (held.id, held.payload) == (case.id, case.payload), "what was left alone is not what it was"
        assert not shapes.RAN
        assert await self._backend.clear("default") == 1
        self.ends[how] += 1

    @property
    def _must_be_proved(self) -> bool:
        return self.path.keyring is not None and not self.path.reseals

    def _is_proved(self, case: Case) -> bool:
        """Whether these are the very bytes that were stored for this id."""
        return case.id in self._by_id and self._by_id[case.id].payload == case.payload

    def _check_may_be_read(self, case: Case) -> None:
        """What was parsed must have been proved, or sealed anew by one who may, or need no proof."""
        if self._must_be_proved:
            assert self._is_proved(case), "something unproved was parsed"

    def _check_ran(self, case: Case) -> None:
        assert len(shapes.RAN) == 1, f"{len(shapes.RAN)} handlers ran"
        [job] = shapes.RAN
        self._check_may_be_read(case)
        said = _said(case)
        if self._is_proved(case) or (said is not None and "$aes" in said["args"]):
            assert job == self._by_id[case.id].job, "another job ran than was pushed"
        elif said is not None:
            _check_is_what_it_says(said, case, job)


def _pushed(path: Path, chance: Random) -> Pushed:
    job, id = shapes.some_job(chance), chance.randbytes(16).hex()
    declared = job_type(job)
    metadata = {"traceparent": "00-" + chance.randbytes(16).hex()} if chance.random() < 0.3 else {}
    envelope = Envelope(
        VERSION,
        id,
        declared.name,
        1.8e9 + chance.random(),
        msgspec.Raw(declared.codec.encode(job)),
        1,
        metadata,
    )
    stored = encoded(path.hide(envelope, chance))
    return Pushed(id, job, stored, path.close(stored, chance))


def _said(case: Case) -> dict[str, Any] | None:
    """Return the envelope as another reader reads it; None where that one finds it too deep."""
    text = case.payload[case.payload.index(b"{") :].decode()
    try:
        said: dict[str, Any] = json.loads(text, parse_int=_number)
    except RecursionError:
        return None
    return said


def _check_is_what_it_says(said: dict[str, Any], case: Case, job: object) -> None:
    """Nobody proved these bytes, but they must not run as something else than they say to another reader."""
    declared = job_type(job)
    wire = json.loads(declared.codec.encode(job))  # raises where the job holds what could not be pushed
    assert said["id"] == case.id
    assert said["name"] == declared.name
    if declared.payload is not shapes.Rich:  # its texts have more than one spelling
        assert _agrees(said["args"], wire), f"{said['args']} ran as {wire}"


def _number(digits: str) -> Any:
    return int(digits) if len(digits) < 100 else digits


def _agrees(said: Any, ran: Any) -> bool:
    """Whether what ran holds what was said; it may hold defaults beside it."""
    if isinstance(said, dict) and isinstance(ran, dict):
        return all(name in ran and _agrees(value, ran[name]) for name, value in said.items())
    if isinstance(said, list) and isinstance(ran, list):
        return len(said) == len(ran) and all(map(_agrees, said, ran))
    return type(said) is type(ran) and bool(said == ran)
