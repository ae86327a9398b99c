"""Settling: deletions and changes of visibility, ten to a call, each entry answered for itself."""

import asyncio
import math
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple

from aqueue.backends.sqs.places import Places
from aqueue.backends.sqs.receipts import LONGEST_HOLD, Receipt
from aqueue.backends.sqs.sending import MOST_ENTRIES
from aqueue.backends.sqs.troubles import entry_answer
from aqueue.errors import InvalidQueueArgument
from aqueue.port import Answer, Releasing, Reserved, Verdict


class _Step(NamedTuple):
    """What is asked for one delivery: to hide its message for so long, or, with no seconds, to delete it."""

    position: int
    receipt: Receipt
    seconds: int | None
    ends: bool


class Settling:
    """Ends deliveries and renews their leases; `lease` is whole seconds."""

    def __init__(self, places: Places, *, lease: int) -> None:
        self._places = places
        self._lease = lease

    async def delete(self, batch: Sequence[Reserved]) -> list[Answer]:
        """Remove each message whose delivery still holds."""
        return await self._settle(batch, [None] * len(batch), ends=True)

    async def release(self, batch: Sequence[Releasing]) -> list[Answer]:
        """Show each message again, at once or after its delay (REL-1)."""
        items = [releasing.reserved for releasing in batch]
        return await self._settle(items, [math.ceil(releasing.delay) for releasing in batch], ends=True)

    async def extend(self, batch: Sequence[Reserved]) -> list[Answer]:
        """Hide each message for a lease from now, or as long as SQS still can."""
        now = monotonic()
        seconds: list[int | None] = []
        for item in batch:
            left = item.receipt.left(now) if isinstance(item.receipt, Receipt) else 0
            seconds.append(max(1, min(self._lease, left)))
        return await self._settle(batch, seconds, ends=False)

    async def _settle(
        self, batch: Sequence[Reserved], seconds: Sequence[int | None], *, ends: bool
    ) -> list[Answer]:
        now = monotonic()
        answers: list[Answer] = [Verdict.STALE] * len(batch)
        queues: dict[str, list[_Step]] = {}
        asked: set[Receipt] = set()
        for position, (item, hidden) in enumerate(zip(batch, seconds, strict=True)):
            receipt = item.receipt
            if not isinstance(receipt, Receipt) or not receipt.is_held(now) or receipt in asked:
                continue  # over, another store's, or a second settlement of one delivery
            if hidden is not None and hidden > receipt.left(now):
                answers[position] = _too_long(hidden, receipt.left(now))
                continue
            asked.add(receipt)
            queues.setdefault(item.queue, []).append(_Step(position, receipt, hidden, ends))
        await asyncio.gather(
            *(
                self._ask(queue, steps[start : start + MOST_ENTRIES], answers)
                for queue, steps in queues.items()
                for start in range(0, len(steps), MOST_ENTRIES)
            )
        )
        return answers

    async def _ask(self, queue: str, steps: Sequence[_Step], answers: list[Answer]) -> None:
        operation = "delete_message_batch" if steps[0].seconds is None else "change_message_visibility_batch"
        sent = monotonic()
        try:
            reply = await self._places.call(queue, operation, Entries=[_entry(step) for step in steps])
        except Exception as error:  # noqa: BLE001 - it concerns this call's deliveries alone
            for step in steps:
                answers[step.position] = error
            return
        done = {entry["Id"] for entry in reply.get("Successful", ())}
        failed = {entry["Id"]: entry_answer(entry) for entry in reply.get("Failed", ())}
        for step in steps:
            id = str(step.position)
            answers[step.position] = Verdict.SETTLED if id in done else failed.get(id, Verdict.UNKNOWN)
            if id not in done:
                continue
            if step.ends:
                step.receipt.end()
            else:
                step.receipt.renew(sent, step.seconds or 0)


def _entry(step: _Step) -> dict[str, Any]:
    entry: dict[str, Any] = {"Id": str(step.position), "ReceiptHandle": step.receipt.handle}
    return entry if step.seconds is None else {**entry, "VisibilityTimeout": step.seconds}


def _too_long(seconds: int, left: int) -> InvalidQueueArgument:
    return InvalidQueueArgument(
        f"SQS holds a job back for at most {LONGEST_HOLD} s, counted from when it handed the job out: "
        f"{left} s are left of them, not {seconds} s; the delivery was not settled"
    )
