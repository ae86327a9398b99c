"""What a type checker says about results, chains and batches; see `jobs.py` beside it."""

from typing import assert_type

from aqueue import Batch, BatchCounts, Chain, Delivery, Progress, Queue, batch, chain, job, step, step_id


@job(results=60)
async def square(number: int) -> int:
    return number * number


async def pushes(queue: Queue, delivery: Delivery) -> None:
    assert_type(chain(square.job(1), step(square.job(2), delay=5, results=False)), Chain)
    assert_type(batch([square.job(1)], then=chain(square.job(2)), lasts=3600), Batch)
    id = assert_type(await queue.push(chain(square.job(1))), str)
    assert_type(step_id(id, 1), str)
    assert_type(await queue.result(id, timeout=1), object)
    assert_type(await queue.progress(id), Progress | None)
    assert_type(await queue.batch(id), BatchCounts | None)
    await queue.ack(delivery, result={"a": 1})
    await delivery.progress(0.5, "half")
    await delivery.progress("half")  # type: ignore[arg-type]  # a number first
    step(square.job(1), unique=False)  # type: ignore[call-arg]  # not asked in chains
