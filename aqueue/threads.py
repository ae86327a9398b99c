"""Plain `def` handlers run on threads, bounded in number even when a timeout left one behind (WORK-11)."""

import asyncio
from collections.abc import Callable

import anyio
import anyio.to_thread


class Threads:
    """At most `limit` threads for handlers that block.

    Cancelling the wait leaves the thread to finish by itself, since nothing can stop it; its place is taken
    until it has.
    """

    def __init__(self, limit: int) -> None:
        self._places = anyio.CapacityLimiter(limit)
        self._unbounded = anyio.CapacityLimiter(float("inf"))

    async def run(self, call: Callable[[], object]) -> object:
        """Call it on a thread, in a copy of the current context, and return what it gave."""
        place = object()
        await self._places.acquire_on_behalf_of(place)
        loop = asyncio.get_running_loop()
        unstarted = [place]  # whoever pops it, the thread or a cancellation, is the one that may go on

        def work() -> tuple[object, BaseException | None]:
            """Answer with the error instead of raising it: not every kind survives a future."""
            if not _claimed(unstarted):
                return None, None
            try:
                return call(), None
            except BaseException as error:  # noqa: BLE001 - the handler may raise anything; it is raised below
                return None, error
            finally:
                loop.call_soon_threadsafe(self._places.release_on_behalf_of, place)

        try:
            answer, error = await anyio.to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._unbounded
            )
        except BaseException:
            if _claimed(unstarted):
                self._places.release_on_behalf_of(place)
            raise
        if error is not None:
            raise error
        return answer


def _claimed(unstarted: list[object]) -> bool:
    """Popping is atomic, so only one of two threads gets it."""
    try:
        unstarted.pop()
    except IndexError:
        return False
    return True
