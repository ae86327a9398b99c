"""Jobs that don't fit the code any more, and bytes that are no jobs at all (ARG-5, MAL-1)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support import fixtures
from support.fixtures import Place
from support.working import all_settled, counts, logged, running
from telemetry_sdk import Seen

from aqueue import (
    AppScope,
    Backoff,
    Depends,
    FailedJob,
    Handlers,
    JobEvent,
    KeyringMissing,
    Outcome,
    RequestScope,
    Worker,
    job,
)
from aqueue.contract.signing import Keyring
from aqueue.port import Message
from aqueue.testing import eventually

any_place, memory, place = fixtures.any_place, fixtures.memory, fixtures.place
SECRET = "swordfish"


@job(name="payloads.note")
class Note:
    text: str = ""


@job(name="payloads.changing")
class Pushed:
    """The class as the producer knows it."""

    text: str
    number: int = 0


def changed(**fields: Any) -> type:
    """Declare the class as the worker knows it."""
    body = {"__annotations__": fields, "__module__": __name__, "handle": _never}
    return job(name="payloads.changing")(type("Changed", (), body))


async def _never(_: object) -> None:
    raise AssertionError("a job that can't be rebuilt was handled")


class Picky:
    text: str
    number: int

    def __post_init__(self) -> None:
        raise ValueError(f"not {self.text}")

    async def handle(self) -> None:
        raise AssertionError("a job that can't be rebuilt was handled")


def nobody() -> type:
    return job(name="payloads.someone-else")(type("Other", (), {"handle": _never, "__module__": __name__}))


UNFIT: dict[str, tuple[Callable[[], type], str]] = {
    "unknown name": (nobody, "UnhandledJob"),
    "missing argument": (lambda: changed(text=str, number=int, added=str), "JobReconstructionError"),
    "extra argument": (lambda: changed(text=str), "JobReconstructionError"),
    "unrestorable argument": (lambda: changed(text=int, number=int), "JobReconstructionError"),
    "constructor raises": (
        lambda: job(name="payloads.changing")(type("Picky", (Picky,), {"__module__": __name__})),
        "JobReconstructionError",
    ),
}


@pytest.mark.rule("ARG-5")
@pytest.mark.parametrize("case", UNFIT)
async def test_a_job_the_code_does_not_fit_is_retried_and_set_aside_with_its_payload_intact(
    place: Place, case: str
) -> None:
    declare, error = UNFIT[case]
    queue = await place.queue()
    await queue.push(Pushed(SECRET, 7))
    (delivery,) = await queue.pop_now(1)
    before = delivery.reserved.payload
    await queue.release(delivery, counted=False)

    with logged() as log:
        handled = await Worker(queue, [declare()], max_attempts=3, backoff=Backoff.none()).run_all()

    assert handled == 3
    (failed,) = await queue.failed.list()
    assert (failed.reason, failed.attempts, failed.name) == ("error", 3, "payloads.changing")
    assert failed.error_type.rpartition(".")[2] == error
    assert "payloads.changing" in failed.error
    assert SECRET not in failed.error
    assert failed.payload == before
    assert failed.args == {"text": SECRET, "number": 7}
    assert any("payloads.changing" in message for message in log.messages())


@pytest.mark.rule("ARG-5")
async def test_a_job_set_aside_for_old_code_runs_after_the_deploy_that_knows_it(place: Place) -> None:
    queue, done = await place.queue(), []
    await queue.push(Pushed("hello", 7))
    await Worker(queue, []).run_all()
    handlers = Handlers()

    @handlers.on(Pushed)
    async def handle(pushed: Pushed) -> None:
        done.append(pushed)

    assert await queue.failed.retry_all() == 1
    assert await Worker(queue, handlers).run_one() is Outcome.ACKED
    assert done == [Pushed("hello", 7)]


@pytest.mark.rule("ARG-5")
async def test_a_parameter_that_proves_unresolvable_fails_its_job_and_names_itself(place: Place) -> None:
    """An initializer may provide any type, so this can be known only when the job runs."""
    queue, handlers = await place.queue(), Handlers()

    class Ledger: ...

    async def handle(_: Note, ledger: Ledger) -> None: ...

    handle.__annotations__["ledger"] = Ledger
    handlers.on(Note, handle)
    await queue.push(Note(SECRET))

    def initialize(_: RequestScope) -> None: ...

    worker = Worker(queue, handlers, scope=AppScope(initializers=[initialize]), max_attempts=2)
    assert await worker.run_all() == 2
    (failed,) = await queue.failed.list()
    assert failed.error_type == "aqueue.errors.UnresolvableParameter"
    assert "payloads.note" in failed.error
    assert "ledger" in failed.error
    assert SECRET not in failed.error


@pytest.mark.rule("ARG-5", "WORK-3")
@pytest.mark.parametrize("where", ["scope", "dependency", "middleware"])
async def test_an_error_before_the_handler_ends_like_the_handlers_own(place: Place, where: str) -> None:
    queue, handlers, tries = await place.queue(), Handlers(), []

    async def breaks(*_: object) -> None:
        tries.append(where)
        raise LookupError(f"the {where} broke")

    def dependency() -> None:
        tries.append(where)
        raise LookupError("the dependency broke")

    if where == "dependency":

        @handlers.on(Note)
        async def handle(_: Note, __: None = Depends(dependency)) -> None: ...

    else:

        @handlers.on(Note)
        async def handle_alone(_: Note) -> None: ...

    worker = Worker(
        queue,
        handlers,
        max_attempts=3,
        scope=AppScope(initializers=[breaks] if where == "scope" else []),
        middleware=[breaks] if where == "middleware" else [],
    )
    await queue.push_many([Note(), Note()])

    async with running(worker):
        await all_settled(queue)
    assert len(tries) == 6
    assert [(failed.reason, failed.error) for failed in await queue.failed.list()] == [
        ("error", f"the {where} broke")
    ] * 2


@pytest.mark.rule("MAL-1")
async def test_bytes_nobody_can_read_are_set_aside_and_the_worker_goes_on(place: Place) -> None:
    seen, done = Seen(), []
    queue = await place.queue(tracer_provider=seen.tracer_provider, meter_provider=seen.meter_provider)
    rubbish = await store_rubbish(place, b"rubbish", b'{"v":1}', b"\xff\x00")
    await queue.push(Note("good"))
    events: list[JobEvent] = []
    scopes: list[RequestScope] = []
    handlers = Handlers()

    @handlers.on(Note)
    async def handle(note: Note) -> None:
        done.append(note.text)

    worker = Worker(queue, handlers, scope=AppScope(initializers=[scopes.append]), concurrency=10)
    worker.listen(JobEvent, events.append)

    with logged() as log:
        async with running(worker):
            await eventually(lambda: bool(done))
            await all_settled(queue)

    failed = await queue.failed.list()
    assert sorted((each.id, each.reason, each.args) for each in failed) == [
        (job_id, "malformed", None) for job_id in rubbish
    ]
    assert [each.payload for each in sorted(failed, key=by_id)] == [b"rubbish", b'{"v":1}', b"\xff\x00"]
    assert all(any(job_id in text for text in log.messages(level=30)) for job_id in rubbish)
    assert len(scopes) == len(events) == 1
    assert len([span for span in seen.spans if span.name == "process default"]) == 1


@pytest.mark.rule("MAL-1")
async def test_an_unreadable_job_counts_as_one_that_was_handled(place: Place) -> None:
    queue = await place.queue()
    await store_rubbish(place, b"rubbish", b"more rubbish")

    assert await Worker(queue, [], concurrency=1).run_all() == 2
    await store_rubbish(place, b"rubbish", first=7)
    assert await Worker(queue, []).run_one() is Outcome.MALFORMED
    assert await counts(queue) == (0, 0, 0, 3)


@pytest.mark.rule("MAL-1")
async def test_sealed_jobs_without_a_keyring_are_left_where_they_are_and_the_worker_is_unwell(
    place: Place,
) -> None:
    keyring = Keyring(active="k", keys={"k": b"x" * 32})
    sealing = await place.queue(keyring=keyring)
    await sealing.push(Note("sealed"))
    queue = await place.queue()
    worker = Worker(queue, [])

    with pytest.raises(KeyringMissing):
        await worker.run_one()
    async with running(worker):
        await eventually(lambda: isinstance(worker.health().last_error, KeyringMissing))
        assert not worker.health().ok

    async def waits_again() -> bool:
        return await counts(queue) == (1, 0, 0, 0)

    await eventually(waits_again)
    (delivery,) = await sealing.pop_now(1)
    assert (delivery.attempt, delivery.lost) == (1, 0)


async def store_rubbish(place: Place, *payloads: bytes, first: int = 1) -> list[str]:
    """Store bytes that no queue would write, and return their ids."""
    backend = await place.backend()
    ids = [f"{number:032x}" for number in range(first, first + len(payloads))]
    await backend.push([Message(id, "default", raw) for id, raw in zip(ids, payloads, strict=True)])
    await asyncio.sleep(0)
    return ids


def by_id(failed: FailedJob) -> str:
    return failed.id
