"""The verbs on failed jobs, as plans."""

from collections.abc import Sequence

import msgspec

from aqueue.backends.file import records
from aqueue.backends.file.commit import Commit
from aqueue.backends.file.disk import Draft, links_of, parent
from aqueue.backends.file.jobs import answered, kept_or_discarded, written
from aqueue.backends.file.names import MICRO, Entry, file_id, lease_of
from aqueue.backends.file.plans import Plan
from aqueue.backends.file.records import Found, Segments
from aqueue.backends.file.refusal import refused, refusing
from aqueue.backends.file.session import Session
from aqueue.backends.file.state import StateFile
from aqueue.backends.file.steps import Drop, Forget, Place, Step
from aqueue.port import Answer, FailedRecord, Failing, Message, NotDispatched, Refused, Reserved, Verdict


class Filing:
    """New records for one queue, whose session is given: the steps that put them where they belong."""

    def __init__(self, session: Session) -> None:
        self.steps: list[Step] = []
        self._session = session
        self._segments = Segments(session.place)
        self._filed: dict[str, tuple[FailedRecord, str]] = {}

    def add(self, record: FailedRecord, draft: Draft) -> None:
        """File a record; the same failure twice is filed once, a later one of the job takes its place."""
        commit = self._session.commit
        known, path = self._known(record.id)
        if known is not None and known.delivery == record.delivery:
            commit.discard(draft.path)
            return
        home = self._segments.home_of(record)
        self.steps.append(commit.place(draft, home, second_of(self._session, record.id)))
        if path is not None:
            self.steps.append(Drop(commit.layout.relative(path)))
        self._filed[record.id] = (record, home)

    def _known(self, id: str) -> tuple[FailedRecord | None, str | None]:
        if id in self._filed:
            return self._filed[id]
        known = records.of_job(self._session.place, id)
        return known, records.path_of(self._session.place, known) if known is not None else None


def fail(commit: Commit, batch: Sequence[Failing]) -> Plan[list[Answer]]:
    """Swap each job that its delivery still holds for its record (FAIL-1)."""
    stamped = _stamped(commit, [item.record for item in batch])
    drafts = [_draft(commit, record) for record in stamped]
    yield from written(commit, drafts)
    answers: list[Answer] = [Verdict.STALE] * len(batch)
    for queue in {item.reserved.queue for item in batch}:
        of_queue = [at for at, item in enumerate(batch) if item.reserved.queue == queue]
        with answered(answers, of_queue), commit.found(queue) as session:
            if session is not None:
                swap = _Swap(session)
                for at in of_queue:
                    if swap.add(batch[at].reserved, stamped[at], drafts[at]):
                        answers[at] = Verdict.SETTLED
                swap.perform()
    for draft, answer in zip(drafts, answers, strict=True):
        if answer is Verdict.STALE or isinstance(answer, NotDispatched | Refused):
            commit.discard(draft.path)
    return answers


class _Swap:
    """The jobs of one queue whose records take their place."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._filing = Filing(session)
        self._gone: set[str] = set()

    def add(self, reserved: Reserved, record: FailedRecord, draft: Draft) -> bool:
        """Take the job away and file its record; False if its delivery holds it no more."""
        if not self._session.settle(lease_of(reserved.receipt), self._take_away):
            return False
        self._filing.add(record, draft)
        return True

    def perform(self) -> None:
        """Do it all, and nothing is removed before its record is where those look who take no lock."""
        steps = sorted(self._filing.steps, key=lambda step: not isinstance(step, Place))
        if steps:
            self._session.commit.perform([self._session], steps)

    def _take_away(self, path: str, entry: Entry) -> None:
        if path in self._gone or not links_of(path):
            raise FileNotFoundError(path)
        self._gone.add(path)
        relative = self._session.commit.layout.relative
        second = self._session.second(entry.id)
        self._filing.steps += [Drop(relative(path)), Forget(relative(second))]


def keep(commit: Commit, batch: Sequence[FailedRecord]) -> Plan[None]:
    """Store each record once."""
    stamped = _stamped(commit, batch)
    drafts = [_draft(commit, record) for record in stamped]
    yield from written(commit, drafts)
    queues = {record.queue for record in batch}
    with kept_or_discarded(commit, drafts), commit.locked(queues) as sessions:
        filings = {queue: Filing(session) for queue, session in sessions.items()}
        for record, draft in zip(stamped, drafts, strict=True):
            filings[record.queue].add(record, draft)
        steps = [step for filing in filings.values() for step in filing.steps]
        if steps:
            commit.perform(sessions.values(), steps)


def retry(commit: Commit, record: FailedRecord, message: Message) -> Plan[bool]:
    """Swap exactly this record for a waiting job; False when it is gone (FAIL-2)."""
    draft = commit.directory.job_draft(message)
    yield from written(commit, [draft])
    with kept_or_discarded(commit, [draft]), commit.locked({record.queue, message.queue}) as sessions:
        session = sessions[record.queue]
        path = records.path_of(session.place, record)
        if path is None:
            commit.discard(draft.path)
            return False
        relative = commit.layout.relative
        steps: list[Step] = [Drop(relative(path)), Forget(relative(second_of(session, record.id)))]
        if sessions[message.queue].holds(message.id):
            commit.discard(draft.path)
        else:
            steps.insert(0, sessions[message.queue].arrival_of(message, draft))
        commit.perform(sessions.values(), steps)
        commit.disk.remove_directory(parent(path))
    return True


def discard(commit: Commit, record: FailedRecord) -> Plan[bool]:
    """Remove exactly this record; False when it is gone."""
    yield ()
    with commit.found(record.queue) as session:
        path = records.path_of(session.place, record) if session is not None else None
        if session is None or path is None:
            return False
        with refusing():
            _remove(session, path, record.id)
    return True


def purge(commit: Commit, chosen: Sequence[Found]) -> Plan[int]:
    """Remove these records, and count those that were still there."""
    yield ()
    removed = 0
    for name in {found.queue for found in chosen}:
        with commit.found(name) as session:
            for found in chosen:
                if session is not None and found.queue == name:
                    try:
                        removed += _remove_found(session, found)
                    except OSError as error:
                        if removed:  # the next purge says it
                            return removed
                        raise refused(error) from error
    return removed


def _remove_found(session: Session, found: Found) -> bool:
    record = records.read_record(found)
    try:
        return record is not None and _remove(session, found.path, record.id)
    except FileNotFoundError:
        return False


def _remove(session: Session, path: str, id: str) -> bool:
    session.remove(path, second_of(session, id))
    segment = parent(path)
    if session.commit.disk.remove_directory(segment):
        session.commit.directory.made.discard(segment)
    return True


def second_of(session: Session, id: str) -> str:
    """Return the second name of a record's file."""
    return f"{session.place.failed_ids}/{file_id(id)}"


def _draft(commit: Commit, record: FailedRecord) -> Draft:
    data = records.record_bytes(record)
    return commit.directory.draft("record", data, queue=record.queue, id=record.id)


def _stamped(commit: Commit, batch: Sequence[FailedRecord]) -> list[FailedRecord]:
    """Give each record a time that no other in the store has, and later than all before it."""
    with refusing():
        state = StateFile(commit.layout.stamps, commit.disk)
        try:
            commit.lock(state)
            counters = state.counters()
            first = max(commit.directory.now(), counters.seq + 1)
            state.store(counters._replace(seq=first + len(batch) - 1))
        finally:
            state.close()
    return [
        msgspec.structs.replace(record, failed_at=(first + at) / MICRO) for at, record in enumerate(batch)
    ]
