"""What has to be done before a job is settled, in order, and can be done again (RESULT-1, CHAIN-1, BATCH-1).

A crash anywhere in between leaves a job that is still leased and runs again; its result is written again, its
next step is found stored, its batch has counted it.
"""

from collections.abc import Callable

from aqueue.batches import Batches
from aqueue.chains import Chains
from aqueue.claims import Claims
from aqueue.contract.batches import membership_in
from aqueue.contract.flows import steps_in
from aqueue.delivery import Delivery
from aqueue.notes import Notes
from aqueue.pusher import Pusher
from aqueue.results import Results
from aqueue.sealing import CloseEnvelope, OpenEnvelope
from aqueue.store import Store


class Endings:
    """What a queue does around the settlements of jobs that others wait for."""

    def __init__(
        self,
        store: Store,
        notes: Notes,
        claims: Claims,
        pusher: Pusher,
        *,
        open_envelope: OpenEnvelope,
        close_envelope: CloseEnvelope,
        clock: Callable[[], float],
    ) -> None:
        self._claims = claims
        self.results = Results(store, notes, open_envelope=open_envelope, close_envelope=close_envelope)
        self.chains = Chains(
            notes, pusher, open_envelope=open_envelope, close_envelope=close_envelope, clock=clock
        )
        self.batches = Batches(notes, pusher, self.chains)

    async def begin(self, delivery: Delivery) -> None:
        """Do what comes before an attempt; raises `JobReconstructionError` for what can't be followed."""
        steps_in(delivery.envelope.metadata)
        membership_in(delivery.envelope.metadata)
        await self._claims.free(delivery, "started")
        self.results.watch(delivery)

    async def done(self, delivery: Delivery, result: object) -> None:
        """Do what comes before an ack."""
        await self.results.keep(delivery, result)
        if not await self.chains.go_on(delivery):
            await self.batches.count(delivery, is_done=True)
        await self._claims.free(delivery, "done")

    async def failed(self, delivery: Delivery, reason: str, error: BaseException | None) -> None:
        """Do what comes before a job is set aside."""
        await self.results.keep_failure(delivery, reason, error)
        await self.batches.count(delivery, is_done=False)
        await self._claims.free(delivery, "done")
