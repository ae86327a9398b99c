"""Stores that show too little, too much, or not what is there."""

from collections.abc import Sequence

import msgspec

from aqueue.backends.memory import MemoryBackend
from aqueue.port import Answer, Failing, Held, Message, Reserved, Standing
from aqueue.testing.contract import browsing, encrypting, sealing


class ShowsWhatWaits(MemoryBackend):
    """Leaves out what workers hold."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        page = await super().browse(queue, after=after, limit=limit, head=head)
        return [held for held in page if held.standing is not Standing.LEASED]


class OverlooksTheDelayed(MemoryBackend):
    """Leaves out what is not due yet."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        page = await super().browse(queue, after=after, limit=limit, head=head)
        return [held for held in page if held.standing is not Standing.DELAYED]


class ShowsMoreThanAsked(MemoryBackend):
    """Has no pages."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        return await super().browse(queue, after=after, limit=1_000, head=head)


class ShowsWholePayloads(MemoryBackend):
    """Doesn't cut what it shows."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        return await super().browse(queue, after=after, limit=limit)


class ShowsEveryQueue(MemoryBackend):
    """Mixes the queues up."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        shown = {}
        for name in [*self._shelf.lanes]:
            page = await super().browse(name, after=None, limit=1_000, head=head)
            shown.update({held.id: held for held in page if after is None or held.id > after})
        return [shown[id] for id in sorted(shown)][:limit]


class TakesWhatItShows(MemoryBackend):
    """Reserves jobs to look at them."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        page = await super().browse(queue, after=after, limit=limit, head=head)
        await self.pop([queue], limit)
        return page


class CountsALook(MemoryBackend):
    """Looks by popping and putting back."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        for job in self._shelf.lane(queue).ready:
            job.attempts += 1
        return await super().browse(queue, after=after, limit=limit, head=head)


class ShowsAsStored(MemoryBackend):
    """Waits for a sweep before it believes that a delay or a lease is over."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        page = await super().browse(queue, after=after, limit=limit, head=head)
        leased = {job.id for job in self._shelf.lane(queue).leased.values()}
        return [
            msgspec.structs.replace(held, standing=Standing.LEASED) if held.id in leased else held
            for held in page
        ]


class PagesByPlace(MemoryBackend):
    """Lists in the order of the queue, which changes between two pages."""

    async def browse(
        self, queue: str, *, after: str | None, limit: int, head: int | None = None
    ) -> Sequence[Held]:
        page = {held.id: held for held in await super().browse(queue, after=None, limit=1_000, head=head)}
        lane = self._shelf.lane(queue)
        jobs = [*lane.ready, *(job for _, _, job in lane.delayed), *lane.leased.values()]
        order = [job.id for job in jobs]
        start = order.index(after) + 1 if after in order else 0
        return [page[id] for id in order[start : start + limit]]


class NamesWhatHoldsJobs(MemoryBackend):
    """Forgets the queues that have failed jobs and no others."""

    async def queues(self) -> Sequence[str]:
        return [name for name, lane in self._shelf.lanes.items() if lane.held]


class NamesWhatIsReady(MemoryBackend):
    """Forgets the queues of which everything is held or delayed."""

    async def queues(self) -> Sequence[str]:
        return [name for name, lane in self._shelf.lanes.items() if lane.ready]


class NamesWhatItEverSaw(MemoryBackend):
    """Names queues that hold nothing."""

    async def queues(self) -> Sequence[str]:
        return list(self._shelf.lanes)


class SealsAnew(MemoryBackend):
    """Changes payloads on their way in, and leaves them readable."""

    async def push(self, batch: Sequence[Message]) -> Sequence[None]:
        spaced = [msgspec.structs.replace(message, payload=message.payload + b" ") for message in batch]
        return await super().push(spaced)


class RunsUnderAnyName(MemoryBackend):
    """Hands out what it stores under the id that its bytes name."""

    async def pop(self, queues: Sequence[str], limit: int) -> Sequence[Reserved]:
        found = await super().pop(queues, limit)
        return [msgspec.structs.replace(item, id=_named_in(item.payload) or item.id) for item in found]


class FailsWithoutBytes(MemoryBackend):
    """Sets aside an empty payload."""

    async def fail(self, batch: Sequence[Failing]) -> Sequence[Answer]:
        emptied = [
            Failing(item.reserved, msgspec.structs.replace(item.record, payload=b"{}")) for item in batch
        ]
        return await super().fail(emptied)


def _named_in(payload: bytes) -> str | None:
    _, found, rest = payload.partition(b'"id":"')
    return rest[:32].decode() if found else None


BROKEN = (
    (browsing.every_job_is_shown_once_by_id_with_where_it_stands, ShowsWhatWaits),
    (browsing.every_job_is_shown_once_by_id_with_where_it_stands, OverlooksTheDelayed),
    (browsing.every_job_is_shown_once_by_id_with_where_it_stands, ShowsMoreThanAsked),
    (browsing.every_job_is_shown_once_by_id_with_where_it_stands, ShowsWholePayloads),
    (browsing.every_job_is_shown_once_by_id_with_where_it_stands, ShowsEveryQueue),
    (browsing.looking_takes_nothing, TakesWhatItShows),
    (browsing.looking_takes_nothing, CountsALook),
    (browsing.a_job_shows_as_the_next_pop_would_find_it, ShowsAsStored),
    (browsing.a_job_that_moves_between_two_pages_is_not_overlooked, PagesByPlace),
    (browsing.the_queues_that_hold_something_are_named, NamesWhatHoldsJobs),
    (browsing.the_queues_that_hold_something_are_named, NamesWhatIsReady),
    (browsing.the_queues_that_hold_something_are_named, NamesWhatItEverSaw),
    (browsing.the_inventory_counts_each_key_wherever_its_jobs_stand, ShowsWhatWaits),
    (browsing.the_inventory_counts_each_key_wherever_its_jobs_stand, OverlooksTheDelayed),
    (browsing.a_key_is_retired_once_nothing_is_sealed_by_it, ShowsWhatWaits),
    (browsing.a_key_is_retired_once_nothing_is_sealed_by_it, NamesWhatIsReady),
    (sealing.the_cut_over_ends_by_itself, FailsWithoutBytes),
    (sealing.a_seal_is_good_for_its_own_job_alone, RunsUnderAnyName),
    (sealing.a_failed_store_elsewhere_verifies_as_well, SealsAnew),
    (encrypting.encrypted_jobs_travel_and_come_back, SealsAnew),
    (encrypting.a_fleet_may_be_mixed, SealsAnew),
    (encrypting.what_can_not_be_decrypted_is_set_aside, FailsWithoutBytes),
    (encrypting.a_wrong_key_shows_nothing, FailsWithoutBytes),
)
