"""The job: measure one file, and write down what it holds."""

from anyio import to_process, to_thread

from aqueue import Backoff, Delivery, job
from examples.census.ledger import Ledger
from examples.census.measure import measure

QUEUE = "census"
NAME = "census.measure"


@job(name=NAME, queue=QUEUE, max_attempts=3, backoff=Backoff.exponential(0.2, cap=1.0))
class MeasureFile:
    """Measure one file for one census.

    Parsing keeps a processor busy, so it goes to a process: threads would take turns at one interpreter.
    A file that is no valid Python raises its `SyntaxError` here. It is tried again, as any failing job is,
    and then set aside with that error.
    """

    census: str
    path: str

    async def handle(self, ledger: Ledger, delivery: Delivery) -> None:
        if delivery.lost:  # the worker that had it before was killed
            await to_thread.run_sync(ledger.note, self.census, "recovered", delivery.id)
        measures = await to_process.run_sync(measure, self.path)
        # The worker may be killed between this line and the ack, and the job then runs again:
        # a result takes the place of an earlier one, it is never added to it.
        await to_thread.run_sync(ledger.record, self.census, self.path, measures)
