"""The doctor's part above the stores: what is judged alike for all of them (DOCTOR-1).

A store is asked about itself; what concerns the clock, seals and failed jobs is added here. Nothing is
changed, and no job is taken or pushed.
"""

from collections.abc import Sequence
from functools import partial

from aqueue.contract.names import check_queue_names
from aqueue.contract.signing import Keyring
from aqueue.port import DeadLetters, Examinable, Finding, KeepsFailed, LeaseKind
from aqueue.port.examining import ok, problem, warning
from aqueue.store import Store

_LOOKING = 20.0
"""Seconds more that asking a store about itself may take."""

_NOTICEABLE, _WRONG = 1.0, 60.0


class Doctor:
    """Examines the stores of a queue; `queue.doctor` is one."""

    def __init__(self, store: Store, failed_store: Store, keyring: Keyring | None) -> None:
        self._store = store
        self._failed_store = failed_store
        self._keyring = keyring

    async def examine(self, queues: Sequence[str] = ("default",)) -> list[Finding]:
        """Return what is known of the stores' settings and state, good and bad (DOCTOR-1).

        `queues` are looked at where a store has settings for each, and says so. The failed store, if it is
        another one, is examined as well. Raises a `StoreError` where a store can't be asked.
        """
        names = check_queue_names(queues)
        findings = await self._examined(self._store, names)
        if self._failed_store is not self._store:
            found = await self._examined(self._failed_store, names)
            findings += [each._replace(check=f"failed store: {each.check}") for each in found]
        return [*findings, *self._failing(), *self._sealing()]

    async def _examined(self, store: Store, queues: Sequence[str]) -> list[Finding]:
        backend = store.backend
        if not isinstance(backend, Examinable):
            meaning = f"{backend.capabilities.system} can't be asked how it is set up"
            return [ok("settings", "unknown", meaning)]
        told = await store.run("examine", partial(backend.examine, queues), longer=_LOOKING)
        return [*told.findings, *([] if told.ahead is None else [clock(told.ahead)])]

    def _failing(self) -> list[Finding]:
        keeps = isinstance(self._failed_store.backend, KeepsFailed | DeadLetters)
        if self._store.capabilities.lease is LeaseKind.NONE or keeps:
            return []
        return [
            problem(
                "failed jobs",
                "not kept",
                "a job that fails for good is logged and removed",
                "give connect(failed=…), or AQUEUE_FAILED_STORE, the URL of another store",
            )
        ]

    def _sealing(self) -> list[Finding]:
        if self._keyring is not None:
            return [ok("signing", f"key {self._keyring.active}")]
        return [
            warning(
                "signing",
                "no keys",
                "whoever can write to the store can have any job of yours run with any arguments",
                "make a key with `aqueue keys generate` and set AQUEUE_SIGNING_KEYS everywhere",
            )
        ]


def clock(ahead: float) -> Finding:
    """Return what it means that the store's clock is so many seconds ahead of this machine's."""
    away = abs(ahead)
    found = f"the store is {away:.1f} s {'ahead' if ahead > 0 else 'behind'}"
    if away < _NOTICEABLE:
        return ok("clock", "the store's and this machine's agree")
    meaning = "`at=` and ages are off by that; delays and leases go by the store's clock alone"
    advice = "let both keep their time by NTP"
    return (problem if away >= _WRONG else warning)("clock", found, meaning, advice)
