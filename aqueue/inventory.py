"""Which key still seals how much: rotation is safe because it is counted (SIGN-3).

Nothing here changes anything. A job is counted by the key that its seal names, whether or not this queue
holds that key; so what an old key sealed is found also where that key is gone already.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from aqueue.contract.names import check_queue_names
from aqueue.contract.signing import LONGEST_HEAD, Keyring, key_id_of
from aqueue.errors import KeyInUse, Unsupported
from aqueue.port import Browsable, KeepsFailed, Position, Standing
from aqueue.store import Store

_PAGE = 500
_FAILED_PAGE = 200
_FIRST_PAGE = 60.0
"""Seconds more that a first page may take: some stores sort their ids for it."""

Tally = Counter[tuple[str | None, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """How many jobs a key seals: waiting to be handed out, delayed, held by workers, and set aside."""

    waiting: int = 0
    delayed: int = 0
    leased: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.waiting + self.delayed + self.leased + self.failed


class KeyInventory:
    """Counts a queue's jobs by the keys that seal them; `queue.keys` is one."""

    def __init__(self, store: Store, failed_store: Store, keyring: Keyring | None) -> None:
        self._store = store
        self._failed_store = failed_store
        self._keyring = keyring

    async def inventory(self, queues: Sequence[str] | None = None) -> dict[str | None, KeyUse]:
        """Return how much each key seals; None stands for what no key seals.

        `queues` are those to look at, all of the store without it. The keys of this queue's keyring are
        there with 0. Raises `Unsupported` where the store can't show what it holds.
        """
        tally = Tally()
        for queue in check_queue_names(queues) if queues is not None else await self._queues():
            await self._count_held(queue, tally)
        for failed_of in (None,) if queues is None else queues:
            await self._count_failed(failed_of, tally)
        known = list(self._keyring.keys) if self._keyring is not None else []
        keys = [*known, *sorted({key for key, _ in tally if key is not None}.difference(known)), None]
        return {key: KeyUse(**{field: tally[key, field] for field in _FIELDS}) for key in keys}

    async def retire(self, key: str | None) -> None:
        """Return if the key seals nothing any more, so that it may be taken out of every keyring.

        None asks the same of what no key seals, before `accept_unsigned` ends. All queues of the store and
        all failed jobs are counted twice, the second time just before this returns, so that a writer which
        still uses the key is noticed. Raises `KeyInUse` where anything remains, or the key is the active
        one, and `Unsupported` as `inventory` does. Nothing is changed.
        """
        if self._keyring is not None and self._keyring.active == key:
            raise KeyInUse(f"key {key!r} is the active one: it seals every job that is pushed")
        for _ in range(2):
            use = (await self.inventory()).get(key, KeyUse())
            if use.total:
                counts = asdict(use)
                where = ", ".join(f"{count} {field}" for field, count in counts.items())
                jobs = "1 job is" if use.total == 1 else f"{use.total} jobs are"
                how = "not sealed" if key is None else f"sealed by {key!r}"
                raise KeyInUse(f"{jobs} {how}: {where}", counts)

    async def _queues(self) -> Sequence[str]:
        store = self._browsable()
        return sorted(await self._store.run("queues", store.queues, longer=_FIRST_PAGE))

    async def _count_held(self, queue: str, tally: Tally) -> None:
        store = self._browsable()
        after: str | None = None
        while True:
            page = await self._store.run(
                "browse",
                partial(store.browse, queue, after=after, limit=_PAGE, head=LONGEST_HEAD),
                longer=_FIRST_PAGE if after is None else 0.0,
            )
            tally.update((key_id_of(held.payload), _FIELD_OF[held.standing]) for held in page)
            if not page:
                return
            after = page[-1].id

    async def _count_failed(self, queue: str | None, tally: Tally) -> None:
        """A store that was given another one for its failed jobs may still keep some of its own."""
        for store in dict.fromkeys((self._store, self._failed_store)):
            keeper = store.backend
            if isinstance(keeper, KeepsFailed):
                await self._count_kept(store, keeper, queue, tally)
            elif store is self._failed_store:
                raise _uncountable(store, "list its failed jobs")

    async def _count_kept(self, store: Store, keeper: KeepsFailed, queue: str | None, tally: Tally) -> None:
        after: Position | None = None
        while True:
            page = await store.run(
                "list", partial(keeper.failed_page, queue=queue, job=None, after=after, limit=_FAILED_PAGE)
            )
            tally.update((key_id_of(record.payload), "failed") for record in page)
            if not page:
                return
            after = Position(page[-1].failed_at, page[-1].id)

    def _browsable(self) -> Browsable:
        backend = self._store.backend
        if not isinstance(backend, Browsable):
            raise _uncountable(self._store, "show what it holds")
        return backend


_FIELD_OF: Mapping[Standing, str] = {
    Standing.READY: "waiting",
    Standing.DELAYED: "delayed",
    Standing.LEASED: "leased",
}
_FIELDS = (*_FIELD_OF.values(), "failed")


def _uncountable(store: Store, ability: str) -> Unsupported:
    return Unsupported(
        f"{store.capabilities.system} can't {ability}, so nobody can tell which keys seal its jobs: keep "
        "every key until all of its jobs are done"
    )
