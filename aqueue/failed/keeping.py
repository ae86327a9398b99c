"""Failing into another store: the record first, then the settlement, and nothing lost in between (FAIL-1).

A crash between the two leaves a job that is failed again, and one record of it: the store keeps one for each
delivery. A delivery that turns out to be somebody else's by now takes its record back, but only if no earlier
call can have settled it: then the record is all that is left of the job.
"""

from collections import OrderedDict
from collections.abc import Sequence

from aqueue.errors import ConnectionFailed, OutcomeUnknown
from aqueue.port import Answer, FailedRecord, Failing, KeepsFailed, Verdict
from aqueue.store import Store

_REMEMBERED = 10_000


class Keeping:
    """Swaps deliveries of one store for records in another."""

    def __init__(self, store: Store, failed: Store) -> None:
        self._store = store
        self._failed = failed
        self._settling: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    async def swap(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        """Keep the records, then settle; where they can't be kept, the deliveries stay leased as they were.

        Raises `ConnectionFailed` for a failed store that can't be reached or doesn't answer: doing all of it
        again is safe. Other errors of either store come as they are.
        """
        keeper = self._failed.backend
        assert isinstance(keeper, KeepsFailed)
        await self._keep(keeper, [failing.record for failing in batch])
        firsts = [self._note(failing.record) for failing in batch]
        reserved = [failing.reserved for failing in batch]
        answers = await self._store.raw_call(lambda: self._store.backend.ack(reserved))
        for failing, answer, is_first in zip(batch, answers, firsts, strict=True):
            if answer is Verdict.STALE and is_first:
                await self._take_back(keeper, failing.record)
        return answers

    async def _keep(self, keeper: KeepsFailed, records: Sequence[FailedRecord]) -> None:
        try:
            await self._failed.call("keep", lambda: keeper.keep(records))
        except OutcomeUnknown as error:
            raise ConnectionFailed(
                f"the failed store ({self._failed.capabilities.system}) did not say whether it keeps the "
                "record; the job is still leased, and failing it again is safe",
                job_id=records[0].id if len(records) == 1 else None,
            ) from error

    def _note(self, record: FailedRecord) -> bool:
        """Note that this delivery is about to be settled; True if no earlier call can have done so."""
        key = _key(record)
        is_first = key not in self._settling
        self._settling[key] = None
        if len(self._settling) > _REMEMBERED:
            self._settling.popitem(last=False)
        return is_first

    async def _take_back(self, keeper: KeepsFailed, record: FailedRecord) -> None:
        """Somebody else holds the job, so it has not failed: remove the record that was just written."""

        async def discard() -> None:
            kept = await keeper.failed_get(record.id)
            if kept is not None and _key(kept) == _key(record):
                await keeper.failed_discard(kept)

        self._settling.pop(_key(record), None)
        await self._failed.call("discard", discard)


def _key(record: FailedRecord) -> tuple[str, str, str]:
    return record.queue, record.id, record.delivery
