"""One job pushed, taken and acknowledged, on a queue that is nobody else's: the whole way there and back."""

import time

from aqueue.errors import AqueueError
from aqueue.jobs import job
from aqueue.port import Finding, LeaseKind
from aqueue.port.examining import ok, problem
from aqueue.queue import Queue

PROBED = "aqueue-doctor"
_WITHIN = 10.0


@job(name="aqueue.doctor.probe")
class Probe:
    """Does nothing."""

    async def handle(self) -> None:
        """Nobody handles it: it is taken by who pushed it."""


async def probe(queue: Queue) -> Finding:
    """Push a job and take it again; what other probes left behind is cleared away with it."""
    if queue.capabilities.lease is LeaseKind.NONE:
        return ok("probe", "not made", "nothing is stored here")
    began = time.monotonic()
    try:
        id = await queue.push(Probe(), queue=PROBED)
        taken = await _take(queue, id)
    except AqueueError as error:
        return problem("probe", str(error), "workers and producers will meet the same", "see what it says")
    if not taken:
        found = f"a job that was pushed could not be taken within {_WITHIN:g} s"
        return problem("probe", found, "workers will not get theirs either", "see the other findings")
    return ok("probe", f"pushed, taken and acknowledged within {time.monotonic() - began:.2f} s")


async def _take(queue: Queue, id: str) -> bool:
    deadline = time.monotonic() + _WITHIN
    while (left := deadline - time.monotonic()) > 0:
        for delivery in await queue.pop_many(10, timeout=left, queues=[PROBED]):
            await queue.ack(delivery)
            if delivery.id == id:
                return True
    return False
