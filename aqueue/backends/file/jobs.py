"""The verbs on jobs, as plans."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from aqueue.backends.file.commit import Commit
from aqueue.backends.file.disk import Draft
from aqueue.backends.file.names import (
    LEASE_BUCKET,
    UNREADABLE,
    Entry,
    bucket_of,
    lease_of,
    leased_name,
    micros,
    token_of,
)
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.refusal import refused, refusing
from aqueue.backends.file.session import Session
from aqueue.backends.file.steps import Place
from aqueue.port import Answer, Message, NotDispatched, Refused, Releasing, Reserved, Verdict

_KNOWN = 100_000

Act = Callable[[Session, str, Entry], None]
"""What to do to the file of a hand-out, given its path and what its name says."""


def push(commit: Commit, batch: Sequence[Message]) -> Plan[list[None]]:
    """Store the whole batch or nothing of it; an id that its queue holds is stored already (PUSH-10)."""
    drafts = [commit.directory.job_draft(message) for message in batch]
    yield from written(commit, drafts)
    with kept_or_discarded(commit, drafts), commit.locked(message.queue for message in batch) as sessions:
        with refusing():
            arrivals = list(_arrivals(commit, sessions, zip(batch, drafts, strict=True)))
        if len(arrivals) == 1:
            commit.place_alone(*arrivals[0])
        elif arrivals:
            commit.perform(sessions.values(), [step for _, step in arrivals])
    return [None] * len(batch)


def _arrivals(
    commit: Commit, sessions: dict[str, Session], jobs: Iterator[tuple[Message, Draft]]
) -> Iterator[tuple[Session, Place]]:
    """Return the step of each job that is new; the drafts of the others are not wanted."""
    seen: set[tuple[str, str]] = set()
    for message, draft in jobs:
        session = sessions[message.queue]
        if (message.queue, message.id) in seen or session.holds(message.id):
            commit.discard(draft.path)
            commit.touch(session.place.ids)
            continue
        seen.add((message.queue, message.id))
        yield session, session.arrival_of(message, draft)


def ack(commit: Commit, batch: Sequence[Reserved]) -> Plan[list[Answer]]:
    """Remove each job that its delivery still holds."""
    yield ()
    return settled(commit, [(item, _remove) for item in batch])


def release(commit: Commit, batch: Sequence[Releasing]) -> Plan[list[Answer]]:
    """Put each job back: to wait for its time, at the end of the queue, or uncounted where it was (REL-1)."""
    yield ()
    return settled(commit, [(item.reserved, _putting_back(item)) for item in batch])


def extend(commit: Commit, batch: Sequence[Reserved]) -> list[Answer]:
    """Start each lease anew that its delivery still holds (LEASE-3)."""
    return settled(commit, [(item, _renew) for item in batch])


def settled(commit: Commit, items: Sequence[tuple[Reserved, Act]]) -> list[Answer]:
    """Do something to each hand-out that still holds its job, each of them one step."""
    answers: list[Answer] = [Verdict.STALE] * len(items)
    for queue in {item.queue for item, _ in items}:
        of_queue = [at for at, (item, _) in enumerate(items) if item.queue == queue]
        with answered(answers, of_queue), commit.found(queue) as session:
            if session is not None:
                for at in of_queue:
                    answers[at] = _answer(session, *items[at])
    return answers


@contextmanager
def answered(answers: list[Answer], positions: Sequence[int]) -> Iterator[None]:
    """Answer these with the error, if there is one: other queues' were settled by themselves."""
    try:
        yield
    except (NotDispatched, Refused, OSError) as error:
        for at in positions:
            answers[at] = error


def _answer(session: Session, item: Reserved, act: Act) -> Answer:
    try:
        held = session.settle(lease_of(item.receipt), lambda path, entry: act(session, path, entry))
    except OSError as error:
        return refused(error)
    return Verdict.SETTLED if held else Verdict.STALE


def _remove(session: Session, path: str, entry: Entry) -> None:
    session.remove(path, session.second(entry.id))


def _renew(session: Session, path: str, entry: Entry) -> None:
    directory, token = session.commit.directory, token_of(path.rpartition("/")[2])
    expiry = directory.now() + directory.lease
    home = f"{session.place.leased}/{bucket_of(expiry, LEASE_BUCKET)}/{leased_name(expiry, token, entry)}"
    session.commit.move(path, home)
    if len(directory.moved) >= _KNOWN:  # what is forgotten is looked for
        directory.moved.clear()
    directory.moved[token] = home


def _putting_back(item: Releasing) -> Act:
    def put_back(session: Session, path: str, entry: Entry) -> None:
        now = session.commit.directory.now()
        if item.counted and entry.attempts != UNREADABLE:
            entry = entry._replace(attempts=entry.attempts + 1, lost=0)
        if item.delay > 0:
            due = now + micros(item.delay)
            home = session.home_of(entry._replace(since=due), due)
        elif item.counted:
            home = session.home_of(entry._replace(seq=session.next_seq(), since=now))
        else:
            home = f"{session.place.returned}/{entry.tail}"
        session.arrive()
        session.commit.move(path, home)

    return put_back


def written(commit: Commit, drafts: Sequence[Draft]) -> Plan[None]:
    """Have drafts written; raises `Refused` unless all of them are."""
    try:
        errors = yield drafts
    except GeneratorExit:  # nobody wants them any more
        _discard(commit, drafts)
        raise
    for error in errors:
        if error is not None:
            _discard(commit, drafts)
            raise refused(error)


@contextmanager
def kept_or_discarded(commit: Commit, drafts: Sequence[Draft]) -> Iterator[None]:
    """Discard the drafts if it is certain that none of them will be put anywhere."""
    try:
        yield
    except (NotDispatched, Refused):
        _discard(commit, drafts)
        raise


def _discard(commit: Commit, drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        commit.discard(draft.path)
